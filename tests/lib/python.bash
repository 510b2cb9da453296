# A Python of the tests' own, in target/test-python, with what requirements.txt names, and a browser. Needs a network the
# first time. Not a script by itself.

# Sets `python`, or says why there is none.
python_for_tests() {
    local venv=target/test-python wanted=tests/lib/requirements.txt
    python="$PWD/$venv/bin/python"
    mkdir -p target
    exec 8>"$venv.lock"
    flock 8
    if ! cmp -s "$wanted" "$venv/installed.txt"; then
        rm -rf "$venv"
        python3 -m venv "$venv" && "$python" -m pip install --quiet --disable-pip-version-check -r "$wanted" || return 1
        cp "$wanted" "$venv/installed.txt"
    fi >&2
    exec 8>&-
}

# Sets `CHROMIUM`, or says that there is none.
chromium_for_tests() {
    CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
    export CHROMIUM
    [ -n "$CHROMIUM" ] || {
        echo "there is no Chromium (Debian: apt-get install chromium)" >&2
        return 1
    }
}

# A Python of the tests' own, in target/test-python, with what requirements.txt names. Needs a network the first time.
# Not a script by itself.

# Sets `python`, or says why there is none.
python_for_tests() {
    local venv=target/test-python wanted=tests/lib/requirements.txt
    python="$PWD/$venv/bin/python"
    if ! cmp -s "$wanted" "$venv/installed.txt"; then
        rm -rf "$venv"
        python3 -m venv "$venv" && "$python" -m pip install --quiet --disable-pip-version-check -r "$wanted" || return 1
        cp "$wanted" "$venv/installed.txt"
    fi >&2
}

#!/usr/bin/env bash
# Every dependency comes from the registry, under a licence we can pass on; core and protocols
# stay small and without std.
set -euo pipefail
cargo metadata --format-version 1 --locked --offline --filter-platform x86_64-unknown-linux-gnu | python3 -c '
import json, re, sys
ALLOWED = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause",
           "ISC", "Unicode-3.0", "Zlib", "Unlicense", "CC0-1.0", "0BSD", "BSL-1.0", "MIT-0"}
bad = []
for package in json.load(sys.stdin)["packages"]:
    if package["source"] is None:
        continue
    if not package["source"].startswith("registry+"):
        bad.append(package["name"] + ": not from the registry")
    choices = re.split(r" OR |/", package["license"] or "")
    needed = lambda choice: [part.strip(" ()") for part in choice.split(" AND ")]
    if not any(all(part in ALLOWED for part in needed(choice)) for choice in choices):
        bad.append("{}: licence {}".format(package["name"], package["license"]))
print("\n".join(bad))
sys.exit(bool(bad))
'
# No std, hidden or not: not a word of it in the sources, and where a bare target is installed
# (rustup target add thumbv7em-none-eabi), a build for it.
bare=thumbv7em-none-eabi
for crate in core protocols; do
    grep -q '^#!\[no_std\]' "crates/$crate/src/lib.rs" || { echo "$crate is not no_std" >&2; exit 1; }
    if grep -rnwE 'std' "crates/$crate/src" --include='*.rs'; then
        echo "holdall-$crate names std: it must do without, tests included" >&2
        exit 1
    fi
    if cargo tree --offline --locked -p "holdall-$crate" -e normal --prefix none -f '{p}' |
        grep -vE '^(holdall-|serde|serde_core|serde_derive|thiserror|thiserror-impl|proc-macro2|quote|syn|unicode-ident)' | grep -q .; then
        echo "holdall-$crate depends on something new" >&2
        exit 1
    fi
done
if [ -d "$(rustc --print sysroot)/lib/rustlib/$bare" ]; then
    cargo check --offline --locked --quiet --target "$bare" -p holdall-core -p holdall-protocols
fi
echo "dependencies.sh: ok"

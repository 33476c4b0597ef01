#!/usr/bin/env bash
# Makes .venv and installs Tidegate into it. Each package is checked against its SHA-256 in requirements.txt before
# anything of it runs (scripts/hashes.py writes that file). A second run ends at once.
#
#   scripts/install.sh        what `make demo` and `make ui` need
#   scripts/install.sh dev    that, and what tests and checks need
#
# $PYTHON chooses the interpreter. Every way to fail ends in one sentence and the thing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

extra="${1:-}"
venv=.venv
log=$venv/install.log
needed_mb=3000

fail() {
    printf 'make install: %s\n  next:  %s\n' "$1" "$2" >&2
    exit 1
}

# --- already done? ---------------------------------------------------------------------------------------------------

wanted=$(cat pyproject.toml requirements*.txt | cksum | cut -d ' ' -f 1)
stamp=$venv/.installed$extra
if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi

# --- Python ----------------------------------------------------------------------------------------------------------

supported='import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
python=""
for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    if "$candidate" -c "$supported" >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    found=$("${PYTHON:-python3}" --version 2>/dev/null || echo none)
    fail "Tidegate needs Python 3.11, 3.12 or 3.13, and this machine has: $found" \
        "install one (Debian: apt-get install python3 python3-venv), or name it: make install PYTHON=/path/to/python3.11"
fi
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -c 'import venv, ensurepip' >/dev/null 2>&1 ||
    fail "Python $version has no venv module" "apt-get install python$version-venv   (or your system's package of that name)"

# --- Java, disk ------------------------------------------------------------------------------------------------------

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
java_version=$("$java" -version 2>&1 || true)
major=$(printf '%s' "$java_version" | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${major:-0}" -ge 17 ] ||
    printf 'make install: %s\n  next:  %s\n' \
        "warning: Spark needs Java 17 or later, and this machine has ${major:+Java }${major:-none}" \
        "install it before the first run (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME" >&2

free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
[ "$free_mb" -ge "$needed_mb" ] ||
    fail "the installation needs $needed_mb MB in $(pwd) and there are $free_mb MB free" \
        "free some space, and run the same command again"

# --- install ---------------------------------------------------------------------------------------------------------

files=(requirements.txt ${extra:+"requirements-$extra.txt"})
packages=$(cat "${files[@]}" | grep -c '==')
echo "Installing Tidegate into $venv (Python $version): PySpark, Delta Lake, Dagster, Great Expectations${extra:+, test tools};"
echo "$packages packages, a download of about 700 MB, 1.9 GB on disk. It takes 1 to 6 minutes, once."
begin=$(date +%s)

# A .venv of another Python, or one that was interrupted while it was made, is made anew.
if ! "$venv/bin/python" -c "$supported" >/dev/null 2>&1 || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$venv"
    "$python" -m venv "$venv" || fail "Python $version could not make $venv" \
        "see that $(pwd) can be written and has room, and run the same command again; what is wrong stands above"
fi
show='/^(Collecting|Downloading|Building|Installing collected)/ { n += /^Collecting/; printf "\r\033[K  %3d  %.70s", n, $0; fflush() }
      END { printf "\r\033[K" }'
if [ ! -t 1 ]; then show='/^(Building|Installing collected)/ { printf "  %.70s\n", $0; fflush() }'; fi

install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 |
        tee -a "$log" | awk "$show"
}

# Wheels alone, but for PySpark, which has none: it is built by the setuptools that was installed just before, which
# fetches nothing more. pip takes no other package and no other file than those that are named here.
checked=(--require-hashes --no-deps --only-binary ":all:")
: >"$log"
if ! { install "${checked[@]}" --requirement requirements-build.txt &&
    install "${checked[@]}" --no-binary pyspark --use-pep517 --no-build-isolation "${files[@]/#/--requirement=}" &&
    install --no-index --no-deps --no-build-isolation --editable .; }; then
    if grep -q 'THESE PACKAGES DO NOT MATCH THE HASHES' "$log"; then
        fail "a package is not the one that Tidegate was tested with: its SHA-256 is another, and nothing of it was run" \
            "see which in $log; set another index (PIP_INDEX_URL), or clear pip's cache: $venv/bin/python -m pip cache purge"
    fi
    if grep -qE 'No space left on device|Disk quota exceeded' "$log"; then
        fail "the disk is full: pip could not write its files" \
            "free $needed_mb MB where $(pwd), ${TMPDIR:-/tmp} and $HOME/.cache lie, and run the same command again"
    fi
    if grep -qE 'NewConnectionError|NameResolutionError|name resolution|ConnectTimeout|Read timed out|Network is unreachable|ProxyError|SSLError' "$log"; then
        fail "the Python package index cannot be reached" \
            "check the network (behind a proxy: set HTTPS_PROXY), and run the same command again; see $log"
    fi
    fail "pip says: $(grep -m 1 -iE '^ *error' "$log" || tail -n 1 "$log")" "read $log, and run the same command again"
fi

if [ "${major:-0}" -ge 17 ]; then
    echo "Writing an archive of Spark's classes, with which runs start in two thirds of the time: half a minute to two, once."
    "$venv/bin/python" -m tidegate.pipelines.runtime.class_archive >/dev/null ||
        echo "Runs start without it; to write it later: $venv/bin/python -m tidegate.pipelines.runtime.class_archive" >&2
fi

echo "$wanted" >"$stamp"
# What tests need holds what the demo needs.
[ -z "$extra" ] || echo "$wanted" >"$venv/.installed"
echo "Installed in $(($(date +%s) - begin)) s."

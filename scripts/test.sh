#!/usr/bin/env bash
# Runs every check: tests, lint, format, types, architecture. Arguments go to pytest:
#   bash scripts/test.sh [--slow] [tests/model ...]
# with another version of transformers, in an environment of its own:
#   TRANSFORMERS=5.25.0 bash scripts/test.sh
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --help ]; then
    sed -n '2,5s/^# //p' scripts/test.sh
    exit
fi
source scripts/environment.sh test
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
# The tests write many small files: into memory, where 8 GiB are free for them.
room="$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1 || true)"
free="$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo 2>/dev/null || true)"
if [ -z "${TMPDIR:-}" ] && [ "${room:-0}" -ge 8 ] && [ "${free:-0}" -ge 12 ]; then
    TMPDIR="$(mktemp -d /dev/shm/tests.XXXXXX)"
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
fi
# Some tests drive a browser, which only a package of the system can be.
# Packages of npm: the runtime of pages that compute, and a checker of accessibility.
packages="onnxruntime-web@1.30.0 @huggingface/tokenizers@0.2.0 axe-core@4.14.1"
has_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null
missing="$(has_browser || echo chromium) $(command -v npm >/dev/null || echo npm)"
if [ "$missing" != " " ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing for the tests of pages: $missing"
    # Only what is missing: npm of Debian conflicts with Node.js from elsewhere, which has an npm of its own.
    # shellcheck disable=SC2086  # each word is a package
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes $missing; } >/dev/null 2>&1 || true
fi
if [ "$(cat node_modules/.packages 2>/dev/null)" != "$packages" ] && command -v npm >/dev/null; then
    echo "Installing $packages into node_modules ..."
    # shellcheck disable=SC2086  # each word is a package
    npm install --silent --no-save --no-package-lock --ignore-scripts --no-audit --no-fund $packages &&
        echo "$packages" >node_modules/.packages || true
fi
status=0
python -m pytest -n 2 --dist worksteal -v --disable-warnings "$@" || status=$?
has_browser || echo "Not run: what tests/page, tests/serving and tests/web try in a browser. Install the system's package chromium."
exit "$status"

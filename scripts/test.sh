#!/usr/bin/env bash
# Runs every check: tests, lint, format, types, architecture. Arguments go to pytest:
#   bash scripts/test.sh [--slow] [tests/model ...]
# with another version of transformers, in an environment of its own:
#   TRANSFORMERS=5.25.0 bash scripts/test.sh
set -euo pipefail
cd "$(dirname "$0")/.."
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
has_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null
if ! has_browser && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Chromium for the tests of pages ..."
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes chromium; } >/dev/null 2>&1 || true
fi
status=0
python -m pytest -n 2 --dist worksteal -v --disable-warnings "$@" || status=$?
has_browser || echo "Not run: what tests/page and tests/serving try in a browser. Install the system's package chromium."
exit "$status"

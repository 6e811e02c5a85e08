#!/usr/bin/env bash
# Runs every check: tests, lint, format, types, architecture. Arguments go to pytest:
#   bash scripts/test.sh [--slow] [--long] [tests/model ...]
# with another version of transformers, in an environment of its own:
#   TRANSFORMERS=5.20.2 bash scripts/test.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh test
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
python -m pytest -n 2 --dist worksteal "$@"

#!/usr/bin/env bash
# Learns English pronunciation from the CMU dictionary, in a few minutes, and pronounces words:
#   bash scripts/demo.sh [--minutes 7 | --longer | --full] [--retrain] [--words WORD ...]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh demo
export THP_MEM_ALLOC_ENABLE="${THP_MEM_ALLOC_ENABLE:-1}"  # as `vanilla-transformer train` does
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-10000}"
python scripts/experiments/demo.py "$@"

#!/usr/bin/env bash
# Learns English pronunciation from the CMU dictionary and pronounces words:
#   bash scripts/demo.sh [--full] [--retrain] [--words WORD ...]
# or learns to write English numerals in Korean:
#   bash scripts/demo.sh --task numerals [--retrain] [--words "three hundred and five" ...]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh demo
# As `vanilla-transformer train` does: see CPU_SETTINGS in vanilla_transformer/commands/train.py.
export THP_MEM_ALLOC_ENABLE="${THP_MEM_ALLOC_ENABLE:-1}"
export ONEDNN_PRIMITIVE_CACHE_CAPACITY="${ONEDNN_PRIMITIVE_CACHE_CAPACITY:-8192}"
python scripts/experiments/demo.py "$@"

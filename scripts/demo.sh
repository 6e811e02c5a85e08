#!/usr/bin/env bash
# Learns English pronunciation from the CMU dictionary and pronounces words:
#   bash scripts/demo.sh [--full] [--retrain] [--words WORD ...]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh demo
python -m vanilla_transformer.training.pronunciation "$@"

#!/usr/bin/env bash
# Trains nmt-forge (in an environment of its own) and this package on the same pairs, each with one
# thread, and scores both with sacreBLEU. /usr/bin/time tells the processor time of each: choose the
# epochs of the one and the minutes of the other so that these agree.
#
#     scripts/experiments/beside_nmt_forge.sh FORGE_ENV TRAIN.tsv TEST.tsv CODE EPOCHS MINUTES FOLDER
#
# FORGE_ENV: a virtual environment with `pip install 'nmt-forge[hf]==0.3.0'`. The files have a source
# and a target in English and in the language of the ISO 639-3 code. FOLDER is new.
set -euo pipefail
forge=$(realpath "$1") train=$(realpath "$2") test=$(realpath "$3") code=$4 epochs=$5 minutes=$6
mkdir "$7" && cd "$7"
export OMP_NUM_THREADS=1

python - "$train" "$test" <<'PYTHON'
import json, sys
for name, path in zip(("train", "test"), sys.argv[1:]):
    rows = [line.rstrip("\n").split("\t")[:2] for line in open(path, encoding="utf-8")]
    lines = (json.dumps(dict(zip(("source", "target"), row))) for row in rows)
    open(f"{name}.jsonl", "w").write("".join(f"{line}\n" for line in lines))
    for side, texts in zip(("source", "target"), zip(*rows)):
        open(f"{name}.{side}", "w", encoding="utf-8").write("".join(f"{text}\n" for text in texts))
PYTHON

run() { "$forge/bin/nmt-forge" "$@"; }
run init "$code" --no-card --name "$code" --dir forge
cd forge
run registry add project-test ../test.jsonl --role test
run leak-audit ../train.jsonl --clean-to pairs.jsonl # tells of twins
run split pairs.jsonl --test 0 --dev 100 --seed 42 --out data/split --register project
sed -i "s/\"epochs\": [0-9]*/\"epochs\": $epochs/; s/\"max_new_tokens\": 384/\"max_new_tokens\": 400/" config.json
/usr/bin/time -f "nmt-forge: %U s" "$forge/bin/nmt-forge" run config.json
cd ..

# `export` asks the network for a language card: the chosen checkpoint translates as it does.
"$forge/bin/python" - <<'PYTHON'
import glob, json
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
(manifest,) = glob.glob("forge/.forge/runs/*/run-manifest.json")
path = json.load(open(manifest))["selected_path"]
tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForSeq2SeqLM.from_pretrained(path)
sources, outputs = open("test.source", encoding="utf-8").read().split("\n")[:-1], []
for first in range(0, len(sources), 16):
    batch = tokenizer(sources[first : first + 16], return_tensors="pt", padding=True)
    batch.pop("token_type_ids", None)
    ids = model.eval().generate(**batch, max_new_tokens=400)
    outputs += tokenizer.batch_decode(ids, skip_special_tokens=True)
open("forge.txt", "w", encoding="utf-8").write("".join(f"{text}\n" for text in outputs))
PYTHON

/usr/bin/time -f "ours: %U s" vanilla-transformer train --train-file "$train" --test-file "$test" \
    --source-language en --target-language "$code" --minutes "$minutes" --output-dir ours
vanilla-transformer translate ours --input test.source > ours.txt
for name in forge ours; do
    echo "$name: chrF $(sacrebleu test.target -i $name.txt -m chrf -b)"
done

"""`vanilla-transformer train` as a file, for `accelerate launch scripts/train.py ...`."""

import sys

from vanilla_transformer.commands.program import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))

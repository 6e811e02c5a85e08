"""Trains a model, for `accelerate launch scripts/train.py ...`."""

from vanilla_transformer.run.training_run import main

if __name__ == "__main__":
    main()

"""Trains a model: `python scripts/train.py --help`, or `python scripts/train.py recipe.yaml`."""

from vanilla_transformer.training.run import main

if __name__ == "__main__":
    main()

"""Scores a saved model on a data set: `python scripts/evaluate.py --help`."""

from vanilla_transformer.training.evaluation import main

if __name__ == "__main__":
    main()

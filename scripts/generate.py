"""Turns lines of text into lines of text: `python scripts/generate.py MODEL [LINE ...]`."""

from vanilla_transformer.inference import main

if __name__ == "__main__":
    main()

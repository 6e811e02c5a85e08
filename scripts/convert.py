"""Converts trained weights of another system: `python scripts/convert.py --help`."""

import sys
from pathlib import Path

# This folder's evaluate.py would hide the library of that name.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]

from vanilla_transformer.interop.convert import main  # noqa: E402 - after the path is mended

if __name__ == "__main__":
    main()

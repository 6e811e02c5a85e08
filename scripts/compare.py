"""Compares how systems learn: `python scripts/compare.py --help`."""

import sys
from pathlib import Path

# This folder's evaluate.py and inspect.py would hide the modules of those names; nothing that needs
# them may be imported before this line.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]

from vanilla_transformer.training.compare import main  # noqa: E402 - after the path is mended

if __name__ == "__main__":
    main()

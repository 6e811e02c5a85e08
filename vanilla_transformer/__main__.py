"""`python -m vanilla_transformer` is the command `vanilla-transformer`."""

import sys

from vanilla_transformer.commands.program import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m barnabas` is the `barnabas` command."""

import sys

from barnabas.scripts.cli import main

if __name__ == "__main__":
    sys.exit(main())

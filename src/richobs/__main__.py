"""`python -m richobs` is the command line too."""

import sys

from richobs.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""Run the command line as ``python -m airnp``."""

import sys

from airnp.commands.main import main

if __name__ == "__main__":
    sys.exit(main())

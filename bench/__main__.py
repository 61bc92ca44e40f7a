"""``python -m bench``: what ``airnp bench`` does."""

import sys

from airnp.commands.main import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))

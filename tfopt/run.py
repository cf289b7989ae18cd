"""Run the command line as a module: ``python -m tfopt.run``. The containers' command; see `tfopt.cli.main`."""

import sys

from tfopt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

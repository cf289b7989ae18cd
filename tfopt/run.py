"""Entry point of ``python -m tfopt.run``, the command of containers; see `tfopt.cli.main`."""

import sys

from tfopt.cli.main import supervised_main

if __name__ == "__main__":
    sys.exit(supervised_main())

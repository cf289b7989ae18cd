"""Entry point of ``python -m tfopt.run``, the command of containers; see `tfopt.cli.main`."""

import sys

from tfopt.cli.main import main, supervised_main

__all__ = ["main"]  # importable from here in older releases

if __name__ == "__main__":
    sys.exit(supervised_main())

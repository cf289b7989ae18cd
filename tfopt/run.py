"""Entry point of the command ``tfopt`` and of ``python -m tfopt.run``, that of containers; see `tfopt.cli.main`."""

import sys
from collections.abc import Sequence

from tfopt.cli.termination import interrupted_silently


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: `tfopt.cli.main.main`, importable from here in older releases."""
    from tfopt.cli.main import main  # takes a second

    return main(arguments)


def command() -> int:
    """Run the command of this process; Ctrl-C during the imports, which take a second, ends it without a traceback."""
    with interrupted_silently():
        from tfopt.cli.main import supervised_main  # takes a second

        return supervised_main()


if __name__ == "__main__":
    sys.exit(command())

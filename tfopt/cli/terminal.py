"""Distinguish terminals, which get colors and a progress bar, from files and pipes, which get plain lines."""

import os
from typing import IO

from rich.console import Console

WIDTH = 100  # of tables in a file or a pipe, which has no width of its own


def is_interactive(stream: IO[str]) -> bool:
    """Return True for a terminal, unless the user or CI wants plain lines."""
    if os.environ.get("NO_COLOR") or os.environ.get("CI") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def output_console() -> Console:
    """Return a console for tables on the standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console

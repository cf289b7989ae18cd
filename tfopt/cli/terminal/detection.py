"""Distinguish terminals, which get colors and a progress bar, from files and pipes, which get plain lines."""

import os
import re
import sys
from typing import IO

from tfopt.cli.terminal import json_log


def is_interactive(stream: IO[str]) -> bool:
    """Return True for a terminal, unless the user or CI wants plain lines."""
    if os.environ.get("NO_COLOR") or os.environ.get("CI") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def print_error(text: str) -> None:
    """Print an error on the standard error; a terminal shows what it is about in color."""
    if json_log.is_json():
        json_log.write_error(text)
        return
    if not is_interactive(sys.stderr):
        print(text, file=sys.stderr)
        return
    bold, red, plain = "\x1b[1m", "\x1b[1;31m", "\x1b[0m"
    text = re.sub(r"^(received|expected|how to fix):", rf"{bold}\g<0>{plain}", text, flags=re.MULTILINE)
    print(re.sub(r"^tfopt: error$", f"{red}\\g<0>{plain}", text, flags=re.MULTILINE), file=sys.stderr)


def remove_progress_bar() -> None:
    """Remove the progress bar that a killed process left in the last line, and show the cursor again."""
    if is_interactive(sys.stderr) and not json_log.is_json():
        print("\r\x1b[2K\x1b[?25h", end="", file=sys.stderr, flush=True)

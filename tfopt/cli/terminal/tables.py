"""Print tables on the standard output, with colors if it is a terminal."""

from rich.console import Console
from rich.table import Table

WIDTH = 100  # of tables in a file or a pipe, which has no width of its own


class OutputConsole(Console):
    """The standard output. A reader that has ended, such as ``head``, is an error for the command to handle."""

    def __init__(self) -> None:
        """Set the width of a file or pipe."""
        super().__init__(highlight=False)
        if not self.is_terminal:
            self.width = WIDTH

    def on_broken_pipe(self) -> None:
        """Raise the error again, instead of ending the process as rich does."""
        raise  # called by rich where it handles BrokenPipeError


def plain_table() -> Table:
    """Return a table without lines."""
    return Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)

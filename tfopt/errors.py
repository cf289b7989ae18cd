"""The one exception a user of tfopt meets, always in three parts."""

import difflib
from collections.abc import Iterable


class ComponentError(Exception):
    """A component refused its input or failed: what was received, what was expected, how to fix it.

    >>> print(ComponentError("sparsity=1.7", "a number from 0 to 1", "pass sparsity=0.5"))
    received: sparsity=1.7
    expected: a number from 0 to 1
    how to fix: pass sparsity=0.5
    """

    def __init__(self, received: str, expected: str, fix: str) -> None:
        """Keep the three parts apart, so that machines can read them too."""
        super().__init__(received, expected, fix)
        self.received, self.expected, self.fix = received, expected, fix

    def __str__(self) -> str:
        """The three parts, a line each."""
        return f"received: {self.received}\nexpected: {self.expected}\nhow to fix: {self.fix}"


def first_line(error: BaseException) -> str:
    r"""The first line of what an exception says; its type where it says nothing.

    >>> first_line(ValueError("no such op\n  at node 3")), first_line(KeyError())
    ('no such op', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def nearest(name: str, known: Iterable[str]) -> str:
    """Name the known words closest to a mistyped one, for the third part of an error.

    >>> nearest("imagee", ["image", "label"])
    'did you mean image?'
    >>> nearest("zzz", ["image", "label"])
    'known: image, label'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names) or 'none'}"

"""The one exception a user of tfopt meets, always in three parts."""

import difflib
import errno
import os
import shutil
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


class MachineError(ComponentError):
    """The machine lacks something, and with it the same would work: it says nothing about the model."""


def lacking(error: BaseException) -> MachineError | None:
    """What the machine lacks, room on a disk, memory or a package, in three parts; None where the error is another.

    >>> lacking(ModuleNotFoundError("No module named 'tf2onnx'")).received, lacking(ValueError("no such op"))
    ("No module named 'tf2onnx'", None)
    """
    if isinstance(error, MachineError):
        return error
    if isinstance(error, ModuleNotFoundError):
        fix = "install it; tfopt's extras, as in tfopt[onnx], and its images have what each component needs"
        return MachineError(first_line(error), "the package", fix)
    if isinstance(error, MemoryError):
        return MachineError(first_line(error), "more memory", "run it on a machine, or in a pod, with more of it")
    return no_room(error)


def no_room(error: BaseException) -> MachineError | None:
    """A full disk in three parts, whichever library met it; None where the error is another.

    >>> no_room(RuntimeError("write failed: No space left on device")).expected, no_room(ValueError("no such op"))
    ('room for the outputs', None)
    """
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if not full and os.strerror(errno.ENOSPC) not in str(error):  # TensorFlow and others say it in words only
        return None
    if isinstance(error, shutil.Error):  # of a whole tree: a list with what each of its files met
        error = OSError(error.args[0][0][-1])
    said = error.received if isinstance(error, ComponentError) else first_line(error)
    return MachineError(said, "room for the outputs", "free some disk space, or write elsewhere")


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

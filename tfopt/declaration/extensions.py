"""Implementations by name: tfopt's own, and those that other installed packages declare as entry points."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Extensions(Mapping[str, T]):
    """The implementations in a group of entry points (`importlib.metadata`) by name; each is imported when it is used.

    tfopt's own precede those of other packages. They are dotted names (MODULE.ATTRIBUTE) in a table, not entry points
    of tfopt: an editable installation has the entry points of the day it was made, and the digest of a component's code
    follows dotted names.
    """

    def __init__(self, group: str, kind: type[T], own: Mapping[str, str]) -> None:
        """Declare a group with its name, the type of the implementations, and tfopt's own."""
        self._group, self._kind, self._own = group, kind, own

    def __getitem__(self, name: str) -> T:
        """Import an implementation.

        Raises:
            KeyError: If there is none with this name.
            ComponentError: If that of another package cannot be imported, or is of another type.
        """
        point = self._points()[name]
        try:
            value: object = point.load()
            fault = f"is a {type(value).__name__}"
        except Exception as error:  # of the code of another package
            value, fault = None, f"cannot be imported: {first_line(error)}"
        if isinstance(value, self._kind):
            return value
        package = point.dist.name if point.dist else "tfopt"
        received = f"{name} of the package {package} ({point.value}) {fault}"
        expected = f"a {self._kind.__module__}.{self._kind.__qualname__}, as entry point of {self._group}"
        raise ComponentError(received, expected, f"install another version of {package}, or uninstall it")

    def __contains__(self, name: object) -> bool:
        """Return True if there is an implementation with this name, without importing it."""
        return name in self._points()

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._points())

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self._points())

    def _points(self) -> "dict[str, EntryPoint]":
        from importlib.metadata import EntryPoint, entry_points  # takes 50 ms

        own = {name: EntryPoint(name, ":".join(text.rsplit(".", 1)), self._group) for name, text in self._own.items()}
        return {point.name: point for point in entry_points(group=self._group)} | own

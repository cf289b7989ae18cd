"""Numbering of classes by their names: in the order of the setting ``classes``, or sorted."""

from collections.abc import Collection, Sequence

from tfopt.errors import ComponentError


def number_classes(names: Collection[str], declared: Sequence[str], label: str) -> tuple[str, ...]:
    """Return the class names by their number: the declared ones, or else those of the data, sorted.

    Raises:
        ComponentError: If a declared name occurs twice, or without a declaration two names of the data differ only in
            case or spaces, such as ``yes`` and ``Yes ``.
    """
    if declared:
        if len(set(declared)) < len(declared):
            raise ComponentError(f"classes={list(declared)}", "different names", "name each class once")
        return tuple(declared)
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(" ".join(name.split()).casefold(), []).append(name)
    alike = [group for group in groups.values() if len(group) > 1]
    if alike:
        shown = "; ".join(" and ".join(map(repr, group)) for group in alike[:5])
        raise ComponentError(
            f"label {label!r}: {sum(map(len, alike))} of {len(names)} classes differ from another one only in "
            f"case or spaces: {shown}",
            "one spelling for each class",
            f"correct the data or, if they are different classes, name all with classes={sorted(names)[:20]}",
        )
    return tuple(sorted(names))


def check_folders(folders: Collection[str], declared: Sequence[str]) -> None:
    """Raise ComponentError if there is a folder of images whose name is not among the declared classes."""
    unknown = sorted(set(folders) - set(declared)) if declared else []
    if unknown:
        raise ComponentError(
            f"class folder {', '.join(unknown)}",
            f"the declared classes {', '.join(declared)}",
            "add it to classes, or remove the folder",
        )

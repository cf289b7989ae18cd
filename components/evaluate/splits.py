"""Which split the models are judged on, and whether training has looked at it."""

from collections.abc import Sequence

from tfopt.artifacts import Examples, Model
from tfopt.artifacts.lineage import history
from tfopt.artifacts.storage import files_at, is_remote
from tfopt.errors import ComponentError

AUTO, UNSEEN, LOOKED_AT = "auto", "test", "eval"
LEARNING = ("train", "prune", "cluster", "quantize")  # steps that keep the epoch that is best on LOOKED_AT


def judged_split(examples: Examples, wanted: str) -> str:
    """The split that was asked for; with ``auto`` the one that no training looks at, where there is one."""
    if wanted != AUTO:
        return wanted
    return UNSEEN if _files(examples, UNSEEN) else LOOKED_AT


def split_files(examples: Examples, split: str) -> list[str]:
    """The record files of a split, here or at an address.

    Raises:
        ComponentError: When there are none.
    """
    found = _files(examples, split)
    if found:
        return found
    if not is_remote(examples.uri):
        examples.split(split)  # says which splits there are
    place = f"{examples.uri.rstrip('/')}/Split-{split}/"
    raise ComponentError(f"{place}: no files", Examples.contents, "name another split, or check the address")


def chosen_on_it(models: Sequence[Model], names: Sequence[str], split: str) -> list[str]:
    """The names of the models whose best epoch was chosen on this split, by their cards: it flatters them a little."""
    if split != LOOKED_AT:
        return []
    return [
        name
        for name, model in zip(names, models, strict=True)
        if any(step["component"] in LEARNING for step in history(model))
    ]


def _files(examples: Examples, split: str) -> list[str]:
    if not is_remote(examples.uri):
        return [str(file) for file in examples.splits.get(split, [])]
    start = f"{examples.uri.rstrip('/')}/Split-{split}/"
    return [file for file in files_at(examples.uri) if file.startswith(start)]

"""The evaluated split, and the models whose training used it to choose their best epoch."""

from collections.abc import Sequence

from tfopt.artifacts import Examples, Model
from tfopt.declaration.step_order import applied_steps, find_declaration
from tfopt.errors import ComponentError
from tfopt.storage.remote_files import is_remote, list_remote_files

AUTO, UNSEEN, SEEN = "auto", "test", "eval"
TRAINING_SPLIT = "train"
TRAINING = ("training", "fine_tuning")  # purposes of components that keep the epoch that is best on SEEN


def choose_split(examples: Examples, split: str) -> str:
    """Return the requested split; for ``auto`` the one that no training uses, if there is one."""
    if split != AUTO:
        return split
    return UNSEEN if find_files(examples, UNSEEN) else SEEN


def split_files(examples: Examples, split: str) -> list[str]:
    """Return the record files of a split, local paths or remote addresses.

    Raises:
        ComponentError: If there are none.
    """
    if files := find_files(examples, split):
        return files
    if not is_remote(examples.uri):
        examples.split(split)  # raises an error that lists the splits
    address = f"{examples.uri.rstrip('/')}/Split-{split}/"
    raise ComponentError(f"{address}: no files", Examples.contents, "name another split, or check the address")


def models_tuned_on(models: Sequence[Model], names: Sequence[str], split: str) -> list[str]:
    """Return the names of the models whose best epoch was chosen on this split, according to their model cards."""
    if split != SEEN:
        return []
    return [
        name
        for name, model in zip(names, models, strict=True)
        if any((one := find_declaration(step)) and one.purpose in TRAINING for step in applied_steps(model))
    ]


def find_files(examples: Examples, split: str) -> list[str]:
    """Return the record files of a split; none if there is no such split."""
    if not is_remote(examples.uri):
        return [str(file) for file in examples.splits.get(split, [])]
    prefix = f"{examples.uri.rstrip('/')}/Split-{split}/"
    return [file for file in list_remote_files(examples.uri) if file.startswith(prefix)]

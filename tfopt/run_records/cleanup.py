"""Find and remove what the runs of a folder wrote: results that newer executions replace, or all of it.

Only what a record of the folder names is removed: a record of the engine without TFX, or TFX's metadata. Links are not
followed, and records of other users count for nothing.
"""

import glob
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tfopt.process_engine.result_cache import KEY, find_old_records, find_unfinished, output_paths
from tfopt.run_records.metadata_cleanup import find_old_executions, remove_old_executions
from tfopt.run_records.run_record import freed_bytes
from tfopt.storage.folder_lock import lock_if_free
from tfopt.storage.owned_files import is_below, is_own, remove_below
from tfopt.storage.run_folder import METADATA, RECORD, SOURCES, remove_leftovers

JOURNALS = ("-journal", "-wal", "-shm")  # which SQLite writes next to its file
LOGS = ("run.log", "run.log.1")


@dataclass(frozen=True)
class OldResults:
    """Results of earlier runs in a folder."""

    records: list[Path]  # with those of killed executions
    executions: int  # their number, without killed ones
    outputs: list[Path]  # that only these executions have, those of killed ones, and folders in which TFX executed them
    bytes: int  # what removing the outputs frees; a file with other links frees nothing
    steps: set[str] = field(default_factory=set)  # names of all steps that have a record


def find_old_results(root: Path, keep: int) -> OldResults:
    """Find the results of a run's folder that neither the last executions of their step nor later steps use.

    `keep` executions of each step remain; a run that reuses a result counts as one.

    Raises:
        ComponentError: If the metadata store cannot be read.
    """
    root = root.absolute()
    records, remaining = find_old_records(root, keep)
    unfinished = find_unfinished(root)
    steps = {record.parent.name for record in (*records, *remaining, *unfinished)}
    used = {_place(path) for record in remaining for path in output_paths(root, record)}
    named = {path for record in (*records, *unfinished) for path in output_paths(root, record)}
    executions = len(records)
    if is_own(root / METADATA):
        stored = find_old_executions(root / METADATA, keep)
        steps |= set(stored.steps.values())
        executions += len(stored.ids)
        used |= {_place(Path(uri)) for uri in stored.used}
        uris = (Path(uri) for uri in stored.replaced)
        named |= {root.joinpath(*uri.parts[-4:]) for uri in uris if uri.parts[-4:-3] == ("artifacts",)}
        for number, step in stored.steps.items():  # a killed execution is in the store, its outputs are not
            paths = root.glob(f"artifacts/{glob.escape(step)}/*/{number}")
            named |= {path for path in paths if not path.parent.name.startswith(".")}
        for number in stored.ids:
            named |= set(root.glob(f"artifacts/{glob.escape(stored.steps[number])}/.system/*/{number}"))
    outputs = sorted(path for path in named if _place(path) not in used and is_below(root, path))
    return OldResults([*records, *unfinished], executions, outputs, freed_bytes(outputs), steps)


def remove_old_results(root: Path, keep: int) -> bool:
    """Remove what `find_old_results` finds; return False, and remove nothing, if a run is active there.

    Records are removed after outputs, so that after a kill the next call finds the rest by them. A result without its
    outputs is not reused.
    """
    with lock_if_free(root) as is_idle:
        if is_idle:
            _remove_results(root.absolute(), keep)
    return is_idle


def find_run_files(root: Path) -> list[Path]:
    """Find all that the runs of a folder wrote: results, metadata, logs, models and data, and last the record."""
    root = root.absolute()
    old = find_old_results(root, 0)
    sources = [path for path in root.glob(f"{SOURCES}/*") if KEY.fullmatch(path.name)]
    files = [root / name for name in (METADATA, *(METADATA + suffix for suffix in JOURNALS), *LOGS, RECORD)]
    return [*old.outputs, *old.records, *(path for path in (*sources, *files) if is_own(path) and is_below(root, path))]


def remove_run(root: Path) -> bool:
    """Remove what `find_run_files` finds, and the folders that are then empty.

    Returns:
        False if another process has started a run there, which prevents the removal.
    """
    root = root.absolute()
    with lock_if_free(root) as is_idle:
        if not is_idle:
            return False
        remove_leftovers(root)
        files = find_run_files(root)
        steps = _remove_results(root, 0).steps
        for path in files:
            remove_below(root, path)
        outputs = [root / "artifacts" / step for step in sorted(steps)]
        names = [path for output in outputs for pattern in (".system/*", "*") for path in output.glob(pattern)]
        names += [*outputs, *(root / "executions" / step for step in steps)]
        _remove_empty(path for path in names if is_below(root, path))
        _remove_empty((root / "artifacts", root / "executions", root / SOURCES, root))
    return True


def _remove_results(root: Path, keep: int) -> OldResults:
    old = find_old_results(root, keep)
    for path in old.outputs:
        remove_below(root, path)
    if is_own(root / METADATA):
        remove_old_executions(root / METADATA, keep)
    for record in old.records:
        remove_below(root, record)
    return old


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that are empty; links remain."""
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


def _place(output: Path) -> tuple[str, ...]:
    """Return step, output and name: TFX stores whole paths, and a folder may have been moved."""
    return output.parts[-3:]

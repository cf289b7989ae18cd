"""The folder of a run of a DAG: one run at a time in it, and what killed runs left there."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tfopt.storage import publication, staging
from tfopt.storage.folder_lock import lock_folder
from tfopt.storage.owned_files import is_below

RECORD = "run.json"  # of the command
METADATA = "metadata.sqlite"  # of TFX
OUTBOX = "notifications/outbox.json"  # notifications, with those that did not arrive yet
SOURCES = "sources"  # models and data that `tfopt.optimize` saved


@contextlib.contextmanager
def locked_run(root: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, which is created, and remove what killed runs did not complete there.

    Artifacts are in ``artifacts/STEP/OUTPUT/NAME``, the records of the engine without TFX in ``executions/STEP``.
    """
    root.mkdir(parents=True, exist_ok=True)
    with lock_folder(root, "another run uses %s: waiting for its end"):
        remove_leftovers(root)
        yield


def remove_leftovers(root: Path) -> None:
    """Remove what killed runs did not complete in a run's folder, whose lock is held; links are not followed."""
    staging.remove_abandoned(root)  # a record of the run that was not complete
    for folder in (*root.glob("artifacts/*/*/"), *root.glob("executions/*/")):
        if is_below(root, folder) and not folder.is_symlink():
            publication.remove_interrupted(folder / "*")
            staging.remove_abandoned(folder, "*")
            staging.remove_abandoned(folder)

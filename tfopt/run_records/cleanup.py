"""Find and remove, in the folder of a run, the results of steps that newer executions replace."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tfopt.process_engine.result_cache import find_old_records, output_paths
from tfopt.run_records.metadata_cleanup import find_old_executions, remove_old_executions
from tfopt.run_records.run_record import freed_bytes, locked_if_idle
from tfopt.storage.run_folder import METADATA


@dataclass(frozen=True)
class OldResults:
    """Results of earlier runs in a folder.

    Attributes:
        outputs: Outputs that only these executions have, those that no execution has (of killed runs), and the folders
            in which TFX executed them.
        bytes: What removing the outputs frees; a file with other links frees nothing.
    """

    records: list[Path]
    executions: int
    outputs: list[Path]
    bytes: int


def find_old_results(root: Path, keep: int) -> OldResults:
    """Find the results of a run's folder that neither the last executions of their step nor later steps use.

    `keep` executions of each step remain; a run that reuses a result counts as one.

    Raises:
        ComponentError: If the metadata store cannot be read.
    """
    records, remaining = find_old_records(root, keep)
    used = {_place(path) for record in remaining for path in output_paths(root, record)}
    executions, outputs = len(records), []
    if (root / METADATA).is_file():
        stored = find_old_executions(root / METADATA, keep)
        used |= {_place(Path(uri)) for uri in stored.used}
        executions += len(stored.ids)
        folders = root.absolute().glob("artifacts/*/.system/*/*")
        outputs += [path for path in folders if path.name.isdecimal() and int(path.name) not in stored.remaining]
    paths = (path for path in root.absolute().glob("artifacts/*/*/*") if not _is_hidden(path))
    outputs += [path for path in paths if _place(path) not in used]
    return OldResults(records, executions, outputs, freed_bytes(outputs))


def remove_old_results(root: Path, keep: int) -> bool:
    """Remove what `find_old_results` finds; return False, and remove nothing, if a run is active there.

    Records are removed before outputs, so after a kill each record still has its outputs, and the next call goes on.
    """
    with locked_if_idle(root) as is_idle:
        if not is_idle:
            return False
        old = find_old_results(root, keep)
        for record in old.records:
            record.unlink()
        if (root / METADATA).is_file():
            remove_old_executions(root / METADATA, keep)
        for path in old.outputs:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return True


def _place(output: Path) -> tuple[str, ...]:
    """Return step, output and name: TFX stores whole paths, and a folder may have been moved."""
    return output.parts[-3:]


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.parent.name.startswith(".")

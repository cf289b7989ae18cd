"""What XLA compiled, as files that TensorFlow reads in place of compiling: ``assets.extra/xla_cache``.

TensorFlow writes and reads them by itself, one file for each program and input shape, where ``TF_XLA_FLAGS`` names a
folder. A file is found by a fingerprint of the program and of its shapes, whatever path the model lies at. It holds
machine code with the weights inside, for the processor that it was compiled on.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfopt.artifacts import SavedModel
from tfopt.components.compile_xla import timing as measuring
from tfopt.data.batches import Batch
from tfopt.processes.subprocess_call import run_in_child

FOLDER = Path("assets.extra", "xla_cache")
_READ_ONLY = "--tf_xla_persistent_cache_read_only"


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of processes that keep what XLA compiles in a folder, which must be there, until the block ends.

    TensorFlow takes a space for the end of a flag, so the folder goes by another name meanwhile.
    """
    with tempfile.TemporaryDirectory(prefix="tfopt-") as scratch:
        link = Path(scratch, "cache")
        link.symlink_to(folder.resolve())
        yield {"TF_XLA_FLAGS": f"{os.environ.get('TF_XLA_FLAGS', '')} {_flag(link)}".strip()}


def read_back(target: Path, batches: dict[int, Batch]) -> dict[str, Any]:
    """Load a model with the cache that lies in it.

    Returns:
        How many programs there are, their bytes, the flags that make a process read them, the processor they are for,
        and the times of `measuring.measure` in a fresh process that does.
    """
    folder = target / "Format-Serving" / FOLDER
    with writing(folder) as environment:
        environment["TF_XLA_FLAGS"] += f" {_READ_ONLY}"
        (times,) = run_in_child(
            *(measuring.measure, [SavedModel(target)], batches),
            doing="running the compiled model from its cache",
            environment=environment,
        )
    del times["marked"]
    files = list(folder.iterdir())
    return {
        "programs": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "TF_XLA_FLAGS": f"{_flag(Path('PATH_OF_THE_MODEL') / FOLDER)} {_READ_ONLY}",
        "processor": _processor(),
        "from_cache": times,
    }


def _flag(folder: Path) -> str:
    return f"--tf_xla_persistent_cache_directory={folder}"


def _processor() -> str:
    """As Linux names it; two with one name have the same instructions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")

"""Model inputs: records from examples by input name, or random arrays that fit the signature."""

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import read_batches, resize_batch
from tfopt.data.sample_inputs import OPEN_SIZE, random_batch
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.compute.device_memory import hide_gpus
from tfopt.value_types import JsonObject


class Inputs:
    """Input files, one for each distinct signature, all with the same number of records."""

    def __init__(self, examples: Sequence[Path], *, records: int, seed: int, folder: Path) -> None:
        """Use records of the example files, or random records if there are no files."""
        self._examples, self._records, self._seed, self._folder = examples, records, seed, folder

    def file(self, specs: Mapping[str, TensorSpec]) -> Path:
        """Write an array of records for each input, once for equal signatures, and return the file.

        Raises:
            ComponentError: If the examples do not fit, or the inputs cannot be random.
        """
        key = ",".join(
            f"{name}:{spec.dtype}{spec.shape[1:] or spec.shape}{[*getattr(spec, 'features', ())] or ''}"
            for name, spec in sorted(specs.items())
        )
        file = self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.pickle"
        if not file.exists():
            batched = {name: spec for name, spec in specs.items() if spec.shape}  # records do not contain scalar inputs
            arrays = self._read(batched) if self._examples else {}
            rest = {name: spec for name, spec in specs.items() if name not in arrays}
            file.write_bytes(pickle.dumps(arrays | random_batch(rest, records=self._records, seed=self._seed)))
        return file

    def _read(self, specs: Mapping[str, TensorSpec]) -> dict[str, NDArray[Any]]:
        """Read records in a child process: TensorFlow in this one would use the GPU until the measurement ends."""
        call = (read_records, [*self._examples], dict(specs), self._records)
        return run_in_child(*call, doing="reading the examples")

    def facts(self) -> JsonObject:
        """Return the source of the inputs for the report."""
        if self._examples:
            return {"source": "examples", "records": self._records}
        return {"source": "random", "records": self._records, "seed": self._seed, "open_dimensions": OPEN_SIZE}


def read_records(files: Sequence[Path], specs: Mapping[str, TensorSpec], records: int) -> dict[str, NDArray[Any]]:
    """Return the first records of the files, repeated if there are too few; the process sees no GPU afterwards."""
    hide_gpus()
    return resize_batch(next(iter(read_batches(files, specs, batch_size=records))), records)

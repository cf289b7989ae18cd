"""What the models are called with: real records by input name, or random ones that fit the signature."""

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import read_batches
from tfopt.data.sample_inputs import OPEN_SIZE, random_batch


class Inputs:
    """Files of inputs, one for each signature that occurs, all with the same number of records."""

    def __init__(self, examples: Sequence[Path], *, records: int, seed: int, folder: Path) -> None:
        """Take real records from these files, random ones where there are none."""
        self._examples, self._records, self._seed, self._folder = examples, records, seed, folder

    def file(self, specs: Mapping[str, TensorSpec]) -> Path:
        """Write an array of records for each input, once for equal signatures.

        Raises:
            ComponentError: When the examples do not fit, or only examples would do.
        """
        words = ",".join(f"{name}:{spec.dtype}{spec.shape[1:] or spec.shape}" for name, spec in sorted(specs.items()))
        file = self._folder / f"{hashlib.sha256(words.encode()).hexdigest()}.pickle"
        if not file.exists():
            batched = {name: spec for name, spec in specs.items() if spec.shape}  # no record holds a scalar switch
            arrays = read_records(self._examples, batched, self._records) if self._examples else {}
            rest = {name: spec for name, spec in specs.items() if name not in arrays}
            file.write_bytes(pickle.dumps(arrays | random_batch(rest, records=self._records, seed=self._seed)))
        return file

    def facts(self) -> dict[str, Any]:
        """What a reader of the numbers should know."""
        if self._examples:
            return {"source": "examples", "records": self._records}
        return {"source": "random", "records": self._records, "seed": self._seed, "open_dimensions": OPEN_SIZE}


def read_records(files: Sequence[Path], specs: Mapping[str, TensorSpec], records: int) -> dict[str, NDArray[Any]]:
    """Return the first records of some files; they start again where there are too few."""
    batch = next(iter(read_batches(files, specs, batch_size=records)))
    return {name: array[np.arange(records) % len(array)] for name, array in batch.items()}

"""What the models are called with: real records by input name, or random ones that fit the signature."""

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.errors import ComponentError
from tfopt.runtimes import TensorSpec

OPEN_SIZE = 64  # of a dimension which the signature leaves open, in random inputs


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
            file.write_bytes(pickle.dumps(arrays | random_records(rest, self._records, self._seed)))
        return file

    def facts(self) -> dict[str, Any]:
        """What a reader of the numbers should know."""
        if self._examples:
            return {"source": "examples", "records": self._records}
        return {"source": "random", "records": self._records, "seed": self._seed, "open_dimensions": OPEN_SIZE}


def read_records(files: Sequence[Path], specs: Mapping[str, TensorSpec], records: int) -> dict[str, NDArray[Any]]:
    """Return the first records of some files; they start again where there are too few."""
    from tfopt.examples import read_batches

    batch = next(iter(read_batches(files, specs, batch_size=records)))
    return {name: array[np.arange(records) % len(array)] for name, array in batch.items()}


def random_records(specs: Mapping[str, TensorSpec], records: int, seed: int) -> dict[str, NDArray[Any]]:
    """Return random records: an input of some name and type is the same for every model.

    Raises:
        ComponentError: When an input takes strings or another type without sensible random values.
    """
    return {
        name: _random(name, spec, (records, *(OPEN_SIZE if size is None else size for size in spec.shape[1:])), seed)
        for name, spec in specs.items()
    }


def _random(name: str, spec: TensorSpec, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    generator = np.random.default_rng([seed, *name.encode()])
    shape = shape if spec.shape else ()
    if spec.dtype in ("float16", "float32", "float64"):
        return np.asarray(generator.random(shape), spec.dtype)
    if spec.dtype in ("int8", "uint8"):  # pixels, or quantized values
        limits = np.iinfo(spec.dtype)
        return np.asarray(generator.integers(limits.min, limits.max, shape, endpoint=True), spec.dtype)
    if spec.dtype == "bool" or "int" in spec.dtype:  # a 0 or 1 is in every vocabulary, mask and choice
        return np.asarray(generator.integers(0, 1, shape, endpoint=True), spec.dtype)
    raise ComponentError(
        f"input {name!r} takes {spec.dtype}, and there are no examples",
        "records with such values",
        "pass examples=PATH, with a feature of that name",
    )

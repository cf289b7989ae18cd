"""What a file is calibrated on and compared with its parent on: sampled examples, or random numbers."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Examples
from tfopt.components.export_tflite.request import Request
from tfopt.errors import ComponentError
from tfopt.examples import Batch, parse_records, sample_records
from tfopt.runtimes import TensorSpec

Specs = Mapping[str, TensorSpec]
CHECKED = 256  # records to compare on: enough to see a broken model, few enough to take seconds
RANDOM = 36
UNKNOWN_SIZE = 32  # for a free size other than the batch


def calibration(examples: Examples, specs: Specs, request: Request) -> tuple[Batch, dict[str, Any]]:
    """Return the inputs to calibrate on, and what the model card says of them.

    Raises:
        ComponentError: When the split has fewer than two examples, or not the model's inputs.
    """
    where = f"split {request.split!r}"
    records = sample_records(examples.split(request.split), count=request.calibration_count, seed=request.seed)
    if len(records) < 2:
        raise ComponentError(
            f"{where}: {len(records)} examples",
            "at least 2 to calibrate on, and 100 to do it well",
            "name a larger split, or prepare more examples",
        )
    facts = {
        "requested": request.calibration_count,
        "used": len(records),
        "split": request.split,
        "seed": request.seed,
        "digest": hashlib.sha256(b"".join(hashlib.sha256(record).digest() for record in records)).hexdigest(),
    }
    if len(records) < request.calibration_count:
        facts["note"] = f"the split has only {len(records)} examples"
    return parse_records(records, specs, where=where), facts


def comparison(examples: Examples | None, specs: Specs, request: Request) -> tuple[Batch, str]:
    """Return the inputs to compare on, and where they come from; not the split calibrated on, if there is another."""
    if examples is None:
        return _random(specs, request.seed), "random inputs"
    split = next((name for name in examples.splits if name != request.split), request.split)
    where = f"split {split!r}"
    records = sample_records(examples.split(split), count=CHECKED, seed=request.seed)
    if not records:
        raise ComponentError(f"{where}: no examples", "at least one to compare on", "prepare the examples again")
    return parse_records(records, specs, where=where), f"examples, {where}"


def cut(inputs: Batch, specs: Specs, *sizes: int) -> Iterator[Batch]:
    """Cut into batches of these sizes, the last one again and again; or all of the model's size when that is fixed."""
    fixed, total, start = _fixed_batch(specs), len(next(iter(inputs.values()))), 0
    for size in iter([*sizes, *[sizes[-1]] * total]):
        end = start + (fixed or size)
        if start >= total or (fixed and end > total):
            return
        yield {name: array[start:end] for name, array in inputs.items()}
        start = end


def _random(specs: Specs, seed: int) -> Batch:
    """Numbers from 0 to 1 for floats, zeros and ones for integers: a range that every model takes."""
    draw = np.random.default_rng(seed)

    def one(name: str, spec: TensorSpec) -> NDArray[Any]:
        shape = [_fixed_batch(specs) or RANDOM, *(size or UNKNOWN_SIZE for size in spec.shape[1:])]
        if spec.dtype == "string":
            raise ComponentError(f"input {name!r} is text", "examples with real texts", "pass examples=PATH")
        values = draw.random(shape) if "float" in spec.dtype else draw.integers(0, 2, shape)
        return values.astype(spec.dtype)

    return {name: one(name, spec) for name, spec in specs.items()}


def _fixed_batch(specs: Specs) -> int | None:
    return next((spec.shape[0] for spec in specs.values() if spec.shape and spec.shape[0]), None)

"""What a file is calibrated on: examples drawn from a split, and what the model card says of them."""

import hashlib
from collections.abc import Mapping
from typing import Any

from tfopt.artifacts import Examples
from tfopt.components.export_tflite.request import Request
from tfopt.errors import ComponentError
from tfopt.examples import Batch, parse_records, sample_records
from tfopt.runtimes import TensorSpec


def sample(examples: Examples, specs: Mapping[str, TensorSpec], request: Request) -> tuple[Batch, dict[str, Any]]:
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

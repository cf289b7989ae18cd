"""Comparison of a served model with the model itself: signature and outputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.runtimes import Runtime

Outputs = Mapping[str, NDArray[Any]]


def compare_signatures(
    expected: Runtime, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> list[str]:
    """Return the differences between the signature of the model and the loaded one, one line each."""
    differences = []
    for side, ours, theirs in (("input", expected.inputs, inputs), ("output", expected.outputs, outputs)):
        if set(ours) != set(theirs):
            differences.append(f"{side}s {', '.join(sorted(theirs))} are served, not {', '.join(sorted(ours))}")
            continue
        differences += [
            f"{side} {name!r} is served as {theirs[name]}, not {spec}"
            for name, spec in ours.items()
            if not are_compatible(spec, theirs[name])
        ]
    return differences


def compare_outputs(
    expected: Outputs, served: Outputs, specs: Mapping[str, TensorSpec], tolerance: float
) -> tuple[list[str], float]:
    """Return the faults of a response, one line for each output, and the largest difference.

    The difference is a fraction of the output's range (at least of its largest absolute value).
    """
    faults, largest = [], 0.0
    for name, array in expected.items():
        if name not in served:
            faults.append(f"output {name!r} is not in the response")
            continue
        fault, error = _compare(array, np.asarray(served[name]), specs[name], tolerance)
        largest = max(largest, error)
        if fault:
            faults.append(f"output {name!r}: {fault}")
    return faults, largest


def _compare(expected: NDArray[Any], served: NDArray[Any], spec: TensorSpec, tolerance: float) -> tuple[str, float]:
    dtype = "string" if served.dtype.kind in "OSU" else served.dtype.name
    if dtype != spec.dtype:
        return f"{dtype}, not {spec.dtype}", 0.0
    if not are_compatible(spec, TensorSpec(dtype, served.shape)):
        return f"of shape {list(served.shape)}, not {spec}", 0.0
    if served.shape != expected.shape:
        return f"of shape {list(served.shape)}, not {list(expected.shape)}", 0.0
    if dtype in ("string", "bool"):
        return ("" if np.array_equal(served, expected) else "differs from the model's own output"), 0.0
    values, reference = served.astype(np.float64), expected.astype(np.float64)
    if not np.isfinite(values).all():
        return f"NaN or infinity in {int((~np.isfinite(values)).sum())} of {values.size} values", 0.0
    if not values.size:
        return "", 0.0
    spread = max(float(np.ptp(reference)), float(np.abs(reference).max()), 1e-12)
    error = float(np.abs(values - reference).max()) / spread
    matches = error <= tolerance  # False for NaN, if the model's own output has it
    return ("" if matches else f"differs by {error:.2g} of its range from the model's own output"), error


def are_compatible(one: TensorSpec, other: TensorSpec) -> bool:
    """Return True if dtypes and sizes are the same, or a shape or size is unknown on one side."""
    if one.dtype != other.dtype:
        return False
    if not one.ranked or not other.ranked:
        return True
    return len(one.shape) == len(other.shape) and all(
        None in pair or pair[0] == pair[1] for pair in zip(one.shape, other.shape, strict=True)
    )

"""Whether a server knows the model by the right names, and answers what the model answers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.runtimes import Runtime

Answers = Mapping[str, NDArray[Any]]


def signature_faults(
    expected: Runtime, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> list[str]:
    """What differs between the signature of the model and the one that the server loaded, a line each."""
    found = []
    for side, ours, theirs in (("input", expected.inputs, inputs), ("output", expected.outputs, outputs)):
        if set(ours) != set(theirs):
            found.append(f"{side}s {', '.join(sorted(theirs))} are served, not {', '.join(sorted(ours))}")
            continue
        found += [
            f"{side} {name!r} is served as {theirs[name]}, not {spec}"
            for name, spec in ours.items()
            if not _agree(spec, theirs[name])
        ]
    return found


def differences(
    expected: Answers, given: Answers, specs: Mapping[str, TensorSpec], tolerance: float
) -> tuple[list[str], float]:
    """What is wrong with the answer to a request, a line for each output, and the largest difference.

    The difference is a fraction of the output's range (at least of its largest value, where it does not vary).
    """
    found, largest = [], 0.0
    for name, right in expected.items():
        if name not in given:
            found.append(f"output {name!r} is not in the answer")
            continue
        got = np.asarray(given[name])
        fault, error = _difference(right, got, specs[name], tolerance)
        largest = max(largest, error)
        if fault:
            found.append(f"output {name!r}: {fault}")
    return found, largest


def _difference(right: NDArray[Any], got: NDArray[Any], spec: TensorSpec, tolerance: float) -> tuple[str, float]:
    kind = "string" if got.dtype.kind in "OSU" else got.dtype.name
    if kind != spec.dtype:
        return f"{kind}, not {spec.dtype}", 0.0
    if not _fits(got.shape, spec):
        return f"of shape {list(got.shape)}, not {spec}", 0.0
    if got.shape != right.shape:
        return f"of shape {list(got.shape)}, not {list(right.shape)}", 0.0
    if kind in ("string", "bool"):
        return ("" if np.array_equal(got, right) else "another answer than the model's own"), 0.0
    wide, reference = got.astype(np.float64), right.astype(np.float64)
    if not np.isfinite(wide).all():
        return f"NaN or infinity in {int((~np.isfinite(wide)).sum())} of {wide.size} values", 0.0
    if not wide.size:
        return "", 0.0
    spread = max(float(np.ptp(reference)), float(np.abs(reference).max()), 1e-12)
    error = float(np.abs(wide - reference).max()) / spread
    small = error <= tolerance  # which NaN is not, where the model's own answer has it
    return ("" if small else f"differs by {error:.2g} of its range from the model's own answer"), error


def _agree(one: TensorSpec, other: TensorSpec) -> bool:
    """Whether two signatures can be of one tensor: a loader may know less of its shape."""
    if one.dtype != other.dtype:
        return False
    if not one.ranked or not other.ranked:
        return True
    return len(one.shape) == len(other.shape) and all(
        None in pair or pair[0] == pair[1] for pair in zip(one.shape, other.shape, strict=True)
    )


def _fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    same = len(shape) == len(spec.shape)
    return not spec.ranked or (same and all(want in (None, have) for have, want in zip(shape, spec.shape, strict=True)))

"""Whether the folded model answers as its parent does: what was written is loaded again and run beside it."""

from typing import Any

import numpy as np

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.errors import ComponentError
from tfopt.parity import Parity, compare
from tfopt.probes import cut, probe
from tfopt.runtimes import Runtime

RECORDS, BATCH = 64, 16
FLOAT32_ROUNDING = 2.0**-20  # of the largest value, where an output hardly varies: eight units in the last place


def verify(parent: Runtime, written: SavedModel, examples: Examples | None, tolerance: float) -> dict[str, Any]:
    """Run parent and child on the same inputs, and return the parity of each output and what it was measured on.

    Args:
        parent: The model as it was.
        written: The folded model; both of its forms are run, the SavedModel and the Keras file.
        examples: Real inputs; random ones when None.
        tolerance: The largest difference allowed, in units of the parent's output range.

    Raises:
        ComponentError: When an output differs by more, or the parent cannot be run.
    """
    inputs, source = probe(examples, parent.inputs, records=RECORDS)
    batches = list(cut(inputs, parent.inputs, BATCH))
    largest = _largest(parent, batches, source)
    found: dict[str, Parity] = {}
    for form in (written, SavedModel(written.keras or written.path)):
        with runtimes.load(form) as child:
            for name, parity in compare(parent, child, batches).items():
                _check(name, parity, tolerance, largest[name] * FLOAT32_ROUNDING)
                found.setdefault(name, parity)
    outputs = {name: parity.facts() for name, parity in found.items()}
    return {"inputs": source, "tolerance": tolerance, "outputs": outputs}


def _largest(parent: Runtime, batches: list[Any], source: str) -> dict[str, float]:
    """The largest absolute value of each output; the first time the parent runs, so that its own faults show here."""
    try:
        answers = [parent.run(batch) for batch in batches]
    except ComponentError:
        raise
    except Exception as error:
        raise ComponentError(
            f"the model fails on {source}: {str(error).strip().splitlines()[0]}",
            "a model that can be run here, to compare it with the folded one",
            "pass examples=PATH with real inputs; a model for another device must be folded there",
        ) from error
    return {
        name: max(float(np.abs(answer[name].astype(np.float64)).max(initial=0)) for answer in answers)
        for name, spec in parent.outputs.items()
        if "float" in spec.dtype
    } | {name: 0.0 for name, spec in parent.outputs.items() if "float" not in spec.dtype}


def _check(name: str, parity: Parity, tolerance: float, rounding: float) -> None:
    if not parity.max_abs_error <= max(tolerance * parity.output_range, rounding):
        raise ComponentError(
            f"output {name!r} of the folded model differs by {parity.relative_error:.2g} of its range",
            f"at most {tolerance:g}",
            "pass a larger tolerance if this is known to be harmless; half-precision models need one",
        )

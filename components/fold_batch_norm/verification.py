"""Whether the folded model answers as its parent does: what was written is loaded again and run beside it."""

from typing import Any

import numpy as np

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.errors import ComponentError, first_line
from tfopt.measurement.parity import Parity, compare
from tfopt.runtimes import Runtime

RECORDS, BATCH = 64, 16
LEAST_RANGE = 0.01  # of the largest value: an output that hardly varies is not measured by how little it does


def verify(
    model: SavedModel, served: Runtime, written: SavedModel, examples: Examples | None, tolerance: float
) -> dict[str, Any]:
    """Run the parent and what was written on the same inputs: what is served, and the Keras forms.

    Args:
        model: The parent.
        served: The parent, loaded.
        written: The folded model.
        examples: Real inputs; random ones when None.
        tolerance: The largest difference allowed, in units of the parent's output range.

    Returns:
        The parity of each output that is served, and what it was measured on.

    Raises:
        ComponentError: When an output differs by more, or the parent cannot be run.
    """
    inputs, source = draw_inputs(examples, served.inputs, records=RECORDS)
    batches = list(split_batches(inputs, served.inputs, BATCH))
    found = _compare(served, written, batches, source, tolerance)
    alone = model.keras in (model.path, model.saved_model)
    keras_form = served if alone or not model.keras else runtimes.load(SavedModel(model.keras))
    _compare(keras_form, SavedModel(written.keras or written.path), batches, source, tolerance)
    outputs = {name: parity.facts() for name, parity in found.items()}
    return {"inputs": source, "tolerance": tolerance, "outputs": outputs}


def _compare(
    parent: Runtime, written: SavedModel, batches: list[Batch], source: str, tolerance: float
) -> dict[str, Parity]:
    largest = _largest(parent, batches, source)
    with runtimes.load(written) as child:
        found = compare(parent, child, batches)
    for name, parity in found.items():
        if not parity.max_abs_error <= tolerance * max(parity.output_range, LEAST_RANGE * largest[name]):
            raise ComponentError(
                f"output {name!r} of the folded model differs by {parity.relative_error:.2g} of its range",
                f"at most {tolerance:g}",
                "pass a larger tolerance if that is harmless, as with half precision, or in a network so sensitive "
                "that its own rounding moves it as far",
            )
    return found


def _largest(parent: Runtime, batches: list[Batch], source: str) -> dict[str, float]:
    """The largest absolute value of each output; the parent runs here first, so that its own faults show here."""
    try:
        answers = [parent.run(batch) for batch in batches]
    except ComponentError:
        raise
    except Exception as error:
        raise ComponentError(
            f"the model fails on {source}: {first_line(error)}",
            "a model that can be run here, to compare it with the folded one",
            "pass examples=PATH with real inputs; fold a model made for another device on that device",
        ) from error
    floats = [name for name, spec in parent.outputs.items() if "float" in spec.dtype]
    largest = {name: [np.abs(answer[name].astype(np.float64)).max(initial=0) for answer in answers] for name in floats}
    return {name: float(max(largest.get(name, [0.0]))) for name in parent.outputs}

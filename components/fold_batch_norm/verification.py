"""Comparison of the saved folded model with its parent, as served and as Keras models."""

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.artifacts.model_card import Verification
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.measurement.parity import Parity, compare
from tfopt.runtimes import Runtime

RECORDS, BATCH = 64, 16


def verify(
    model: SavedModel, served: Runtime, written: SavedModel, examples: Examples | None, tolerance: float
) -> Verification:
    """Run the parent and the folded model on the same inputs: the SavedModels, and the Keras forms.

    Args:
        model: The parent.
        served: The parent, loaded.
        written: The folded model.
        examples: Real inputs; random ones if None.
        tolerance: The largest difference, as a fraction of the parent's output range.

    Returns:
        The parity of each served output, and the source of the inputs.

    Raises:
        ComponentError: If an output differs by more, or the parent cannot be run.
    """
    inputs, source = draw_inputs(examples, served.inputs, records=RECORDS)
    batches = list(split_batches(inputs, served.inputs, BATCH))
    parities = _compare(served, written, batches, source, tolerance)
    only_keras = model.keras in (model.path, model.saved_model)
    keras_form = served if only_keras or not model.keras else runtimes.load(SavedModel(model.keras))
    _compare(keras_form, SavedModel(written.keras or written.path), batches, source, tolerance)
    outputs = {name: parity.facts() for name, parity in parities.items()}
    return {"inputs": source, "tolerance": tolerance, "outputs": outputs}


def _compare(
    parent: Runtime, written: SavedModel, batches: list[Batch], source: str, tolerance: float
) -> dict[str, Parity]:
    _check_runs(parent, batches, source)
    with runtimes.load(written) as child:
        parities = compare(parent, child, batches)
    for name, parity in parities.items():
        if not parity.rewrite_error <= tolerance:
            raise ComponentError(
                f"output {name!r} of the folded model differs by {parity.relative_error:.2g} of its range",
                f"at most {tolerance:g}",
                "pass a larger tolerance if that is harmless, as with half precision, or in a network whose own "
                "rounding errors are as large",
            )
    return parities


def _check_runs(parent: Runtime, batches: list[Batch], source: str) -> None:
    """Raise ComponentError if the parent cannot be run, for which no child is blamed."""
    try:
        for batch in batches:
            parent.run(batch)
    except ComponentError:
        raise
    except Exception as error:
        raise ComponentError(
            f"the model fails on {source}: {first_line(error)}",
            "a model that runs on this machine, for the comparison with the folded one",
            "pass examples=PATH with real inputs; fold a model made for another device on that device",
        ) from error

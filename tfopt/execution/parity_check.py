"""Compare a model that a component made with the model it was made from: names, dtypes, shapes and outputs."""

from collections.abc import Mapping
from typing import Any

from tfopt.artifacts import CARD, Examples, Model
from tfopt.artifacts.model_card import Verification
from tfopt.declaration.component import Component
from tfopt.errors import ComponentError
from tfopt.keras_models.model_code import is_trusted
from tfopt.processes.isolation import Limits, limited_children
from tfopt.processes.subprocess_call import run_isolated

VERIFIED = "verified"  # in the metadata, and so in the model card: inputs and the parity of each output


def check_parity(component: Component, model: Model, inputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """Compare a model output with the component's first input, and record the result in the output's metadata.

    Skipped if the first input is not a model, if the component copied a whole model artifact, and if it put
    ``verified`` into the metadata itself, as exporters do, which compare on inputs they did not calibrate on.

    The tolerance of the component is the largest difference as a fraction of the output's range, larger if the parent
    computes in 16 bits; None if outputs may differ. A parameter named ``tolerance`` overrides it. Without examples, the
    inputs are random numbers.

    Raises:
        ComponentError: If names, dtypes or shapes differ, outputs are NaN or constant, or differ by more than that.
    """
    parent = next(iter(inputs.values()), None)
    if not isinstance(parent, Model) or VERIFIED in model.metadata or (model.path / CARD).exists():
        return
    examples = next((value for value in inputs.values() if isinstance(value, Examples)), None)
    fix = f"check what {component.name} does to the model"
    with limited_children(None if is_trusted() else Limits(())):
        facts = run_isolated(_measure_parity, parent, model, examples, fix, doing="comparing the model with its parent")
    tolerance = parameters.get("tolerance")
    if tolerance is None and component.tolerance is not None:
        tolerance = max(component.tolerance, facts.get("tolerance") or 0.0)
    for name, parity in facts["outputs"].items():
        error = parity["relative_error"]
        if tolerance is not None and error is not None and error > tolerance:
            received = f"{component.name}: output {name!r} differs by {error:.2g} of its range"
            fix = f"check what {component.name} does to the model, or declare a larger tolerance"
            raise ComponentError(received, f"at most {tolerance:g}, as the component declares", fix)
    model.metadata[VERIFIED] = facts | {"tolerance": tolerance}


def _measure_parity(parent: Model, model: Model, examples: Examples | None, fix: str) -> Verification:
    from tfopt import runtimes  # imports NumPy
    from tfopt.graph_checks.comparison import tolerance_of
    from tfopt.measurement.parity import measure_parity

    with runtimes.load(parent) as loaded:
        return measure_parity(loaded, model, examples, fix=fix) | {"tolerance": tolerance_of(parent)}

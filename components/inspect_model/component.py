"""The door of `inspect_model`: what it promises."""

import logging
from typing import Annotated

from tfopt.artifacts import Inspection, Model
from tfopt.component import Between, Input, Output, component
from tfopt.errors import ComponentError


@component(image="tf", cache="local")
def inspect_model(
    model: Input[Model],
    inspection: Output[Inspection],
    *,
    signature: str = "serving_default",
    budget_mflops: Annotated[float, Between(0)] | None = None,
    budget_parameters: Annotated[int, Between(0)] | None = None,
) -> None:
    """Say what a model consists of, what each optimization could do for it, and why not.

    Operations by count, parameters, floating-point operations (a multiplication and an addition are two), bytes read
    and written, batch norms that can and cannot be folded and why, the fraction that integer kernels and XNNPACK cover,
    channels that are no multiples of 8, and zeros among the weights. Given a budget, it names lighter backbones of the
    same task class, image classification, that fit it.

    Counted is the graph as it is served, for one example: constants are computed, training's leftovers are gone, and
    what the signature leaves open is taken as the report says. Nothing is run or timed: for that, see `benchmark`.

    Args:
        model: A SavedModel or Keras model. Of an exported model its parent's SavedModel is looked at, where that lies
            beside it.
        inspection: ``inspection.json``, ``inspection.txt`` and ``report.html``.
        signature: The signature to look at.
        budget_mflops: The most million floating-point operations that one example may take.
        budget_parameters: The most parameters that the model may have.

    Raises:
        ComponentError: When there is no SavedModel and no Keras form, it cannot be read (a variable changes while it
            serves, say), or has no such signature.
    """
    if not model.saved_model and not model.keras:
        raise ComponentError(
            f"{model.uri}: a {model.format} model alone",
            "a SavedModel or a Keras model",
            "give the model it was converted from",
        )
    from tfopt.components.inspect_model.inspect import inspect
    from tfopt.components.inspect_model.report import page, text

    found = inspect(model, signature, budget_mflops, budget_parameters)
    inspection.write(found)
    said = text(found)
    (inspection.path / "inspection.txt").write_text(said)
    (inspection.path / Inspection.page).write_text(page(found), encoding="utf-8")
    inspection.metadata |= {"parameters": found["parameters"]["count"], "mflops": found["flops"]["total"] / 1e6}
    logging.getLogger("tfopt").info("%s", said)

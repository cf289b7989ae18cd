import logging
from typing import Annotated

from tfopt.artifacts import Inspection, Model
from tfopt.component import Between, Input, Output, component
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_isolated
from tfopt.reports.inspection_report import CostBudget


@component(image="tf", purpose="measurement", cache="local", model_signature=True)
def inspect_model(
    model: Input[Model],
    inspection: Output[Inspection],
    *,
    budget_mflops: Annotated[float, Between(0)] | None = None,
    budget_parameters: Annotated[int, Between(0)] | None = None,
) -> None:
    """Count a model's operations, parameters and costs, and report which optimizations apply and why others do not.

    The report contains nodes by op, parameters, floating-point operations (a multiplication and an addition are two),
    bytes read and written, batch norms that can and cannot be folded and why, the fraction that integer kernels and
    XNNPACK cover, channels that are no multiples of 8, and zeros among the weights. For an image classifier, it also
    lists lighter backbones, only those within the budget if there is one.

    The graph is counted as it is served, for one example: constants are computed, nodes that only training needs are
    removed, and dimensions that the signature leaves open are assumed as the report states. The model is not run
    or timed; `benchmark` does that. Operators that read or write files, run Python or open connections are listed and
    not run, not even those of the initialization; other components refuse such a model unless ``trust_model_code``.

    Args:
        model: A SavedModel or Keras model. For an exported model, the SavedModel of its parent is inspected, if it is
            stored next to it.
        inspection: ``inspection.json``, ``inspection.txt`` and ``report.html``.
        budget_mflops: Limit of the million floating-point operations for one example.
        budget_parameters: Limit of the number of parameters.

    Raises:
        ComponentError: If there is neither a SavedModel nor a Keras model, it cannot be read (for example because a
            variable changes during serving), or it lacks the signature.
    """
    if not model.saved_model and not model.keras:
        received = f"{model.uri}: only a {model.format} model"
        raise ComponentError(received, "a SavedModel or a Keras model", "pass the model that it was converted from")
    from tfopt.components.inspect_model.inspect import inspect  # imports NumPy
    from tfopt.components.inspect_model.report import render_html, render_text

    budget = CostBudget(budget_mflops, budget_parameters)
    report = run_isolated(inspect, model, model.signature, budget, doing="inspecting the graph")
    inspection.write(report)
    text = render_text(report)
    (inspection.path / "inspection.txt").write_text(text)
    (inspection.path / Inspection.page).write_text(render_html(report), encoding="utf-8")
    inspection.metadata |= {"parameters": report.parameters.count, "mflops": report.flops.total / 1e6}
    logging.getLogger(__name__).info("%s", text)

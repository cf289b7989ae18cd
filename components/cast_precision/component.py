"""The door of `cast_precision`: what it promises."""

from typing import Annotated, Literal

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Between, Input, Output, component
from tfopt.execution.failed_models import OnFailure

KEPT = ["Exp", "Expm1", "Log", "Log1p", "LogSoftmax", "Mean", "Pow", "Prod", "Softmax", "Sum", "Cumsum"]


@component(image="tf")
def cast_precision(
    model: Input[SavedModel],
    cast: Output[SavedModel],
    examples: Input[Examples] | None = None,
    *,
    precision: Literal["float16", "bfloat16"] = "float16",
    keep: list[str] = KEPT,
    tolerance: Annotated[float, Between(0, 1)] | None = None,
    on_failure: OnFailure = "raise",
) -> None:
    """Compute in 16 bits inside a model, whose inputs and outputs stay as they are.

    Weights are stored in 16 bits, which halves the file. What is sensitive to rounding stays in float32: the operations
    in `keep`, whatever has no 16-bit kernel here, constants outside the range, and the inside of If and While. When the
    outputs still differ by more than the tolerance, each layer is cast alone and measured, and the worst are taken back
    to float32, as few as needed. What was taken back and why the rest stayed is in the model card under ``report``.

    Whether it is faster depends on the machine: on a CPU without 16-bit instructions it is slower. See `benchmark`.
    The result is frozen: it has no variables. It is loaded again and compared with the model before it is handed on.

    Args:
        model: A SavedModel or a Keras model.
        cast: The same model with 16-bit arithmetic inside.
        examples: Real inputs to measure the error on, found by input name; random ones are used without them.
        precision: ``float16`` is eight times as exact; ``bfloat16`` has the range of float32.
        keep: TensorFlow operations that stay in float32, such as Softmax; the default are those that sum or grow.
        tolerance: How far an output may be off, as a fraction of its range: 0.01 for float16 and 0.05 for bfloat16
            when not given.
        on_failure: With ``row``, a model that cannot be made is no error: the output then says why, and evaluate,
            benchmark and select_model list it as a row that is never chosen, with the reason.

    Raises:
        ComponentError: When an operation to keep is unknown, the model cannot be frozen or run, nothing in it can be
            cast, or no layer keeps within the tolerance.

    Reference:
        Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3, for what stays in float32.
    """
    from tfopt.components.cast_precision.cast import cast_model

    cast.metadata |= cast_model(model, cast.path, examples, precision, keep, tolerance)

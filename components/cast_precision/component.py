from typing import Annotated, Literal

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Between, Input, Names, Output, component
from tfopt.processes.subprocess_call import run_isolated

SENSITIVE_OPS = ("Exp", "Expm1", "Log", "Log1p", "LogSoftmax", "Mean", "Pow", "Prod", "Softmax", "Sum", "Cumsum")


@component(
    image="tf",
    purpose="graph",
    model_signature=True,
    on_failure=True,
    concurrent=True,
    not_after={"quantization": "the trained ranges would be rounded again"},
)
def cast_precision(
    model: Input[SavedModel],
    cast: Output[SavedModel],
    examples: Input[Examples] | None = None,
    *,
    precision: Literal["float16", "bfloat16"] = "float16",
    keep: Annotated[tuple[str, ...], Names()] = SENSITIVE_OPS,
    tolerance: Annotated[float, Between(0, 1)] | None = None,
) -> None:
    """Compute in 16 bits inside a model; inputs and outputs stay as they are.

    Weights are stored in 16 bits, which halves the file. These stay in float32: the operations in `keep`, operations
    without a 16-bit kernel here, constants outside the range, and the bodies of If and While. If the outputs still
    differ by more than the tolerance, each layer is cast alone and measured, and the layers with the largest errors
    return to float32, in this order, until they agree. The model card lists under ``report`` which layers returned, and
    why operations stayed.

    The speed depends on the machine: a CPU without 16-bit instructions becomes slower. Measure it with `benchmark`.
    The result is frozen: it has no variables. It is loaded again and compared with the model. On inputs with NaN,
    infinities, zeros and denormals, ``special_values`` in the report lists where a result is NaN or infinite in one
    model only: numbers beyond 65504 are infinite in float16, and those below 6e-8 are zero.

    Args:
        model: A SavedModel or a Keras model.
        cast: The same model with 16-bit arithmetic inside.
        examples: Real inputs to measure the error on, matched by input name; without them, random inputs.
        precision: ``float16`` is eight times as precise; ``bfloat16`` has the range of float32.
        keep: TensorFlow operations that stay in float32, such as Softmax; by default sums and exponential functions.
        tolerance: Largest allowed error of an output, as a fraction of its range. The default is 0.01 for float16 and
            0.05 for bfloat16.

    Raises:
        ComponentError: If an operation to keep is unknown, the model cannot be frozen or run, nothing in it can be
            cast, or no layer can be cast within the tolerance.

    Reference:
        Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3, for the operations that stay in float32.
    """
    from tfopt.components.cast_precision.cast import cast_model  # imports NumPy

    cast.metadata |= run_isolated(
        *(cast_model, model, cast.path, examples, precision, keep, tolerance), doing="casting the graph"
    )

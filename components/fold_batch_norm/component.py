"""The door of `fold_batch_norm`: what it promises."""

from typing import Annotated

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Between, Input, SameOutput, component
from tfopt.execution.failed_models import OnFailure


@component(image="tf")
def fold_batch_norm(
    model: Input[SavedModel],
    folded: SameOutput[SavedModel],
    examples: Input[Examples] | None = None,
    *,
    tolerance: Annotated[float, Between(0, 1)] | None = None,
    on_failure: OnFailure = "raise",
) -> None:
    """Fold batch normalization into the layers before it: fewer operations, the same answers.

    In inference a batch norm multiplies each channel by a number and adds another, and so does the convolution or dense
    layer right before it: the two become one layer with other weights. This holds for Conv1D/2D/3D, their transposes,
    depthwise and separable convolutions and Dense, in Sequential, Functional and nested models of both Keras versions,
    and for the TensorFlow operations they are made of in a SavedModel without a Keras form, whoever exported it.

    What was folded into what, and why any batch norm stays, is in the model card under ``report``. Layers keep their
    names, those that nothing is folded into keep their exact weights, and inputs and outputs keep names, types and
    shapes. The result is loaded again and run beside the model before it is handed on. A SavedModel without a Keras
    form is frozen: its variables become constants, and all of its signatures stay. A model without a batch norm that
    can be folded, or one that cannot be frozen, is handed on unchanged, and the report says why.

    Args:
        model: A SavedModel with its Keras form, or a .keras or .h5 file.
        folded: The same model with fewer batch norms, as a SavedModel, and a Keras file where there was a Keras form.
        examples: Real inputs for the comparison, found by input name; random ones are used without them.
        tolerance: Refuse the result when an output differs by more than this fraction of its range. When not given:
            0.00001 for each layer with a kernel and 0.0001 at most, 0.01 where layers compute in float16, and 0.05
            where they compute in bfloat16.
        on_failure: With ``row``, a model that cannot be made is no error: the output then says why, and evaluate,
            benchmark and select_model list it as a row that is never chosen, with the reason.

    Raises:
        ComponentError: When the Keras form cannot be read, a weight is NaN, the SavedModel serves something else than
            its Keras form computes, or the folded model answers otherwise.

    Reference:
        Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
        CVPR 2018, section 3.2.
    """
    from tfopt.components.fold_batch_norm.fold import fold

    folded.metadata |= fold(model, folded.path, examples, tolerance)

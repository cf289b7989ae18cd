from typing import Annotated

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Between, Input, SameOutput, component
from tfopt.processes.subprocess_call import run_isolated


@component(
    image="tf",
    purpose="graph",
    model_signature=True,
    on_failure=True,
    concurrent=True,
    not_after={
        "shared weights": "folding scales each channel by its own factor, so channels would no longer share weights",
        "quantization": "the trained ranges fit the unfolded layers",
    },
    idempotent=True,
)
def fold_batch_norm(
    model: Input[SavedModel],
    folded: SameOutput[SavedModel],
    examples: Input[Examples] | None = None,
    *,
    tolerance: Annotated[float, Between(0, 1)] | None = None,
) -> None:
    """Fold batch normalization into the layers before it: fewer operations, the same outputs.

    In inference a batch norm is an affine function of each channel, and the convolution or dense layer before it is
    linear in each channel: both become one layer with other weights. This applies to Conv1D/2D/3D, their transposes,
    depthwise and separable convolutions and Dense, in Sequential, Functional and nested models of both Keras versions,
    also behind Reshape and Dropout, and to the corresponding TensorFlow operations in a SavedModel without a Keras
    form.

    The model card lists under ``report`` which batch norm was folded into which layer, and why others stay. Layers keep
    their names, layers without a folded batch norm keep their exact weights, and inputs and outputs keep names, types
    and shapes. The result is loaded again and compared with the model. A SavedModel without a Keras form is frozen: its
    variables become constants, except those that it writes while it serves, and it keeps all signatures. Its
    outputs are compared on NaN, infinities, zeros of both signs, denormals, extremes and no records, too. A model
    without a batch norm that can be folded, one that cannot be frozen, or one that would return something else for such
    values, is passed through unchanged, and the report has the reason.

    Args:
        model: A SavedModel with its Keras form, or a .keras, .h5 or .hdf5 file.
        folded: The same model with fewer batch norms, as a SavedModel, and as a Keras file if it had a Keras form.
        examples: Real inputs for the comparison, matched by input name. Without them inputs are random.
        tolerance: Fail if an output differs by more than this fraction of its range. By default 0.00001 for each layer
            with a kernel and 0.0001 at most, 0.01 if layers compute in float16, and 0.05 if they compute in bfloat16.

    Raises:
        ComponentError: If the Keras form cannot be read, a weight is NaN, the SavedModel and its Keras form compute
            different outputs, or the outputs of the folded model differ from the model's.

    Reference:
        Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
        CVPR 2018, section 3.2.
    """
    from tfopt.components.fold_batch_norm.fold import fold  # imports NumPy

    folded.metadata |= run_isolated(fold, model, folded.path, examples, tolerance, doing="folding batch norms")

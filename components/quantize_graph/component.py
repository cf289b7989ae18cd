from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Group, Input, Output, component
from tfopt.components.quantize_graph.parameters import GraphQuantization
from tfopt.processes.subprocess_call import run_in_child


@component(
    image="tf",
    purpose="graph",
    memory="8Gi",
    model_signature=True,
    on_failure=True,
    concurrent=True,
    not_after={"quantization": "the trained ranges would be replaced by calibrated ones"},
)
def quantize_graph(
    model: Input[SavedModel],
    examples: Input[Examples],
    quantized: Output[SavedModel],
    *,
    quantization: Group[GraphQuantization],
) -> None:
    """Compute convolutions and dense layers of a SavedModel in 8 bits, with TensorFlow's oneDNN kernels.

    The result is a SavedModel for servers that load nothing else. A layer is a convolution, depthwise convolution or
    matrix product with constant weights, with its bias, the sum with a residual, and ReLU or ReLU6. Weights have a
    scale for each channel, activations one for each tensor, calibrated on the examples. What a layer
    passes to another layer stays in 8 bits, also through reshapes and max pooling; everything else is in float32.
    Batch norms are folded first. The last dense layer returns float32.

    The kernels exist in TensorFlow for x86 CPUs only, and are fast with VNNI or AMX instructions. The model does not
    load on a GPU or another architecture, and no exporter reads it: `export_tflite` and the others take the parent.
    Models with depthwise convolutions and activations such as swish may become slower: compare the result with its
    parent by `benchmark`.

    The model card lists under ``report`` the quantized layers, and why others stay.

    Args:
        model: A SavedModel or a Keras model.
        examples: Real inputs to calibrate on and to compare with, matched by input name.
        quantized: The same model with 8-bit layers, without variables.
        quantization: Calibration, comparison and operations.

    Raises:
        ComponentError: If calibration data is missing or too little, if this TensorFlow has no 8-bit kernels, if the
            model cannot be frozen or has no layer to quantize, or if the outputs do not match the parent's outputs.

    Reference:
        Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
        CVPR 2018, section 2.
    """
    quantization.check()
    examples.split(quantization.split)
    from tfopt.components.quantize_graph.quantize import quantize  # imports NumPy

    quantized.metadata |= run_in_child(
        *(quantize, model, quantized.path, examples, quantization), doing="quantizing the graph"
    )

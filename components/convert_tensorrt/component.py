"""The door of `convert_tensorrt`: what it promises, and what it refuses in the first second."""

from typing import Annotated, Literal

from tfopt.artifacts import Examples, Model, TensorRTModel
from tfopt.component import Between, Input, Output, Reads, component
from tfopt.conversion import convert as conversion
from tfopt.execution.failed_models import OnFailure
from tfopt.tensorrt.profiles import read_shapes


@component(image="tensorrt", memory="16Gi", gpu=1)
def convert_tensorrt(
    model: Input[Model],
    converted: Output[TensorRTModel],
    examples: Input[Examples] | None = None,
    *,
    backend: Literal["onnx", "tf_trt"] = "onnx",
    precision: Literal["fp32", "tf32", "fp16", "bf16", "int8"] = "fp16",
    shapes: Annotated[list[str], Reads(read_shapes, ("image=1x28x28x1:8x28x28x1:32x28x28x1",))] = [],  # noqa: B006  (never changed)
    usual_batch: Annotated[int, Between(1, None)] = 8,
    largest_batch: Annotated[int, Between(1, None)] = 32,
    calibrator: Literal["explicit", "entropy"] = "explicit",
    calibration_cache: str | None = None,
    calibration_count: Annotated[int, Between(2, None)] = 500,
    workspace_mb: Annotated[int, Between(1, None)] | None = None,
    timing_cache: str | None = None,
    sparse: bool = False,
    version_compatible: bool = False,
    split: str = "train",
    seed: int = 0,
    tolerance: Annotated[float, Between(0, None)] | None = None,
    on_failure: OnFailure = "raise",
) -> None:
    """Convert a model to a TensorRT engine for the GPU of the machine this runs on.

    The model becomes an ONNX file first, which says what is computed in which precision and is compared with its parent
    on the CPU; TensorRT then builds it as it is written (a strongly typed network), and the engine is compared again.
    It lies in ``Format-Serving/model.plan``, and beside it ``compatibility.json``: the TensorRT, GPU and driver it was
    built with, which are checked before it is loaded anywhere. The card tells the precision of every layer, and counts
    those of which TensorRT tells none as ``unknown``.

    It needs an NVIDIA GPU with TensorRT 10 or 11 and CUDA's Python bindings, as in the image ``tensorrt``. An engine
    runs on GPUs of the same compute capability only.

    Args:
        model: A SavedModel, a Keras or an ONNX model. Text and float64 are refused: TensorRT has no such inputs.
        converted: The engine; with TF-TRT a SavedModel with engines in it.
        examples: Real inputs, found by input name. Needed to calibrate int8 unless the model has its ranges; for the
            others they make the comparison with the parent a real one, in place of random inputs.
        backend: ``onnx``, or ``tf_trt`` where TensorFlow was built with TensorRT: up to 2.17, and in NVIDIA's
            containers.
        precision: ``fp32`` answers as its parent does; ``tf32`` rounds what goes into products to 10 bits; ``fp16`` and
            ``bf16`` compute in 16 bits inside; ``int8`` takes the levels of an ONNX file that has such, or of a model
            that went through `quantize` (which ``tf_trt`` does not take), and calibrates any other.
        shapes: ``NAME=MIN:OPT:MAX`` for inputs whose sizes the following two and the examples do not say, as in
            ``ids=1x8:4x32:16x128``. Each least batch is 1.
        usual_batch: The batch size to be fastest at, where the batch is free.
        largest_batch: The largest one. Larger batches are run in parts.
        calibrator: In int8, ``explicit`` finds ranges on the CPU and writes them into the ONNX file, around zero as
            TensorRT wants them. ``entropy`` is TensorRT's own calibrator, which TensorRT 11 no longer has.
        calibration_cache: A file that keeps what ``entropy`` found. It is taken again for the same model, examples and
            version of TensorRT, and written anew for others.
        calibration_count: How many examples set the ranges of the activations, drawn evenly from the split.
        workspace_mb: Memory that a kernel may use while it runs; all that the GPU has when not given.
        timing_cache: A file that keeps how fast each kernel was, so that the next conversion is quicker. Runs may share
            it at the same time.
        sparse: Take kernels for weights with two zeros in every four, where `prune` left such and they are faster.
        version_compatible: Let later versions of TensorRT load the engine, which may make it slower.
        split: The split to calibrate on. The comparison uses another one where there is one.
        seed: Draws the examples, and the random inputs.
        tolerance: Refuse the engine when any output differs from the parent's by more than this fraction of its range.
            When not given, it is 0.0001 for fp32. The others are then refused when they are broken: under half of the
            records keep their class (16 bits and tf32: 95 %) or, without classes, the correlation is under 0.5 (0.99).
        on_failure: With ``row``, a model that cannot be made is no error: the output then says why, and evaluate,
            benchmark and select_model list it as a row that is never chosen, with the reason.

    Raises:
        ComponentError: When this machine has no GPU or TensorRT, something needed is missing or of no use (see above),
            TensorRT cannot build the model (the layers are named), or the engine does not answer as its parent does.
    """
    converted.metadata["name"] = f"tensorrt {precision}"
    from tfopt.components.convert_tensorrt import checks as asked
    from tfopt.components.convert_tensorrt.convert import convert
    from tfopt.components.convert_tensorrt.request import Request
    from tfopt.components.convert_tensorrt.tf_trt import convert as convert_tf_trt

    request = Request(
        precision=precision,
        shapes=tuple(shapes),
        usual_batch=usual_batch,
        largest_batch=largest_batch,
        calibrator=calibrator,
        calibration_cache=calibration_cache,
        calibration_count=calibration_count,
        workspace_mb=workspace_mb,
        timing_cache=timing_cache,
        sparse=sparse,
        version_compatible=version_compatible,
        split=split,
        seed=seed,
        tolerance=tolerance,
    )
    asked.check(model, examples, backend, request)
    conversion.convert(convert if backend == "onnx" else convert_tf_trt, model, examples, converted, request)

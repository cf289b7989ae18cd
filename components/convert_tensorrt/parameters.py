from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between, Names, Reads
from tfopt.conversion.parameters import CalibratedConversion
from tfopt.tensorrt.profiles import parse_shapes


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Precision, shapes and build options of an engine.

    Attributes:
        precision: ``fp32`` matches the outputs of the parent; ``tf32`` rounds the factors of products to 10 bits;
            ``fp16`` and ``bf16`` compute in 16 bits inside; ``int8`` uses the scales of a quantized ONNX file, or of a
            model that went through `quantize`, and calibrates any other model; ``fp8`` calibrates 8-bit floats (E4M3)
            in the same places, for GPUs of compute capability 8.9 or later. ``auto`` has as many layers in int8 as
            max_degradation allows, and all others in float16.
        shapes: ``NAME=MIN:OPT:MAX`` for inputs whose sizes do not follow from the next two parameters and the examples,
            as in ``ids=1x8:4x32:16x128``. The smallest batch is always 1.
        usual_batch: The batch size to optimize for, if the batch size is open.
        largest_batch: The largest batch size. Larger batches are run in parts.
        calibrator: In int8, ``explicit`` calibrates on the CPU and writes symmetric scales, as TensorRT needs them, to
            the ONNX file. ``entropy`` is TensorRT's own calibrator, which TensorRT 11 no longer has.
        calibration_cache: A file that stores the result of ``entropy``. It is reused for the same model, examples and
            version of TensorRT, and replaced otherwise.
        workspace_mb: Memory that a kernel may use while it runs; by default all of the GPU's.
        timing_cache: A file that stores the measured time of each kernel, so that the next conversion is faster.
            Several runs may use it at the same time.
        sparse: Use kernels for weights with two zeros in every four, as `prune` makes them, where they are faster.
        version_compatible: Let later versions of TensorRT load the engine, which may make it slower.
    """

    precision: Literal["fp32", "tf32", "fp16", "bf16", "int8", "fp8", "auto"] = "fp16"
    shapes: Annotated[tuple[str, ...], Reads(parse_shapes, ("image=1x28x28x1:8x28x28x1:32x28x28x1",)), Names()] = ()
    usual_batch: Annotated[int, Between(1)] = 8
    largest_batch: Annotated[int, Between(1)] = 32
    calibrator: Literal["explicit", "entropy"] = "explicit"
    calibration_cache: str | None = None
    workspace_mb: Annotated[int, Between(1)] | None = None
    timing_cache: str | None = None
    sparse: bool = False
    version_compatible: bool = False


@dataclass(frozen=True, kw_only=True)
class TensorRTConversion(CalibratedConversion, EngineOptions):  # the fields of the last base come first
    """Conversion to a TensorRT engine.

    Attributes:
        max_degradation: In int8 and auto, the largest share of held-out records that may change their class, or loss of
            correlation if there are no classes, measured on the CPU before an engine is built. If it is exceeded, the
            layers that add most error have a higher precision until it is met: in int8 at most half of them are
            float32, in auto any number float16. The figure of that form is optimistic; the model card has its interval,
            and `evaluate` states a bound for other records.
    """

    max_degradation: Annotated[float, Between(0, 1)] | None = None
    calibration_count: Annotated[int, Between(2)] = 500

    @property
    def needs_inputs(self) -> bool:
        """True for int8, fp8 and auto."""
        return self.precision in ("int8", "fp8", "auto")

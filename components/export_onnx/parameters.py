from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between
from tfopt.conversion.parameters import CalibratedConversion, Minimized


@dataclass(frozen=True, kw_only=True)
class OnnxFormat:
    """Precision and operators of an ONNX file.

    Attributes:
        precision: Precision of weights and activations. auto is a mix of int4, int8 and float32 that meets
            max_degradation; its matrices may be in ONNX Runtime's own operator MatMulNBits, which few others read.
        opset: Version of the ONNX operators; choose a lower one for an older runtime.
        per_channel: In int8 and dynamic, give each output channel of a weight its own scale: more exact, and as fast.
        reduce_range: In int8 and dynamic, leave one bit of the weights unused. An x86 CPU without VNNI adds two
            products in 16 bits, where products of 8-bit weights overflow. ``auto`` does so if this machine has such a
            CPU; pass ``on`` or ``off`` if the model will run on another kind.
    """

    precision: Literal["float32", "float16", "dynamic", "int8", "auto"] = "float32"
    opset: Annotated[int, Between(13, 18)] = 18
    per_channel: bool = True
    reduce_range: Literal["auto", "on", "off"] = "auto"


@dataclass(frozen=True, kw_only=True)
class OnnxConversion(CalibratedConversion, OnnxFormat):  # the fields of the last base come first
    """Conversion to ONNX.

    Attributes:
        max_degradation: In int8 and auto, the largest share of held-out records that may change their class, or loss of
            correlation if there are no classes. If it is exceeded, the nodes that add most error have a higher
            precision until it is met: in int8 at most half of them are float32, in auto any number. The figure of that
            form is optimistic; the model card has its interval, and `evaluate` states a bound for other records.
        minimize: With precision=auto, what is least among the mixes that meet max_degradation: the bytes of the file
            (size), or the time of a call with one record and one thread on this machine (latency), which is measured
            for each layer and kind, and takes minutes.
    """

    max_degradation: Annotated[float, Between(0, 1)] | None = None
    minimize: Minimized = "size"

    @property
    def needs_inputs(self) -> bool:
        """True for int8 and auto."""
        return self.precision in ("int8", "auto")

from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between
from tfopt.conversion.parameters import CalibratedConversion, Minimized

BiasCorrection = Literal["none", "fast", "full"]


@dataclass(frozen=True, kw_only=True)
class OpenVINOFormat:
    """Precision of OpenVINO files.

    Attributes:
        precision: Precision of weights and activations. auto is the smallest, or fastest, mix of int4, int8, float16
            and float32 weights that meets max_degradation; activations have 8 bits in some of its layers.
        preset: In int8, ``performance`` uses ranges that are symmetric around zero, and ``mixed`` fits the ranges of
            activations, which is more exact for asymmetric values. ``auto`` is mixed if the model has attention, whose
            ranges are then calibrated with NNCF's settings for transformers, and performance otherwise.
        reduce_range: In int8, leave one bit of the weights unused. An x86 CPU without VNNI adds two products in 16
            bits, where products of 8-bit weights overflow. ``auto`` does so if this machine has such a CPU; pass ``on``
            or ``off`` if the model will run on another kind.
    """

    precision: Literal["float32", "float16", "int8", "auto"] = "float32"
    preset: Literal["auto", "performance", "mixed"] = "auto"
    reduce_range: Literal["auto", "on", "off"] = "auto"


@dataclass(frozen=True, kw_only=True)
class OpenVINOConversion(CalibratedConversion, OpenVINOFormat):  # the fields of the last base come first
    """Conversion to OpenVINO.

    Attributes:
        calibration: As in the other exports, but ``auto``, the default, is the better of min_max and moving_average
            (NNCF's ranges) on other records: either can be several times closer to the parent.
        bias_correction: In int8, change biases so that the mean of each channel remains that in float: by an estimate
            from the means of its inputs (fast), or by running the layers before it in 8 bits (full). Either can be
            worse than none; ``auto`` is the better of none and fast on other records.
        max_degradation: In int8 and auto, the largest share of held-out records that may change their class, or loss of
            correlation if there are no classes; accuracy on them cannot fall by more. If it is exceeded, the layers
            that cause most of it are left in float32, one after another, until it is met; in auto any number of layers
            has a higher precision. The figure of that form is optimistic. It is no bound for other records: `evaluate`
            states one.
        minimize: With precision=auto, what is least among the mixes that meet max_degradation: the bytes of the files
            (size), or the time of a call with one record and one thread on this machine (latency), which is measured
            for each layer and kind, and takes minutes.
    """

    calibration: Literal["auto", "min_max", "moving_average", "percentile", "mse", "entropy"] = "auto"
    bias_correction: Literal["auto", "none", "fast", "full"] = "auto"
    max_degradation: Annotated[float, Between(0, 1)] | None = None
    minimize: Minimized = "size"

    @property
    def needs_inputs(self) -> bool:
        """True for int8 and auto, and with a limit of the degradation."""
        return self.precision in ("int8", "auto") or self.max_degradation is not None

    @property
    def lacking(self) -> tuple[str, ...]:
        """OpenVINO has no operations of XLA."""
        return ("XlaDynamicUpdateSlice",)

    @property
    def integer_bits(self) -> int:
        """32: OpenVINO truncates wider integers on CPUs."""
        return 32

"""Parameters which all conversions have."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.declaration.parameters import Between

Minimized = Literal["size", "latency"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Parameters of the comparison with the parent.

    Attributes:
        split: The split that is calibrated or was trained on. The comparison uses another one if there is one.
        seed: Seed for drawing the examples, and for the random inputs.
        tolerance: Fail if any output differs from the parent's by more than this fraction of its range. By default the
            limit is 0.0001 for float32 (0.01 if the parent computes in float16, 0.05 in bfloat16). The other precisions
            then fail only if they are broken: under half of the records keep their class (16 bits and tf32: 95 %) or,
            without classes, the correlation is under 0.5 (0.99).
    """

    split: str = "train"
    seed: int = 0
    tolerance: Annotated[float, Between(0)] | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration(Comparison):
    """Parameters of calibration and comparison.

    Attributes:
        calibration: How the range of an activation follows from its values on the examples: smallest and largest one
            (min_max), averages of the records' ends (moving_average), all but 0.01 % of the values (percentile), least
            squared error (mse) or least divergence of the histogram (entropy). auto is the one of min_max,
            moving_average and percentile that is closest to the parent on other records. It is off by default: it
            doubles the time of an export, and its methods were chosen on the same table that shows it best
            (docs/benchmarks.md).
        calibration_count: Number of examples that determine the ranges of the activations, drawn evenly from the split.
    """

    calibration: Literal["auto", "min_max", "moving_average", "percentile", "mse", "entropy"] = "min_max"
    calibration_count: Annotated[int, Between(2)] = 200


@dataclass(frozen=True, kw_only=True)
class Conversion(Comparison):
    """Parameters which all conversions have.

    Attributes:
        cut_at: Nodes of the frozen graph after which the conversion begins; all before them stays in a SavedModel.
            By default it begins where text, lookup tables and serialized records end, if the format lacks their ops.
    """

    cut_at: tuple[str, ...] = ()

    @property
    def allows_any_op(self) -> bool:
        """True if the format may contain operations that only TensorFlow has."""
        return False

    @property
    def lacking(self) -> tuple[str, ...]:
        """Operations that the format lacks, and that are replaced before the conversion."""
        return ()

    @property
    def integer_bits(self) -> int:
        """Bits of the integers that the format's runtime compares."""
        return 64


@dataclass(frozen=True, kw_only=True)
class CalibratedConversion(Conversion, Calibration, ABC):
    """Parameters of a conversion to a format with 8-bit ranges."""

    @property
    @abstractmethod
    def needs_inputs(self) -> bool:
        """True if examples are inputs of the conversion: for 8-bit ranges, or to limit the degradation."""

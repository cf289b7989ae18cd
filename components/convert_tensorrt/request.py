"""What was asked for, as one value that travels to the child process."""

from dataclasses import dataclass

from tfopt.conversion.convert import Conversion


@dataclass(frozen=True, kw_only=True)
class Request(Conversion):
    """The parameters of `convert_tensorrt`, under the same names."""

    precision: str = "fp16"
    shapes: tuple[str, ...] = ()
    usual_batch: int = 8
    largest_batch: int = 32
    calibrator: str = "explicit"
    calibration_cache: str | None = None
    calibration_count: int = 500
    workspace_mb: int | None = None
    timing_cache: str | None = None
    sparse: bool = False
    version_compatible: bool = False

"""What was asked for, as one value that travels to the child process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """The parameters of `export_onnx`, under the same names."""

    precision: str
    opset: int
    per_channel: bool
    reduce_range: str
    calibration_count: int
    split: str
    seed: int
    tolerance: float | None

"""What was asked for, as one value that travels to the child process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """The parameters of `export_openvino`, under the same names."""

    precision: str
    preset: str
    reduce_range: str
    calibration_count: int
    split: str
    seed: int
    tolerance: float | None
    max_degradation: float | None

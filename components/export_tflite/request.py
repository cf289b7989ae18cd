"""What was asked for, as one value that travels to the child process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """The parameters of `export_tflite`, under the same names."""

    precision: str
    integer_io: bool
    calibration_count: int
    split: str
    seed: int
    tolerance: float | None
    select_tf_ops: bool
    sparse: bool
    recipe: tuple[tuple[str, str], ...]
    max_degradation: float | None

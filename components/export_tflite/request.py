"""What was asked for, as one value that travels to the child process."""

from dataclasses import dataclass

from tfopt.conversion.convert import Conversion


@dataclass(frozen=True, kw_only=True)
class Request(Conversion):
    """The parameters of `export_tflite`, under the same names; a recipe is read."""

    integer_io: bool = False
    select_tf_ops: bool = False
    sparse: bool = False
    recipe: tuple[tuple[str, str], ...] = ()
    max_degradation: float | None = None

"""What was asked for, as one value that travels to the child process."""

from dataclasses import dataclass

from tfopt.conversion.convert import Conversion


@dataclass(frozen=True, kw_only=True)
class Request(Conversion):
    """The parameters of `export_openvino`, under the same names."""

    preset: str = "auto"
    reduce_range: str = "auto"
    max_degradation: float | None = None

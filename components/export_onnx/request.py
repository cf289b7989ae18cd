"""What was asked for, as one value that travels to the child process."""

from dataclasses import dataclass

from tfopt.conversion.convert import Conversion


@dataclass(frozen=True, kw_only=True)
class Request(Conversion):
    """The parameters of `export_onnx`, under the same names."""

    opset: int = 18
    per_channel: bool = True
    reduce_range: str = "auto"

"""Facts of one model's process, by their names in ``benchmark.json``."""

from typing import TypedDict

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.value_types import JsonObject


class ModelFacts(TypedDict, total=False):
    """Facts of a process and the model in it, complete at the end; ``inputs`` only in the result of ``load``."""

    import_seconds: float
    runtime_memory_bytes: int
    load_seconds: float
    inputs: dict[str, TensorSpec]
    first_call_seconds: float
    peak_memory_bytes: int
    nice: int
    tensorflow: JsonObject


class FirstCall(TypedDict):
    """Seconds of a first call, and names of its outputs that have NaN or infinities."""

    seconds: float
    not_finite: list[str]

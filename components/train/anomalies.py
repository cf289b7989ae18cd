"""Read the anomalies that TFX's validators found in the examples with TensorFlow Data Validation."""

from collections.abc import Iterator
from pathlib import Path

from tfopt.artifacts import Anomalies
from tfopt.errors import ComponentError

MAX_SHOWN = 5


def check_anomalies(anomalies: Anomalies) -> None:
    """Raise ComponentError with a description of each feature that has anomalies, or if a file cannot be read."""
    messages = list(dict.fromkeys(message for file in anomalies.diffs for message in _read(file)))
    if messages:
        more = f"; and {len(messages) - MAX_SHOWN} more" if len(messages) > MAX_SHOWN else ""
        received = f"examples with anomalies: {'; '.join(messages[:MAX_SHOWN])}{more}"
        expected = "examples without anomalies"
        raise ComponentError(received, expected, "correct the data, or allow it in the schema if the data are right")


def _read(file: Path) -> Iterator[str]:
    try:
        from tensorflow_metadata.proto.v0 import anomalies_pb2
    except ModuleNotFoundError as error:
        received = f"anomalies in {file}, and no tensorflow_metadata"
        expected = "the package that TFX reads them with"
        raise ComponentError(received, expected, "pip install 'tfopt[tfx]', or leave anomalies out") from error
    from google.protobuf.message import DecodeError

    try:
        message = anomalies_pb2.Anomalies.FromString(file.read_bytes())
    except DecodeError as error:
        received = f"{file}: not an Anomalies message"
        raise ComponentError(received, "a file of ExampleValidator", "pass the output of that component") from error
    split = file.parent.name.removeprefix("Split-").removeprefix("SplitPair-")
    if message.HasField("dataset_anomaly_info"):
        yield f"{split}: {_describe(message.dataset_anomaly_info)}"
    for name, info in sorted(message.anomaly_info.items()):
        yield f"{split}, {name}: {_describe(info)}"


def _describe(info: object) -> str:
    reasons = [reason.description or reason.short_description for reason in info.reason]  # type: ignore[attr-defined]
    return " ".join(filter(None, reasons)) or info.description or info.short_description  # type: ignore[attr-defined]

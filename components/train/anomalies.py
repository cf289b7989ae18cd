"""What TensorFlow Data Validation found in the examples, as TFX's components wrote it: told, and not learnt from."""

from collections.abc import Iterator
from pathlib import Path

from tfopt.artifacts import Anomalies
from tfopt.errors import ComponentError

SHOWN = 5


def check(anomalies: Anomalies) -> None:
    """Refuse to learn from examples that were found to be unlike what they should be.

    Raises:
        ComponentError: With what was found, feature by feature; or when what was found cannot be read.
    """
    found = list(dict.fromkeys(said for file in anomalies.found for said in _read(file)))
    if found:
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise ComponentError(
            f"examples with anomalies: {'; '.join(found[:SHOWN])}{more}",
            "examples without anomalies",
            "mend the data, or let the schema allow it where the data are right",
        )


def _read(file: Path) -> Iterator[str]:
    try:
        from tensorflow_metadata.proto.v0 import anomalies_pb2
    except ModuleNotFoundError as error:
        raise ComponentError(
            f"anomalies in {file}, and no tensorflow_metadata",
            "the package that TFX reads them with",
            "install tfopt[tfx], or leave anomalies out",
        ) from error
    from google.protobuf.message import DecodeError

    try:
        message = anomalies_pb2.Anomalies.FromString(file.read_bytes())
    except DecodeError as error:
        raise ComponentError(
            f"{file}: no anomalies", "what ExampleValidator writes", "give the output of that component"
        ) from error
    split = file.parent.name.removeprefix("Split-").removeprefix("SplitPair-")
    if message.HasField("dataset_anomaly_info"):
        yield f"{split}: {_words(message.dataset_anomaly_info)}"
    for name, info in sorted(message.anomaly_info.items()):
        yield f"{split}, {name}: {_words(info)}"


def _words(info: object) -> str:
    reasons = [reason.description or reason.short_description for reason in info.reason]  # type: ignore[attr-defined]
    return " ".join(filter(None, reasons)) or info.description or info.short_description  # type: ignore[attr-defined]

"""Read what runs recorded, and remove what differs between two runs of one pipeline, or between engines."""

import json
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata

CARD_OF_ONE_RUN = {"digest", "sizes", "versions", "destination"}
MEASURED = {"digest", "selected_digest", "reason", "reasons", "pareto", "size", "size_gzipped", "memory", "load"}
MEASURED |= {"latency", "latency_p90", "latency_p99", "throughput", "missed_by", "cold_start", "disturbed"}
OF_THE_ENGINE = {
    "p50_ms",
    "p99_ms",
    "digest",
    "bytes",
    "reason",
    "blessing",
    "content_digest",  # with which the runner of TFX checks a cached output
    "is_external",
    "tfx_version",
    "pushed_destination",
}


def short(metadata: dict[str, Any]) -> dict[str, Any]:
    """Round numbers to five digits, because those of MLMD have six; compare JSON texts like model cards."""
    return {
        key: float(f"{value:.5g}") if isinstance(value, int | float) else parsed(value)
        for key, value in metadata.items()
    }


def parsed(value: Any) -> Any:
    try:
        return without(json.loads(value), CARD_OF_ONE_RUN)
    except (TypeError, ValueError):  # no JSON, or shortened
        return value


def without(value: Any, keys: set[str]) -> Any:
    """Remove these keys at all depths, and round floats: NumPy differs in the last digit between versions of Python."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: without(item, keys) for key, item in value.items() if key not in keys}
    return [without(item, keys) for item in value] if isinstance(value, list) else value


def stored_metadata(store: Path) -> dict[str, dict[str, object]]:
    """Return the metadata of every artifact in MLMD by address."""
    with metadata.Metadata(metadata.sqlite_metadata_connection_config(str(store))) as handle:
        return {
            artifact.uri: {name: _value(value) for name, value in artifact.custom_properties.items()}
            for artifact in handle.store.get_artifacts()
        }


def _value(value: metadata_store_pb2.Value) -> object:
    return getattr(value, value.WhichOneof("value"))

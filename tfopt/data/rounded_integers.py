"""Find integer features that the floats of a model round, so that different numbers become one."""

from collections.abc import Mapping

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.feature_schema import required_features
from tfopt.reports.examples_manifest import ExamplesManifest

LARGEST_EXACT = 1 << 24  # the whole numbers that every float32 holds


def rounding_notes(
    manifest: ExamplesManifest, stored: Mapping[str, TensorSpec], inputs: Mapping[str, TensorSpec]
) -> list[str]:
    """Return a note for each stored integer feature with a range that the floats of a model's input cannot hold."""
    notes = []
    for name, spec in required_features(inputs).items():
        facts = (manifest.features or {}).get(name)
        if facts is None or name not in stored or stored[name].dtype != "int64" or "float" not in spec.dtype:
            continue
        largest = max(abs(facts.min or 0), abs(facts.max or 0))
        if largest > LARGEST_EXACT:
            notes.append(
                f"feature {name!r} has integers up to {int(largest)}, and the model takes {spec.dtype}, which rounds "
                f"those beyond {LARGEST_EXACT}: different identifiers can become one"
            )
    return notes

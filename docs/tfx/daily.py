"""A daily retraining in TFX: TensorFlow Data Validation checks the new data before `train`.

Data that violates the schema ends the run. Drift since the last run is printed, and the model is trained. If nothing
changed, the last model is passed through. The pipeline has standard TFX components and components of tfopt.

    python docs/tfx/daily.py rows.csv model.py runs/daily label

The first run infers the schema. Review it, correct it, and copy it to ``runs/daily/schema.pbtxt``.
"""

import logging
import sys
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2
from tfx.components import DistributionValidator, ExampleValidator, SchemaGen, StatisticsGen
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration import metadata, pipeline
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.proto import distribution_validator_pb2
from tfx.types import standard_artifacts

from tfopt import artifacts
from tfopt.tfx import TYPES, steps

DRIFT = 0.1  # the Jensen-Shannon divergence of a feature's values, from 0 to 1
CHANGE = 0.05  # relative change of a mean, a deviation, the number of examples, or the loss that causes a training


def daily(data: Path, module: Path, folder: Path, label: str) -> pipeline.Pipeline:
    """Build the pipeline of a day."""
    rows = Importer(source_uri=str(data), artifact_type=TYPES[artifacts.Files]).with_id("data")
    code = Importer(source_uri=str(module), artifact_type=TYPES[artifacts.PythonModule]).with_id("module")
    prepared = steps.prepare_examples(data=rows.outputs["result"], label=label)
    examples = prepared.outputs["examples"]
    statistics = StatisticsGen(examples=examples)
    nodes = [rows, code, prepared, statistics]
    arguments: dict[str, Any] = {"examples": examples, "module": code.outputs["result"], "label": label}

    schema = folder / "schema.pbtxt"
    if schema.exists():
        imported = ImportSchemaGen(schema_file=str(schema))
        validator = ExampleValidator(statistics=statistics.outputs["statistics"], schema=imported.outputs["schema"])
        arguments["anomalies"] = validator.outputs["anomalies"]
        nodes += [imported, validator]
    else:
        nodes.append(SchemaGen(statistics=statistics.outputs["statistics"]))

    last_statistics = newest(folder, "StatisticsGen/statistics")
    if last_statistics and schema.exists():
        splits = {"split_names": '["train", "eval"]'}
        baseline = Importer(str(last_statistics), standard_artifacts.ExampleStatistics, properties=splits)
        baseline = baseline.with_id("last_statistics")
        compared = {"statistics": statistics.outputs["statistics"], "baseline_statistics": baseline.outputs["result"]}
        pairs = [("train", "train")]  # eval is too small to distinguish drift from chance
        nodes += [baseline, DistributionValidator(**compared, config=drift_config(schema), include_split_pairs=pairs)]

    last_model = newest(folder, "train/trained")
    if last_model:
        start = Importer(str(last_model), TYPES[artifacts.KerasModel]).with_id("last_model")
        arguments |= {"start": start.outputs["result"], "min_change": CHANGE}
        nodes.append(start)
    return pipeline.Pipeline(
        pipeline_name="daily",
        pipeline_root=str(folder / "artifacts"),
        components=[*nodes, steps.train(**arguments)],
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite")),
    )


def newest(folder: Path, output: str) -> Path | None:
    """Return the newest artifact of an output, such as ``train/trained``; None if there is none."""
    runs = [run for run in (folder / "artifacts" / output).glob("*") if run.name.isdecimal() and any(run.iterdir())]
    return max(runs, key=lambda run: int(run.name), default=None)


def drift_config(schema: Path) -> distribution_validator_pb2.DistributionValidatorConfig:
    """Build the configuration that compares each feature of the schema with the last run."""
    config = distribution_validator_pb2.DistributionValidatorConfig()
    for feature in text_format.Parse(schema.read_text(), schema_pb2.Schema()).feature:
        compared = config.default_slice_config.feature.add()
        compared.path.step.append(feature.name)
        compared.distribution_comparator.jensen_shannon_divergence.threshold = DRIFT
    return config


def drifted_features(folder: Path) -> dict[str, str]:
    """Return the reasons for drift in the last run by split and feature."""
    reasons = {}
    for file in (newest(folder, "DistributionValidator/anomalies") or folder / "none").glob("SplitPair-*/*"):
        message = anomalies_pb2.Anomalies.FromString(file.read_bytes())
        for name, info in message.anomaly_info.items():
            reasons[f"{file.parent.name} {name}"] = " ".join(reason.description for reason in info.reason)
    return reasons


def main() -> None:
    """Run the pipeline of a day on this machine."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tfopt").setLevel(logging.INFO)
    data, module, folder, label = map(Path, sys.argv[1:])
    LocalDagRunner().run(daily(data, module, folder, str(label)))
    for feature, reason in drifted_features(folder).items():
        print(f"drifted: {feature}: {reason}")
    if not (folder / "schema.pbtxt").exists():
        print(f"review {newest(folder, 'SchemaGen/schema')}/schema.pbtxt, and copy it to {folder}")


if __name__ == "__main__":
    main()

"""A retraining of every day in TFX: TensorFlow Data Validation looks at the new data before anything learns from them.

What breaks the schema stops the training. What drifted since the last run is told, and learnt; where nothing changed,
the last model is handed on. Stock components and tfopt's stand side by side.

    python docs/tfx/daily.py rows.csv model.py runs/daily label

The first run infers the schema. A person looks at it, corrects it, and puts it into ``runs/daily/schema.pbtxt``.
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
from tfopt.tfx.components import TYPES, steps

DRIFT = 0.1  # of the Jensen-Shannon divergence of a feature's values, from 0 to 1
CHANGE = 0.05  # of a mean, a spread, the number of examples, or the loss: less is not learnt again


def daily(data: Path, module: Path, folder: Path, label: str) -> pipeline.Pipeline:
    """Build today's pipeline."""
    rows = Importer(source_uri=str(data), artifact_type=TYPES[artifacts.Files]).with_id("data")
    code = Importer(source_uri=str(module), artifact_type=TYPES[artifacts.PythonModule]).with_id("module")
    prepared = steps.prepare_examples(data=rows.outputs["result"], label=label)
    examples = prepared.outputs["examples"]
    statistics = StatisticsGen(examples=examples)
    nodes = [rows, code, prepared, statistics]
    learnt: dict[str, Any] = {"examples": examples, "module": code.outputs["result"], "label": label}

    schema = folder / "schema.pbtxt"
    if schema.exists():
        imported = ImportSchemaGen(schema_file=str(schema))
        found = ExampleValidator(statistics=statistics.outputs["statistics"], schema=imported.outputs["schema"])
        learnt["anomalies"] = found.outputs["anomalies"]
        nodes += [imported, found]
    else:
        nodes.append(SchemaGen(statistics=statistics.outputs["statistics"]))

    before = newest(folder, "StatisticsGen/statistics")
    if before and schema.exists():
        splits = {"split_names": '["train", "eval"]'}
        last = Importer(str(before), standard_artifacts.ExampleStatistics, properties=splits).with_id("last_statistics")
        compared = {"statistics": statistics.outputs["statistics"], "baseline_statistics": last.outputs["result"]}
        pairs = [("train", "train")]  # eval is too small to tell drift from chance
        nodes += [last, DistributionValidator(**compared, config=drift(schema), include_split_pairs=pairs)]

    start = newest(folder, "train/trained")
    if start:
        last = Importer(str(start), TYPES[artifacts.KerasModel]).with_id("last_model")
        learnt |= {"start": last.outputs["result"], "min_change": CHANGE}
        nodes.append(last)
    return pipeline.Pipeline(
        pipeline_name="daily",
        pipeline_root=str(folder / "artifacts"),
        components=[*nodes, steps.train(**learnt)],
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite")),
    )


def newest(folder: Path, output: str) -> Path | None:
    """What a step of the last run left."""
    runs = [run for run in (folder / "artifacts" / output).glob("*") if run.name.isdecimal() and any(run.iterdir())]
    return max(runs, key=lambda run: int(run.name), default=None)


def drift(schema: Path) -> distribution_validator_pb2.DistributionValidatorConfig:
    """Each feature of the schema is compared with what it was."""
    config = distribution_validator_pb2.DistributionValidatorConfig()
    for feature in text_format.Parse(schema.read_text(), schema_pb2.Schema()).feature:
        compared = config.default_slice_config.feature.add()
        compared.path.step.append(feature.name)
        compared.distribution_comparator.jensen_shannon_divergence.threshold = DRIFT
    return config


def drifted(folder: Path) -> dict[str, str]:
    """What the last run found to have drifted, by split and feature."""
    found = {}
    for file in (newest(folder, "DistributionValidator/anomalies") or folder / "none").glob("SplitPair-*/*"):
        message = anomalies_pb2.Anomalies.FromString(file.read_bytes())
        for name, info in message.anomaly_info.items():
            found[f"{file.parent.name} {name}"] = " ".join(reason.description for reason in info.reason)
    return found


def main() -> None:
    """Run today's pipeline here."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tfopt").setLevel(logging.INFO)
    data, module, folder, label = map(Path, sys.argv[1:])
    LocalDagRunner().run(daily(data, module, folder, str(label)))
    for place, words in drifted(folder).items():
        print(f"drifted: {place}: {words}")
    if not (folder / "schema.pbtxt").exists():
        print(f"look at {newest(folder, 'SchemaGen/schema')}/schema.pbtxt, and put it into {folder}")


if __name__ == "__main__":
    main()

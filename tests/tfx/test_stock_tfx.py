"""Test a pipeline of TFX's own components and ours: CsvExampleGen, Trainer, fold, TFLite, Evaluator, Pusher.

It also shows that TFX works with two wheels that are older than it requires (docs/adr/0003).
"""

import hashlib
import re
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory) -> Path:
    """Run the pipeline once and return its folder."""
    import tensorflow_model_analysis as tfma
    from sklearn.datasets import load_iris
    from tfx.components import CsvExampleGen, Evaluator, Pusher, Trainer
    from tfx.orchestration import metadata, pipeline
    from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner
    from tfx.proto import pusher_pb2, trainer_pb2

    from tests.stock_trainer import FEATURES
    from tfopt.tfx import steps

    folder = tmp_path_factory.mktemp("stock")
    iris = load_iris()
    rows = [",".join([*FEATURES, "species"])]
    rows += [",".join(map(str, [*row, label])) for row, label in zip(iris.data, iris.target, strict=True)]
    (folder / "csv").mkdir()
    (folder / "csv" / "iris.csv").write_text("\n".join(rows) + "\n")

    examples = CsvExampleGen(str(folder / "csv"))
    trainer = Trainer(
        run_fn="tests.stock_trainer.run_fn",
        examples=examples.outputs["examples"],
        train_args=trainer_pb2.TrainArgs(num_steps=1),
        eval_args=trainer_pb2.EvalArgs(num_steps=1),
    )
    folded = steps.fold_batch_norm(model=trainer.outputs["model"], examples=examples.outputs["examples"])
    exported = steps.export_tflite(
        model=folded.outputs["folded"], examples=examples.outputs["examples"], precision="float32"
    )
    accuracy_bound = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.8}))
    accuracy = tfma.MetricConfig(class_name="SparseCategoricalAccuracy", threshold=accuracy_bound)
    evaluator = Evaluator(
        examples=examples.outputs["examples"],
        model=exported.outputs["exported"],
        eval_config=tfma.EvalConfig(
            model_specs=[tfma.ModelSpec(model_type="tf_lite", label_key="species")],
            slicing_specs=[tfma.SlicingSpec()],
            metrics_specs=[tfma.MetricsSpec(metrics=[accuracy])],
        ),
    )
    pusher = Pusher(
        model=exported.outputs["exported"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=str(folder / "pushed"))
        ),
    )
    BeamDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="stock",
            pipeline_root=str(folder / "artifacts"),
            components=[examples, trainer, folded, exported, evaluator, pusher],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite")),
        )
    )
    return folder


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_tfx_evaluator_blesses_the_exported_tflite_model(artifacts):
    assert list((artifacts / "artifacts" / "Evaluator" / "blessing").glob("*/BLESSED"))


def test_tfx_pusher_pushes_the_exported_file(artifacts):
    exported = next((artifacts / "artifacts" / "export_tflite" / "exported").glob("*/Format-Serving/tflite"))
    pushed = next((artifacts / "pushed").glob("*/tflite"))
    assert digest(pushed) == digest(exported)


def test_fold_batch_norm_accepts_the_model_of_the_tfx_trainer(artifacts):
    import json

    card = next((artifacts / "artifacts" / "fold_batch_norm" / "folded").glob("*/model_card.json"))
    assert json.loads(card.read_text())["component"] == "fold_batch_norm"


def test_the_steps_of_the_guide_stand_between_stock_components():
    import tensorflow_model_analysis as tfma
    from tfx.components import CsvExampleGen, Trainer
    from tfx.proto import trainer_pb2

    text = (Path(__file__).parents[2] / "docs" / "own_dag.md").read_text()
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "Evaluator" in block]
    example_gen = CsvExampleGen("data")
    trainer = Trainer(
        run_fn="tests.stock_trainer.run_fn",
        examples=example_gen.outputs["examples"],
        train_args=trainer_pb2.TrainArgs(),
        eval_args=trainer_pb2.EvalArgs(),
    )
    names = {"example_gen": example_gen, "trainer": trainer, "eval_config": tfma.EvalConfig()}
    exec(block, names)
    exported, evaluator = names["exported"], names["evaluator"]
    assert evaluator.inputs["model"] is exported.outputs["exported"]
    assert exported.inputs["model"] is names["folded"].outputs["folded"]

"""Test pipelines of TFX's own components and ours: CsvExampleGen, Trainer, fold, TFLite, Evaluator, Pusher.

The second one, nightly, selects a winner in each format, in one file without a preprocessing.

It also shows that TFX works with two wheels that are older than it requires (docs/adr/0003).
"""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.stock_trainer import FEATURES
from tests.tfx.pushed_models import check_pushed, read_records, select_and_push
from tfopt.artifacts import Model


def start_pipeline(folder: Path) -> tuple[Any, Any]:
    """Write the CSV of iris; return CsvExampleGen and Trainer."""
    from sklearn.datasets import load_iris
    from tfx.components import CsvExampleGen, Trainer
    from tfx.proto import trainer_pb2

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
    return examples, trainer


def run_pipeline(folder: Path, runner: Any, components: list[Any]) -> None:
    from tfx.orchestration import metadata, pipeline

    runner.run(
        pipeline.Pipeline(
            pipeline_name="stock",
            pipeline_root=str(folder / "artifacts"),
            components=components,
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite")),
        )
    )


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory) -> Path:
    """Run the pipeline once and return its folder."""
    import tensorflow_model_analysis as tfma
    from tfx.components import Evaluator, Pusher
    from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner
    from tfx.proto import pusher_pb2

    from tfopt.tfx import steps

    folder = tmp_path_factory.mktemp("stock")
    examples, trainer = start_pipeline(folder)
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
    candidates = {"tflite": exported.outputs["exported"]}
    chosen = select_and_push(
        trainer.outputs["model"], candidates, examples.outputs["examples"], "species", folder, tuple(candidates)
    )
    run_pipeline(folder, BeamDagRunner(), [examples, trainer, folded, exported, evaluator, pusher, *chosen])
    return folder


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_tfx_evaluator_blesses_the_exported_tflite_model(artifacts):
    assert list((artifacts / "artifacts" / "Evaluator" / "blessing").glob("*/BLESSED"))


def test_tfx_pusher_pushes_the_exported_file(artifacts):
    exported = next((artifacts / "artifacts" / "export_tflite" / "exported").glob("*/Format-Serving/tflite"))
    pushed = next((artifacts / "pushed").glob("*/tflite"))
    assert digest(pushed) == digest(exported)
    assert len(list(pushed.parent.iterdir())) == 1  # without its parent's SavedModel


def test_tfx_pusher_pushes_the_selected_model(artifacts):
    records = read_records(next(artifacts.glob("artifacts/CsvExampleGen/examples/*/Split-eval/*")), 20)
    made = Model(next(artifacts.glob("artifacts/export_tflite/exported/*")))
    check_pushed(artifacts / "artifacts", artifacts / "pushed_tflite", "tflite", made, records)


@pytest.mark.nightly
def test_tfx_pusher_pushes_the_selected_model_in_each_format(tmp_path):
    import keras
    from tfx.dsl.components.common.importer import Importer
    from tfx.orchestration.local.local_dag_runner import LocalDagRunner
    from tfx.types import standard_artifacts

    from tfopt.tfx import steps

    small = keras.layers.Concatenate()(inputs := [keras.Input((1,), name=name) for name in FEATURES])
    small = keras.Model(inputs, keras.layers.Dense(3, activation="softmax", name="species")(small))
    (tmp_path / "keras" / "Format-Keras").mkdir(parents=True)
    small.save(tmp_path / "keras" / "Format-Keras" / "model.keras")
    generated, trainer = start_pipeline(tmp_path)
    imported = Importer(str(tmp_path / "keras"), standard_artifacts.Model).with_id("keras")
    examples, model = generated.outputs["examples"], trainer.outputs["model"]
    folded = steps.fold_batch_norm(model=model, examples=examples)
    arguments = {"model": folded.outputs["folded"], "examples": examples}
    exports = {name: getattr(steps, f"export_{name}")(**arguments) for name in ("tflite", "onnx", "openvino")}
    candidates = {"saved_model": folded.outputs["folded"], "keras": imported.outputs["result"]}
    candidates |= {name: step.outputs["exported"] for name, step in exports.items()}
    chosen = select_and_push(model, candidates, examples, "species", tmp_path, tuple(candidates))
    run_pipeline(tmp_path, LocalDagRunner(), [generated, trainer, imported, folded, *exports.values(), *chosen])
    made = {name: next(tmp_path.glob(f"artifacts/export_{name}/exported/*")) for name in exports}
    made |= {"saved_model": next(tmp_path.glob("artifacts/fold_batch_norm/folded/*")), "keras": tmp_path / "keras"}
    records = read_records(next(tmp_path.glob("artifacts/CsvExampleGen/examples/*/Split-eval/*")), 20)
    for name in candidates:
        check_pushed(tmp_path / "artifacts", tmp_path / f"pushed_{name}", name, Model(made[name]), records)


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

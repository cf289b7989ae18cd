"""Test a pipeline as TFX's tutorials build it, with our steps between the Trainer and the Pusher.

CsvExampleGen, StatisticsGen, SchemaGen, Transform, Trainer; fold_batch_norm, two exports, evaluate, benchmark,
select_model; Evaluator and Pusher. The trainer's signature takes serialized records and applies the Transform graph.
The pipeline with Keras 2 imports the schema, and Transform computes no statistics, which takes several seconds less.
"""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tfx.flights_trainer import LABEL, NUMBERS, TEXT
from tfopt import runtimes
from tfopt.artifacts import Evaluation, Model

FLIGHTS = Path(__file__).parents[2] / "docs" / "flights" / "data.py"
KERAS = [pytest.param("tf_keras"), pytest.param("keras", marks=pytest.mark.nightly)]


def write_flights(folder: Path, count: int) -> None:
    """Write a CSV of flights from New York in 2013 with words, numbers, and whether they arrived late."""
    spec = importlib.util.spec_from_file_location("flights_data", FLIGHTS)
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    flights, weather = data.tables()
    flights = flights.dropna(subset=["arr_delay"]).sample(count, random_state=0)
    flights[LABEL] = (flights["arr_delay"] > data.LATE).astype(int)
    flights["temp"] = flights["month"].map(weather.groupby("month")["temp"].mean())
    folder.mkdir()
    flights[[*TEXT, *NUMBERS, LABEL]].to_csv(folder / "flights.csv", index=False)


def write_schema(file: Path) -> str:
    """Write the schema that SchemaGen infers from the flights, and return its path."""
    types = {**dict.fromkeys(TEXT, "BYTES"), **dict.fromkeys(NUMBERS, "INT"), LABEL: "INT"}
    shape = "presence {min_fraction: 1 min_count: 1} shape {dim {size: 1}}"
    file.write_text("\n".join(f'feature {{name: "{name}" type: {type} {shape}}}' for name, type in types.items()))
    return str(file)


@pytest.fixture(scope="module", params=KERAS)
def run(request, tmp_path_factory) -> SimpleNamespace:
    """Run the pipeline on Beam; return its folder and the newest output of each step."""
    import tensorflow_model_analysis as tfma
    from tfx.components import CsvExampleGen, Evaluator, Pusher, SchemaGen, StatisticsGen, Trainer, Transform
    from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
    from tfx.orchestration import metadata, pipeline
    from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner
    from tfx.proto import pusher_pb2, trainer_pb2

    from tfopt.tfx import steps

    is_short = request.param == "tf_keras"
    folder = tmp_path_factory.mktemp("flights")
    write_flights(folder / "csv", 900)
    generated = CsvExampleGen(str(folder / "csv"))
    examples = generated.outputs["examples"]
    if not is_short:
        statistics = StatisticsGen(examples=examples)
        schemas = [statistics, SchemaGen(statistics=statistics.outputs["statistics"])]
    else:
        schemas = [ImportSchemaGen(write_schema(folder / "schema.pbtxt"))]
    schema = schemas[-1]
    transform = Transform(
        examples=examples,
        schema=schema.outputs["schema"],
        preprocessing_fn="tests.tfx.flights_trainer.preprocessing_fn",
        disable_statistics=is_short,
        disable_analyzer_cache=is_short,
    )
    trainer = Trainer(
        run_fn="tests.tfx.flights_trainer.run_fn",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema.outputs["schema"],
        custom_config={"keras": request.param},
        train_args=trainer_pb2.TrainArgs(num_steps=1),
        eval_args=trainer_pb2.EvalArgs(num_steps=1),
    )
    model = trainer.outputs["model"]
    folded = steps.fold_batch_norm(model=model, examples=examples)
    lite = steps.export_tflite(model=folded.outputs["folded"], examples=examples, precision="int8")
    onnx = steps.export_onnx(model=model, examples=examples)
    candidates = [folded.outputs["folded"], lite.outputs["exported"], onnx.outputs["exported"]]
    evaluated = steps.evaluate(baseline=model, candidates=candidates, examples=examples, label=LABEL)
    compared = {"baseline": model, "candidates": candidates[:1]}  # other formats need one more import of TensorFlow
    measured = steps.benchmark(**compared, examples=examples, seconds=0.1, rounds=8, batch_sizes=["1"])
    selected = steps.select_model(
        **compared,
        evaluation=evaluated.outputs["evaluation"],
        benchmark=measured.outputs["benchmark"],
        goals=["accuracy max_degradation 100%"],
    )
    bound = tfma.MetricThreshold(value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.5}))
    metric = tfma.MetricConfig(class_name="BinaryAccuracy", threshold=bound)
    evaluator = Evaluator(
        examples=examples,
        model=folded.outputs["folded"],
        eval_config=tfma.EvalConfig(
            model_specs=[tfma.ModelSpec(label_key=LABEL, signature_name="serving_default")],
            slicing_specs=[tfma.SlicingSpec()],
            metrics_specs=[tfma.MetricsSpec(metrics=[metric])],
        ),
    )

    def push(name: str, pushed: object, blessing: object) -> Pusher:
        place = pusher_pb2.PushDestination.Filesystem(base_directory=str(folder / name))
        destination = pusher_pb2.PushDestination(filesystem=place)
        return Pusher(model=pushed, model_blessing=blessing, push_destination=destination).with_id(name)

    ours = steps.push_model(
        model=folded.outputs["folded"],
        blessing=evaluator.outputs["blessing"],
        examples=examples,
        destination=str(folder / "push_model"),
    )
    pushers = [
        push("stock_blessing", folded.outputs["folded"], evaluator.outputs["blessing"]),
        push("our_blessing", selected.outputs["selected"], selected.outputs["blessing"]),
    ]
    stock = [generated, *schemas, transform, trainer, evaluator, *pushers]
    BeamDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="flights",
            pipeline_root=str(folder / "artifacts"),
            components=[*stock, folded, lite, onnx, evaluated, measured, selected, ours],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite")),
        )
    )

    def output(step: str, name: str) -> Path:
        return max((folder / "artifacts" / step / name).iterdir(), key=lambda path: int(path.name))

    return SimpleNamespace(folder=folder, output=output)


def test_steps_take_the_records_of_the_trainers_signature(run):
    rows = Evaluation(run.output("evaluate", "evaluation")).load().models
    assert [row.error for row in rows] == [None] * 4
    baseline, folded, lite, onnx = (row.metrics["accuracy"].value for row in rows)
    assert folded == onnx == baseline
    assert abs(lite - baseline) < 0.03


def test_fold_batch_norm_folds_behind_the_transform_graph(run):
    card = json.loads((run.output("fold_batch_norm", "folded") / "model_card.json").read_text())
    assert card["folded"] == 1


def test_exports_hold_the_layers_and_leave_the_vocabularies_to_a_saved_model(run):
    for step in ("export_tflite", "export_onnx"):
        exported = Model(run.output(step, "exported"))
        core = exported.card.facts["cut"]["core_inputs"]
        numbers = {f"{name}: float32[?,1]" for name in NUMBERS}
        assert set(core.split(", ")) == numbers | {f"{name}: int64[?,1]" for name in TEXT}
        assert exported.card.facts["cut"]["ops"]["LookupTableFindV2"] == len(TEXT)
        with runtimes.load(exported) as runtime:
            assert list(runtime.inputs) == ["examples"]


def test_stock_evaluator_blesses_the_folded_model_and_stock_pusher_pushes_it(run):
    assert (run.output("Evaluator", "blessing") / "BLESSED").is_file()
    assert list((run.folder / "stock_blessing").glob("*/saved_model.pb"))


def test_stock_pusher_reads_our_blessing(run):
    blessed = (run.output("select_model", "blessing") / "BLESSED").is_file()
    assert blessed == bool(list((run.folder / "our_blessing").glob("*/*")))
    assert blessed or (run.output("select_model", "blessing") / "NOT_BLESSED").is_file()


def test_push_model_reads_the_blessing_of_the_stock_evaluator(run):
    pushed = json.loads((run.output("push_model", "pushed") / "pushed.json").read_text())
    assert pushed["pushed"]
    assert "TFX's Evaluator wrote BLESSED" in json.dumps(pushed)

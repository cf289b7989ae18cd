"""Test a pipeline as TFX's tutorials build it, with our steps between the Trainer and the Pusher.

CsvExampleGen, StatisticsGen, SchemaGen, Transform, Trainer; fold_batch_norm, exports, evaluate, benchmark, a
select_model for each winner; Evaluator and Pusher. The trainer's signature takes serialized records and applies the
Transform graph.
The pipeline with Keras 2 imports the schema, and Transform computes no statistics, which takes several seconds less.
"""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tfx.flights_trainer import LABEL, NUMBERS, TEXT
from tests.tfx.pushed_models import check_pushed, read_records, select_and_push
from tfopt import runtimes
from tfopt.artifacts import Evaluation, Model

FLIGHTS = Path(__file__).parents[2] / "docs" / "flights" / "data.py"
SHORT_WINNERS = ("saved_model", "tflite")
pytestmark = pytest.mark.nightly  # daily: test_stock_tfx.py, and signatures with tables in test_record_signatures.py


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


@pytest.fixture(scope="module", params=["tf_keras", "keras"])
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
    candidates = {"saved_model": folded.outputs["folded"]}
    candidates |= {"tflite": lite.outputs["exported"], "onnx": onnx.outputs["exported"]}
    exports = [lite, onnx]
    if not is_short:
        exports.append(steps.export_openvino(model=model, examples=examples))
        candidates["openvino"] = exports[-1].outputs["exported"]
    winners = SHORT_WINNERS if is_short else tuple(candidates)
    optimized = [folded, *exports, *select_and_push(model, candidates, examples, LABEL, folder, winners)]
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

    ours = steps.push_model(
        model=folded.outputs["folded"],
        blessing=evaluator.outputs["blessing"],
        examples=examples,
        destination=str(folder / "push_model"),
    )
    place = pusher_pb2.PushDestination.Filesystem(base_directory=str(folder / "stock_blessing"))
    pusher = Pusher(
        model=folded.outputs["folded"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(filesystem=place),
    )
    stock = [generated, *schemas, transform, trainer, evaluator, pusher]
    BeamDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="flights",
            pipeline_root=str(folder / "artifacts"),
            components=[*stock, *optimized, ours],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite")),
        )
    )

    def output(step: str, name: str) -> Path:
        return max((folder / "artifacts" / step / name).iterdir(), key=lambda path: int(path.name))

    outputs = {"saved_model": "folded"}
    models = {
        name: Model(output(channel.producer_component_id, outputs.get(name, "exported")))
        for name, channel in candidates.items()
    }
    return SimpleNamespace(folder=folder, output=output, models=models, winners=winners)


def test_steps_take_the_records_of_the_trainers_signature(run):
    rows = Evaluation(run.output("evaluate", "evaluation")).load().models
    assert {row.error for row in rows} == {None}
    baseline, folded, lite, onnx, *_ = (row.metrics["accuracy"].value for row in rows)
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


def test_stock_pusher_writes_the_selected_saved_model_and_no_half_of_a_model_in_two_parts(run):
    (file,) = (run.output("CsvExampleGen", "examples") / "Split-eval").iterdir()
    records = read_records(file, 20)
    for winner in run.winners:
        check_pushed(run.folder / "artifacts", run.folder / f"pushed_{winner}", winner, run.models[winner], records)


def test_push_model_reads_the_blessing_of_the_stock_evaluator(run):
    pushed = json.loads((run.output("push_model", "pushed") / "pushed.json").read_text())
    assert pushed["pushed"]
    assert "TFX's Evaluator wrote BLESSED" in json.dumps(pushed)

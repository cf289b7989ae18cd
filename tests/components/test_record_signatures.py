"""Test models whose signature takes serialized records or text, as the tools of their owners write them."""

import json
import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import record_models
from tests.components.exporters import EXPORTERS
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import Benchmark, Evaluation, Examples, Model, SavedModel
from tfopt.artifacts.model_card import write_card
from tfopt.component import find
from tfopt.components.benchmark.inputs import Inputs
from tfopt.components.benchmark.worker import Worker
from tfopt.conversion.core_model import convert_model
from tfopt.data.tfrecords import read_records
from tfopt.errors import ComponentError
from tfopt.serving.layouts import resolve_layout, version_files

FORMATS = ("tflite", "onnx", "openvino")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write every model and the examples, in a path with a space."""
    folder = tmp_path_factory.mktemp("record models")
    record_models.write_examples(folder / "examples")
    record_models.save_parsing_model(folder / "keras_2" / "Format-Serving", keras_2=True)
    record_models.save_parsing_model(folder / "keras_3" / "Format-Serving", keras_2=False)
    record_models.save_parsing_model(folder / "default" / "Format-Serving", keras_2=False, default=True)
    record_models.save_parsing_model(folder / "scaled" / "Format-Serving", keras_2=True, scale=3.0)
    record_models.save_image_model(folder / "image" / "Format-Serving")
    record_models.save_text_model(folder / "text" / "Format-Serving")
    record_models.save_estimator_model(folder / "estimator" / "Format-Serving")
    return folder


@pytest.fixture(scope="module")
def exports(folder, tmp_path_factory) -> Any:
    """Return a function that exports a model to a format once, in this process."""
    target, paths = tmp_path_factory.mktemp("exports"), {}

    def export(name: str, format: str, **parameters: Any) -> Model:
        key = (name, format, *sorted(parameters.items()))
        if key not in paths:
            paths[key] = target / str(len(paths)) / "staged"
            paths[key].mkdir(parents=True)
            convert = import_module(f"tfopt.components.export_{format}.export").export
            (exporter,) = (exporter for exporter in EXPORTERS if exporter.format == format)
            settings = exporter.parameters(**parameters)
            examples = Examples(folder / "examples")
            facts = convert_model(convert, Model(folder / name), examples, paths[key], settings)
            write_card(paths[key], facts | {"name": f"{name} {format}"})
        return Model(paths[key])

    return export


def records(folder: Path) -> Any:
    """Return the serialized records of the split eval."""
    files = sorted((folder / "examples" / "Split-eval").iterdir())
    return np.array(list(read_records(files)), object)


def inputs(folder: Path, name: str) -> dict[str, Any]:
    """Return the inputs of a model for all records of the split eval."""
    import tensorflow as tf

    serialized = records(folder)
    if name != "text":
        return {"examples": serialized}
    parsed = tf.io.parse_example(tf.constant(serialized), {"text": tf.io.FixedLenFeature([], tf.string)})
    return {"text": parsed["text"].numpy()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("keras_2", {"a": "float32[?,1]", "b": "float32[?,1]", "n": "int64[?,2]"}),
        ("keras_3", {"a": "float32[?,1]", "b": "float32[?,1]", "n": "int64[?,2]"}),
        ("default", {"a": "float32[?,1]", "b": "float32[?,1]", "sometimes": "int64[?,2]"}),
        ("image", {"jpeg": "string[?]"}),
        ("estimator", {"a": "float32[?,1]", "b": "float32[?,1]", "text": "string[?,?]"}),
    ],
)
def test_load_finds_the_features_that_the_graph_parses(folder, name, expected):
    spec = runtimes.load(Model(folder / name)).inputs["examples"]
    assert {feature: str(spec) for feature, spec in spec.features.items()} == expected


def test_load_finds_kind_and_default_value_of_features(folder):
    default = runtimes.load(Model(folder / "default")).inputs["examples"].features
    assert default["sometimes"].default.tolist() == [3, 1]
    assert default["a"].default is None
    estimator = runtimes.load(Model(folder / "estimator")).inputs["examples"].features
    assert {name: feature.kind for name, feature in estimator.items()} == {"a": "dense", "b": "dense", "text": "sparse"}


@pytest.mark.parametrize(("name", "format"), [*(("keras_2", format) for format in FORMATS), ("keras_3", "tflite")])
def test_exported_file_takes_the_parsed_features(folder, exports, name, format):
    import tensorflow as tf

    exported = exports(name, format)
    spec = {"a": tf.io.FixedLenFeature([1], tf.float32), "b": tf.io.FixedLenFeature([1], tf.float32)}
    parsed = tf.io.parse_example(tf.constant(records(folder)), {**spec, "n": tf.io.FixedLenFeature([2], tf.int64)})
    with runtimes.load(Model(folder / name)) as parent, runtimes.load(exported) as child:
        assert sorted(child.inputs) == ["a", "b", "n"]
        expected = parent.run({"examples": records(folder)})["outputs"]
        received = child.run({key: value.numpy() for key, value in parsed.items()})["outputs"]
    np.testing.assert_allclose(received, expected, atol=1e-5)
    assert exported.card.facts["cut"] == {
        "core_inputs": "a: float32[?,1], b: float32[?,1], n: int64[?,2]",
        "preprocessing": None,
        "ops": exported.card.facts["cut"]["ops"],
    }
    assert exported.card.facts["cut"]["ops"]["ParseExampleV2"] == 1


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("text", "tflite"),
        *(pytest.param("text", format, marks=pytest.mark.nightly) for format in ("onnx", "openvino")),
        ("default", "openvino"),
        ("image", "tflite"),
        ("estimator", "onnx"),
    ],
)
def test_exported_file_runs_after_a_preprocessing_saved_model(folder, exports, name, format):
    exported = exports(name, format)
    assert exported.format == format
    assert (exported.path / "Format-Serving" / "Format-Preprocessing" / "saved_model.pb").is_file()
    assert exported.preprocessing / "saved_model.pb" in exported.payload()
    batch = inputs(folder, name)
    with runtimes.load(Model(folder / name)) as parent, runtimes.load(exported) as child:
        assert list(child.inputs) == list(parent.inputs)
        for output, expected in parent.run(batch).items():
            np.testing.assert_allclose(child.run(batch)[output], expected, atol=1e-5)
            assert np.ptp(expected) > 1e-3


def test_core_of_an_image_model_begins_after_the_decoding(exports):
    assert exports("image", "tflite").card.facts["cut"]["core_inputs"] == "jpeg: float32[?,8,8,3]"


def test_core_of_a_text_model_begins_with_numbers_of_words(exports):
    assert exports("text", "tflite").card.facts["cut"]["core_inputs"].endswith("int64[?,6]")


@pytest.mark.parametrize("name", ["keras_2", "text"])
def test_int8_is_calibrated_on_what_the_core_receives(folder, exports, name):
    exported = exports(name, "tflite", precision="int8", tolerance=0.5)
    batch = inputs(folder, name)
    with runtimes.load(Model(folder / name)) as parent:
        expected = next(iter(parent.run(batch).values()))
    verified = next(iter(exported.card.facts["verified"]["outputs"].values()))
    assert verified["max_abs_error"] < 0.5 * np.ptp(expected)
    assert verified["correlation"] > 0.95
    calibration = exported.card.facts["calibration"]
    assert calibration["used"] == len(calibration["records"]) == record_models.COUNT


def test_evaluate_counts_calibration_records_of_a_cut_model(folder, exports, tmp_path):
    arguments = {
        "baseline": folder / "text",
        "candidates": [exports("text", "tflite", precision="int8", tolerance=0.5)],
    }
    find("evaluate")(**arguments, examples=folder / "examples", evaluation=tmp_path / "e", label="two", split="train")
    assert "calibrated" in Evaluation(tmp_path / "e").load().models[1].error


def test_evaluate_runs_models_on_raw_records_and_on_features(folder, exports, tmp_path):
    import tensorflow as tf

    candidates = [exports("keras_2", format) for format in FORMATS]
    find("evaluate")(
        baseline=folder / "keras_2",
        candidates=candidates,
        examples=folder / "examples",
        evaluation=tmp_path / "e",
        label="label",
    )
    report = Evaluation(tmp_path / "e").load()
    labels = tf.io.parse_example(tf.constant(records(folder)), {"label": tf.io.FixedLenFeature([], tf.int64)})["label"]
    with runtimes.load(Model(folder / "keras_2")) as parent:
        classes = parent.run({"examples": records(folder)})["outputs"].argmax(1)
    assert [model.error for model in report.models] == [None] * 4
    for model in report.models:
        assert model.metrics["accuracy"].value == pytest.approx(float((classes == labels.numpy()).mean()))


def test_evaluate_skips_records_without_a_parsed_feature(folder, tmp_path):
    import tensorflow as tf

    split = tmp_path / "examples" / "Split-eval"
    split.mkdir(parents=True)
    broken = tf.train.Example.FromString(records(folder)[0])
    del broken.features.feature["b"]
    with tf.io.TFRecordWriter(str(split / "data_tfrecord-00000-of-00001")) as writer:
        for record in [*records(folder)[:20], broken.SerializeToString()]:
            writer.write(record)
    models = {"baseline": folder / "keras_3", "candidates": [folder / "keras_2"]}
    find("evaluate")(
        **models, examples=tmp_path / "examples", evaluation=tmp_path / "e", label="label", max_skipped=0.1
    )
    report = Evaluation(tmp_path / "e").load()
    assert report.counts.skipped_because == {"a feature missing, or of another type or length": 1}
    assert report.counts.evaluated == 20
    assert [model.error for model in report.models] == [None, None]


def test_evaluate_gives_the_records_of_every_batch_to_models_that_parse_them(folder, tmp_path):
    import tensorflow as tf

    split = tmp_path / "examples" / "Split-eval"
    split.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(split / "data_tfrecord-00000-of-00001")) as writer:
        for record in [*records(folder)] * 3:  # more than a batch, whose first one the plan has run
            writer.write(record)
    models = {"baseline": folder / "keras_3", "candidates": [folder / "keras_3", folder / "keras_2"]}
    find("evaluate")(**models, examples=tmp_path / "examples", evaluation=tmp_path / "e", label="label")
    report = Evaluation(tmp_path / "e").load()
    assert report.counts.evaluated == 3 * record_models.COUNT
    assert [model.error for model in report.models] == [None, None, None]


def test_evaluate_refuses_examples_without_a_parsed_feature(folder, digits_examples, tmp_path):
    models = {"baseline": folder / "keras_3", "candidates": [folder / "keras_2"]}
    with pytest.raises(ComponentError, match="no feature 'a'"):
        find("evaluate")(**models, examples=digits_examples, evaluation=tmp_path / "e", label="label")


@pytest.fixture
def records_model(folder, tmp_path) -> Path:
    """Write a model with the signature ``records``, and no ``serving_default``."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder / "keras_2" / "Format-Serving"))
    signatures = {"records": loaded.signatures["serving_default"]}
    tf.saved_model.save(loaded, str(tmp_path / "model"), signatures=signatures)
    return tmp_path / "model"


def test_a_worker_of_benchmark_measures_records_of_a_signature_against_features(
    folder, exports, records_model, tmp_path
):
    import tensorflow as tf

    threads = tf.config.threading.get_intra_op_parallelism_threads()  # it cannot change in this process
    drawn = Inputs(Examples(folder / "examples").split("eval"), records=4, seed=0, folder=tmp_path)
    for model in (records_model, exports("keras_2", "onnx").path):
        worker = Worker({})
        worker.feed(str(drawn.file(worker.load(str(model), "records", threads)["inputs"])))
        assert worker.prepare(2)["not_finite"] == []
        calls, _ = worker.burst(0.01, 0.0)
        assert (calls > 0).all()


@pytest.mark.nightly  # the test above measures in this process, without an import of TensorFlow and 8 rounds
def test_benchmark_measures_records_of_a_signature_against_features(folder, exports, records_model, tmp_path):
    models = {"baseline": records_model, "candidates": [exports("keras_2", "onnx")], "signature": "records"}
    settings = {"examples": folder / "examples", "seconds": 0.1, "rounds": 8, "batch_sizes": ["1"]}
    find("benchmark")(**models, **settings, benchmark=tmp_path / "b")
    report = Benchmark(tmp_path / "b").load()
    assert [model.error for model in report.models] == [None] * 2
    assert all(model.latency["1"].p50 > 0 for model in report.models)


def test_random_inputs_of_benchmark_are_records_or_features(folder, exports, tmp_path):
    for model in (Model(folder / "keras_2"), exports("keras_2", "tflite")):
        with runtimes.load(model) as runtime:
            file = Inputs([], records=4, seed=0, folder=tmp_path).file(runtime.inputs)
            assert runtime.run(pickle.loads(file.read_bytes()))["outputs"].shape == (4, 3)


@pytest.mark.parametrize("name", ["keras_2", pytest.param("keras_3", marks=pytest.mark.nightly), "image"])
def test_fold_batch_norm_keeps_the_string_signature(folder, tmp_path, name):
    find("fold_batch_norm")(model=folder / name, folded=tmp_path / "folded", examples=folder / "examples")
    folded = SavedModel(tmp_path / "folded")
    assert folded.card.facts["folded"] == 1
    with runtimes.load(Model(folder / name)) as parent, runtimes.load(folded) as child:
        batch = inputs(folder, name)
        assert child.inputs == parent.inputs
        np.testing.assert_allclose(child.run(batch)["outputs"], parent.run(batch)["outputs"], atol=1e-5)


@pytest.mark.parametrize(
    ("component", "name"),
    [
        *(("optimize_graph", name) for name in ("text", "estimator")),
        ("cast_precision", "text"),
        *(pytest.param(name, "keras_2", marks=pytest.mark.nightly) for name in ("optimize_graph", "cast_precision")),
    ],
)
def test_graph_components_take_random_records_and_words_of_the_graph(folder, tmp_path, component, name):
    (output,) = find(component).outputs
    find(component)(model=folder / name, **{output: tmp_path / "out"})
    with runtimes.load(Model(folder / name)) as parent, runtimes.load(Model(tmp_path / "out")) as child:
        batch = inputs(folder, name)
        for key, expected in parent.run(batch).items():
            np.testing.assert_allclose(child.run(batch)[key], expected, atol=0.05)


@pytest.mark.parametrize("name", ["default", pytest.param("image", marks=pytest.mark.nightly)])
def test_optimize_graph_adds_a_signature_of_features(folder, tmp_path, name):
    import tensorflow as tf

    settings = {"feature_signature": "features", "passes": ["drop_control_edges"]}  # the signature needs no passes
    find("optimize_graph")(model=folder / name, examples=folder / "examples", optimized=tmp_path / "out", **settings)
    with runtimes.load(Model(folder / name)) as parent, runtimes.load(Model(tmp_path / "out")) as child:
        expected = parent.run(inputs(folder, name))["outputs"]
        np.testing.assert_allclose(child.run(inputs(folder, name))["outputs"], expected, atol=1e-5)
        features = parent.inputs["examples"].features
    parsed = tf.io.parse_example(records(folder), {key: feature.parser() for key, feature in features.items()})
    with runtimes.load(Model(tmp_path / "out"), signature="features") as child:
        received = child.run({key: value.numpy() for key, value in parsed.items()})["outputs"]
    np.testing.assert_allclose(received, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "key"), [("text", "features"), ("estimator", "features"), ("keras_3", "serving_default")]
)
def test_feature_signature_is_refused(folder, tmp_path, name, key):
    with pytest.raises(ComponentError, match=r"without one op that parses dense features|feature_signature="):
        find("optimize_graph")(model=folder / name, optimized=tmp_path / "out", feature_signature=key)


def test_random_text_consists_of_the_words_that_the_graph_looks_up(folder):
    from tfopt.data.sample_inputs import random_batch

    with runtimes.load(Model(folder / "text")) as runtime:
        texts = random_batch(runtime.inputs, records=50, seed=0)["text"]
    words = {word.decode() for text in texts for word in text.split()}
    assert words == set(record_models.WORDS)


def test_random_records_need_examples_for_text_without_a_vocabulary(folder):
    from tfopt.data.sample_inputs import random_batch

    with runtimes.load(Model(folder / "image")) as runtime, pytest.raises(ComponentError, match="'jpeg' takes string"):
        random_batch(runtime.inputs, records=1, seed=0)


@pytest.mark.parametrize(
    "component",
    [("prune", {"sparsity": 0.5}), pytest.param(("cluster", {"clusters": 4}), marks=pytest.mark.nightly)],
)
def test_keras_components_keep_the_string_signature(folder, tmp_path, component):
    name, parameters = component
    (output,) = find(name).outputs
    find(name)(model=folder / "keras_2", examples=folder / "examples", **parameters, **{output: tmp_path / "out"})
    with runtimes.load(Model(folder / "keras_2")) as parent, runtimes.load(Model(tmp_path / "out")) as child:
        assert {key: str(spec) for key, spec in child.inputs["examples"].features.items()} == {
            key: str(spec) for key, spec in parent.inputs["examples"].features.items()
        }
        outputs = child.run(inputs(folder, "keras_2"))["outputs"]
        assert np.ptp(outputs) > 1e-3


def test_keras_components_refuse_a_signature_that_does_more_than_parsing(folder, tmp_path):
    with pytest.raises(ComponentError, match="of the signature and of the Keras form differ"):
        find("cluster")(
            model=folder / "scaled", examples=folder / "examples", clusters=4, clustered=tmp_path / "clustered"
        )
    assert not (tmp_path / "clustered").exists()


def test_validate_serving_sends_records(folder, tmp_path):
    find("validate_serving")(
        model=folder / "keras_3", examples=folder / "examples", infra_blessing=tmp_path / "blessing", seconds=0.2
    )
    assert json.loads((tmp_path / "blessing" / "infra_blessing.json").read_text())["blessed"]


def test_push_layouts_of_servers_refuse_a_model_in_two_parts(exports):
    exported = exports("text", "onnx")
    assert resolve_layout(exported, "auto") == "plain"
    names = version_files(exported, "plain")
    assert {"model.onnx", "Format-Preprocessing/saved_model.pb"} <= set(names)
    with pytest.raises(ComponentError, match="after a preprocessing SavedModel, layout='triton'"):
        version_files(exported, "triton")


def test_cut_at_begins_the_core_after_a_node(folder, tmp_path):
    from tfopt.saved_models.saved_model import read

    relu = next(node.name for node in read(folder / "keras_3" / "Format-Serving").graph.node if node.op == "Relu")
    find("export_onnx")(
        model=folder / "keras_3", examples=folder / "examples", exported=tmp_path / "out", cut_at=[relu]
    )
    exported = Model(tmp_path / "out")
    assert exported.card.facts["cut"]["core_inputs"].endswith("float32[?,24]")
    with runtimes.load(Model(folder / "keras_3")) as parent, runtimes.load(exported) as child:
        batch = inputs(folder, "keras_3")
        np.testing.assert_allclose(child.run(batch)["outputs"], parent.run(batch)["outputs"], atol=1e-5)


def test_cut_at_refuses_a_node_that_does_not_exist(folder, tmp_path):
    with pytest.raises(ComponentError, match="cut_at=nothing"):
        find("export_onnx")(model=folder / "keras_3", exported=tmp_path / "out", cut_at=["nothing"])


def test_cut_refuses_an_output_of_text(tmp_path):
    import tensorflow as tf

    model = saved(tmp_path / "model", lambda text: {"upper": tf.strings.upper(text)}, text=([None], tf.string))
    with pytest.raises(ComponentError, match="output upper is text"):
        find("export_tflite")(model=model, exported=tmp_path / "out")
    assert not (tmp_path / "out").exists()

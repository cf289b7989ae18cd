"""Test that sources that do not fit each other are one error before the first step, without TensorFlow."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as SavedModelProto

import tfopt
from tfopt import optimization
from tfopt.artifacts import Examples, SavedModel
from tfopt.artifacts.saved_model_proto import peek_inputs
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.cli.main import main
from tfopt.component import Input
from tfopt.dag.source_checks import check_sources
from tfopt.dag.tracing import Steps, load, trace
from tfopt.data import tf_example
from tfopt.data.tfrecords import peek_records, read_records, write_split
from tfopt.errors import ComponentError, ExamplesError

FLOATS, INTEGERS = [0.5, 1, 2], [1]
PREPARE = "tfopt prepare_examples"


def record(**features) -> bytes:
    types = {"bytes": "string", "float": "float32", "int": "int64"}
    kinds = {
        name: max((type(value).__name__ for value in values), key="int float bytes".find)
        for name, values in features.items()
    }
    return tf_example.serialize(features, {name: types[kind] for name, kind in kinds.items()})


def examples(folder: Path, *records: bytes, splits: tuple[str, ...] = ("train", "eval")) -> Path:
    for split in splits:
        write_split(folder, split, records or [record(x=FLOATS, label=INTEGERS)] * 3)
    return folder


def saved(folder: Path, *specs: tf.TensorSpec, function=lambda *inputs: {"y": tf.identity(inputs[0])}) -> Path:
    module = tf.Module()
    module.serve = tf.function(function, input_signature=specs, autograph=False)
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("model") / "saved", tf.TensorSpec([None, 3], tf.float32, "x"))


def check(model: Path, examples: Path, **values) -> None:
    dag = load("optimize")
    check_sources(dag, dag.values({"model": model, "examples": examples, **values}))


@pytest.mark.parametrize("command", ["run", "plan"])
def test_examples_without_the_feature_of_an_input_are_refused_before_the_first_step(command, model, tmp_path, capsys):
    bad = examples(tmp_path / "examples", record(z=[1.5] * 4, label=INTEGERS))
    root = tmp_path / "root"
    words = [command, "optimize", "--engine", "process", "--root", str(root)]
    assert main([*words, "--set", f"model={model}", "--set", f"examples={bad}"]) == 1
    error = capsys.readouterr().err
    assert f"{bad}: no feature 'x', float32[?,3]" in error
    assert "there are label: int64[?,1], z: float32[?,4]" in error
    assert error.count("received:") == 1
    assert PREPARE in error
    assert not root.exists()


def test_optimize_of_python_refuses_examples_before_its_first_step(model, tmp_path, monkeypatch):
    monkeypatch.setattr(optimization, "run_recorded", lambda *arguments: pytest.fail("a step was started"))
    bad = examples(tmp_path / "examples", record(z=[1.5] * 4, label=INTEGERS))
    with pytest.raises(ExamplesError, match="no feature 'x'"):
        tfopt.optimize(str(model), str(bad), path=tmp_path / "root")


@pytest.mark.parametrize(
    ("records", "splits", "values", "received"),
    [
        ([], ("train",), {}, "split 'eval' missing"),
        ([], ("eval",), {}, "split 'train' missing"),
        ([], ("train", "test"), {}, "split 'eval' missing"),  # of benchmark
        ([record(x=FLOATS)], ("train", "eval"), {}, "no label 'label'"),
        ([], ("train", "eval"), {"label": "lable"}, "no label 'lable'"),
        ([record(x=[1.5] * 4, label=INTEGERS)], ("train", "eval"), {}, "feature 'x' has 4 values"),
        ([record(x=[b"a"], label=INTEGERS)], ("train", "eval"), {}, "feature 'x' is string"),
        ([b"\xff\xff"], ("train", "eval"), {}, "no tf.Example in the first 1 records"),
    ],
)
def test_examples_that_no_candidate_could_use_are_refused(records, splits, values, received, model, tmp_path):
    folder = examples(tmp_path / "examples", *records, splits=splits)
    with pytest.raises(ExamplesError) as error:
        check(model, folder, **values)
    assert received in error.value.received
    assert PREPARE in error.value.fix


@pytest.mark.parametrize("content", [b"x,label\n1,2\n3,4\n", b"\x03" + bytes(11) + b"ab"])
def test_a_file_that_is_not_of_records_is_refused(content, model, tmp_path):
    folder = examples(tmp_path / "examples")
    (folder / "Split-eval" / "data_tfrecord-00000-of-00001").write_bytes(content)
    with pytest.raises(ExamplesError, match="damaged or unreadable") as error:
        check(model, folder)
    assert PREPARE in error.value.fix


def test_a_signature_that_the_model_lacks_is_refused(model, tmp_path):
    with pytest.raises(ComponentError, match="no signature 'serve'") as error:
        check(model, examples(tmp_path / "examples"), signature="serve")
    assert error.value.fix == "known: serving_default"


@pytest.mark.parametrize(
    ("specs", "features"),
    [
        ([tf.TensorSpec([None, 3], tf.float32, "input_layer")], {"x": FLOATS}),  # matched by shape
        ([tf.TensorSpec([None], tf.string, "serialized")], {"anything": FLOATS}),  # may be records
        (
            [tf.TensorSpec([None, 3], tf.int32, "x"), tf.TensorSpec([None, 1], tf.float32, "z")],
            {"x": [1, 2, 3], "z": [4]},
        ),
        ([tf.TensorSpec(None, tf.float32, "x")], {"x": FLOATS}),  # of unknown rank
    ],
)
def test_what_steps_accept_is_not_refused(specs, features, tmp_path):
    model = saved(tmp_path / "model", *specs)
    check(model, examples(tmp_path / "examples", record(**features, label=INTEGERS)))


def test_a_label_that_the_first_record_lacks_is_not_refused(model, tmp_path):
    check(model, examples(tmp_path / "examples", record(x=FLOATS), record(x=FLOATS, label=INTEGERS)))


@pytest.mark.parametrize("content", [b"", b"damaged", b"\x12\xff"])
def test_a_graph_that_cannot_be_read_is_left_to_the_first_step(content, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "saved_model.pb").write_bytes(content)
    check(model, examples(tmp_path / "examples"))


def test_calibration_needs_its_split_only_where_a_step_always_calibrates(model, tmp_path):
    def export(steps: Steps, model: Input[SavedModel], examples: Input[Examples]) -> None:
        """Export."""
        steps.export_onnx(model=model, examples=examples)

    dag = trace(export)
    folder = examples(tmp_path / "examples", splits=("eval",))
    check_sources(dag, dag.values({"model": model, "examples": folder}))


def test_inputs_are_those_that_tensorflow_reads(tmp_path):
    specs = {
        "a": tf.TensorSpec([None, 3], tf.float16, "a"),
        "b": tf.TensorSpec([2, None, 4], tf.uint8, "b"),
        "c": tf.TensorSpec([None, 1], tf.bool, "c"),
    }
    folder = saved(tmp_path / "model", *specs.values())
    expected = {name: TensorSpec(spec.dtype.name, tuple(spec.shape)) for name, spec in specs.items()}
    assert peek_inputs(folder, "serving_default") == expected


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_peeked_records_are_the_first_ones(suffix, tmp_path):
    files = [tmp_path / f"{name}.tfrecord{suffix}" for name in "ab"]
    for file in files:
        with tf.io.TFRecordWriter(str(tmp_path / "plain")) as writer:
            for number in range(3):
                writer.write(bytes(number))
        content = (tmp_path / "plain").read_bytes()
        file.write_bytes(gzip.compress(content) if suffix else content)
    everything = list(read_records(files))
    assert [list(peek_records(files, count)) for count in (2, 4, 9)] == [everything[:2], everything[:4], everything]


def test_the_check_takes_less_than_a_second_and_no_tensorflow(tmp_path):
    # A model of 25 MB in its graph, as a frozen one has.
    weights = tf.constant(np.ones((2500, 2500), np.float32))
    spec = tf.TensorSpec([None, 2500], tf.float32, "x")
    model = saved(tmp_path / "model", spec, function=lambda x: {"y": tf.matmul(x, weights)})
    folder = examples(tmp_path / "examples", record(x=[0.5] * 2500, label=INTEGERS))
    program = f"""
import sys, time
from tfopt.dag.tracing import load
dag = load("optimize")
values = dag.values({{"model": {str(model)!r}, "examples": {str(folder)!r}}})
start = time.perf_counter()
from tfopt.dag.source_checks import check_sources
check_sources(dag, values)
assert "tensorflow" not in sys.modules
print(time.perf_counter() - start)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(ended.stdout) < 1


def test_the_signatures_are_those_of_the_graph_that_is_served(model, tmp_path):
    content = SavedModelProto.FromString((model / "saved_model.pb").read_bytes())
    training = content.meta_graphs.add(meta_info_def={"tags": ["train"]})
    training.signature_def["train"].CopyFrom(content.meta_graphs[0].signature_def["serving_default"])
    content.meta_graphs.reverse()
    content.meta_graphs[1].meta_info_def.tags.append("gpu")  # more tags than the graph for training
    (tmp_path / "saved_model.pb").write_bytes(content.SerializeToString())
    assert list(peek_inputs(tmp_path, "serving_default")) == ["x"]


@pytest.mark.parametrize(
    ("spec", "function"),
    [
        (tf.SparseTensorSpec([None, 3], tf.float32), lambda x: {"y": tf.sparse.to_dense(x)}),
        (tf.RaggedTensorSpec([None, None], tf.int32), lambda x: {"y": tf.reduce_sum(x, 1)}),
    ],
    ids=["sparse", "ragged"],
)
def test_sparse_and_ragged_inputs_are_refused_before_the_first_step(spec, function, tmp_path):
    model = saved(tmp_path / "model", spec, function=function)
    with pytest.raises(ExamplesError, match=r"inputs x, x_1.* are the parts of one (sparse|ragged) tensor"):
        check(model, examples(tmp_path / "examples"))

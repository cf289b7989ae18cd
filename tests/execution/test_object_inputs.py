"""Test calls of components with Python objects: models and data of a notebook, and what is refused."""

import importlib
import os
import re
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tfopt.artifacts import Examples, Files, Model
from tfopt.artifacts.base import is_location
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.component import components
from tfopt.components.evaluate.component import evaluate
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.data import object_records, tf_example
from tfopt.data.feature_schema import read_manifest
from tfopt.data.object_columns import Naming
from tfopt.data.object_records import ObjectRecords
from tfopt.data.tfrecords import read_records
from tfopt.errors import ComponentError
from tfopt.execution.object_inputs import save_data, save_model, save_objects
from tfopt.runtimes import load

ROWS = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
CLASSES = np.random.default_rng(1).integers(0, 3, 60)
NAMING = Naming("label", needs_label=True)
ONE_INPUT = Naming("label", {"row": TensorSpec("float32", (None, 4))}, ("kind",), True, True)
FRAME = pd.DataFrame(ROWS, columns=list("abcd")).assign(label=CLASSES)
DATASET = tf.data.Dataset.from_tensor_slices((ROWS, CLASSES))


def dense(package: str = "keras") -> object:
    """Return an untrained network of 4 numbers to 3 classes."""
    layers = importlib.import_module(package).layers
    model = importlib.import_module(package).Sequential([layers.Dense(3, activation="softmax")])
    model(ROWS[:1])
    return model


def write(value: object, folder: Path, naming: Naming = ONE_INPUT, **shares: int) -> dict[str, list[dict]]:
    """Write an object, and return the records of each split."""
    ObjectRecords(value, naming, shares or {"all": 1}).write(folder)
    splits = Examples(folder).splits
    return {name: [tf_example.parse(record)[0] for record in read_records(files)] for name, files in splits.items()}


def as_rows(records: list[dict], name: str = "label") -> list:
    return [list(record[name]) for record in records]


def each_component() -> list:
    """Return all components; each day one of those with the same types of inputs."""
    first: dict[frozenset, str] = {}
    for name, component in components().items():
        first.setdefault(frozenset((port.type, port.many) for port in component.inputs.values()), name)
    daily = first.values()
    return [pytest.param(name, marks=[] if name in daily else [pytest.mark.nightly]) for name in components()]


@pytest.mark.parametrize("name", each_component())
def test_every_component_takes_a_model_and_arrays(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    component, arguments = components()[name], {}
    for port in component.inputs.values():
        if issubclass(port.type, Model):
            arguments[port.name] = [dense()] if port.many else dense()
    named = any(issubclass(port.type, Model) for port in component.inputs.values())
    for port in component.inputs.values():
        if issubclass(port.type, Examples | Files):
            arguments[port.name] = (ROWS if named else {"row": ROWS}, CLASSES)
    saved = save_objects(component, arguments)
    assert all(is_location(saved[port], component.inputs[port].many) for port in arguments)
    for port in arguments:
        if not component.inputs[port].many:
            component.inputs[port].type.open(os.fspath(saved[port]))


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_evaluate_gives_the_accuracy_of_the_object(package: str, tmp_path: Path):
    model = dense(package)
    evaluation = evaluate(
        baseline=model, candidates=[model], examples={"eval": (ROWS, CLASSES)}, evaluation=tmp_path / "evaluation"
    )["evaluation"].load()
    right = np.mean(model.predict(ROWS, verbose=0).argmax(1) == CLASSES)
    assert evaluation.models[0].metrics["accuracy"].value == pytest.approx(right)


def test_the_exported_file_computes_what_the_object_does(tmp_path: Path):
    model = dense()
    lite = export_tflite(model=model, exported=tmp_path / "lite", examples=(ROWS, CLASSES))["exported"]
    with load(lite) as runtime:
        (name,) = runtime.inputs
        (output,) = runtime.run({name: ROWS}).values()
    assert np.allclose(output, model.predict(ROWS, verbose=0), atol=1e-6)


def test_prepare_examples_takes_a_data_frame(tmp_path: Path):
    prepare_examples(data=FRAME, examples=tmp_path / "examples")
    manifest = read_manifest(tmp_path / "examples")
    assert sum(manifest.splits.values()) == 60
    assert set(manifest.features) == {"a", "b", "c", "d", "label"}


FORMS = {
    "data frame": FRAME,
    "frame and series": (FRAME[list("abcd")], FRAME["label"]),
    "mapping": {"row": ROWS, "label": CLASSES},
    "lists": (ROWS.tolist(), CLASSES.tolist()),
    "tensors": (tf.constant(ROWS), tf.constant(CLASSES)),
    "weights": (ROWS, CLASSES, np.ones(60)),
    "column": (ROWS, CLASSES[:, None]),
    "whole floats": (ROWS, CLASSES.astype(np.float64)),
    "dataset": DATASET,
    "batches": DATASET.batch(7),
    "equal batches": DATASET.batch(4, drop_remainder=True),
    "dataset of mappings": DATASET.map(lambda row, label: {"row": row, "label": label}),
    "dataset of whole floats": DATASET.map(lambda row, label: (row, tf.cast(label, tf.float32))),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_data_give_the_same_records(form: str, tmp_path: Path):
    (records,) = write(FORMS[form], tmp_path / "records").values()
    assert np.array_equal(as_rows(records, "row"), ROWS)
    assert as_rows(records) == CLASSES[:, None].tolist()
    assert all(isinstance(value, np.int64) for record in records for value in record["label"])


def test_a_mapping_of_splits_is_not_divided(tmp_path: Path):
    splits = write({"train": (ROWS[:50], CLASSES[:50]), "eval": DATASET.skip(50)}, tmp_path / "records", train=1)
    assert as_rows(splits["train"]) == CLASSES[:50, None].tolist()
    assert as_rows(splits["eval"]) == CLASSES[50:, None].tolist()


def test_equal_records_are_in_one_split_and_no_split_is_empty(tmp_path: Path):
    twice = np.r_[ROWS, ROWS], np.r_[CLASSES, CLASSES]
    train, test = write(twice, tmp_path / "twice", train=1, eval=1).values()
    assert not {record["row"].tobytes() for record in train} & {record["row"].tobytes() for record in test}
    splits = write((ROWS[:2], CLASSES[:2]), tmp_path / "two", train=8, eval=2)
    assert [len(records) for records in splits.values()] == [1, 1]


@pytest.mark.parametrize(
    ("labels", "stored"),
    [
        (np.eye(3)[CLASSES], np.eye(3)[CLASSES].tolist()),
        (ROWS[:, 0], ROWS[:, :1].tolist()),
        (np.array(["é", "b"] * 30), [["é".encode()], [b"b"]] * 30),
        (np.array([True, False] * 30), [[1], [0]] * 30),
        ([0.0] * 59 + [0.5], [[0.0]] * 59 + [[0.5]]),
    ],
)
def test_labels_of_other_kinds(labels, stored: list, tmp_path: Path):
    assert as_rows(write((ROWS, labels), tmp_path / "arrays")["all"]) == stored
    data = tf.data.Dataset.from_tensor_slices((ROWS, np.asarray(labels))).batch(20)
    assert as_rows(write(data, tmp_path / "dataset")["all"]) == stored


def test_the_manifest_has_shapes_and_ranges(tmp_path: Path):
    images = np.random.default_rng(0).integers(0, 256, (60, 2, 2, 3)).astype(np.uint8)
    write(({"image": images}, CLASSES), tmp_path / "records", NAMING, train=1, eval=1)
    manifest = read_manifest(tmp_path / "records")
    image = manifest.features["image"]
    assert (image.dtype, image.shape, image.min, image.max) == ("int64", [2, 2, 3], images.min(), images.max())
    assert manifest.label == "label"
    assert sum(manifest.splits.values()) == 60


def test_lists_have_the_order_of_inputs_and_outputs_of_keras(tmp_path: Path):
    first, second = keras.Input((4,), name="zeta"), keras.Input((1,), name="alpha")
    outputs = [keras.layers.Dense(3, name="kind")(first), keras.layers.Dense(1, name="size")(second)]
    model = keras.Model([first, second], outputs)
    data = ([ROWS, ROWS[:, 0]], [CLASSES, ROWS[:, 1]])
    saved = save_objects(components()["evaluate"], {"baseline": model, "examples": data, "output": "size"})
    record = tf_example.parse(next(read_records(saved["examples"].split("train"))))[0]
    assert saved["label"] == "size"
    assert set(record) == {"zeta", "alpha", "kind", "size"}
    assert record["zeta"][0] == record["alpha"]
    assert record["zeta"][1] == record["size"]
    with pytest.raises(ComponentError, match="pass output=NAME for the output to evaluate: kind, size"):
        save_objects(components()["evaluate"], {"baseline": model, "examples": data})


def test_a_saved_object_of_another_user_is_not_used(tmp_path: Path, monkeypatch):
    saved = save_data((ROWS, CLASSES), tmp_path, ONE_INPUT, {"all": 1}).path
    owner = os.geteuid()
    with monkeypatch.context() as other, pytest.raises(ComponentError, match="file or folder of another user"):
        other.setattr(os, "geteuid", lambda: owner + 1)
        save_data((ROWS, CLASSES), tmp_path, ONE_INPUT, {"all": 1})
    saved.rename(tmp_path / "moved")
    saved.symlink_to(tmp_path / "moved")
    with pytest.raises(ComponentError, match="a link"):
        save_data((ROWS, CLASSES), tmp_path, ONE_INPUT, {"all": 1})


def test_objects_are_saved_once_for_each_content(tmp_path: Path):
    model = dense()
    first = save_model(model, tmp_path).path
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    assert save_model(model, tmp_path).path == first
    assert save_model(clone, tmp_path).path.parent == first.parent
    model.set_weights([weight + 1 for weight in model.get_weights()])
    assert save_model(model, tmp_path).path != first
    data = save_data((ROWS, CLASSES), tmp_path, ONE_INPUT, {"all": 1}).path
    assert save_data((ROWS.copy(), CLASSES), tmp_path, ONE_INPUT, {"all": 1}).path == data
    assert save_data((ROWS + 1, CLASSES), tmp_path, ONE_INPUT, {"all": 1}).path != data
    assert save_data((ROWS, 2 - CLASSES), tmp_path, ONE_INPUT, {"all": 1}).path != data
    batches = save_data(DATASET, tmp_path, ONE_INPUT, {"all": 1}).path
    assert save_data(DATASET, tmp_path, ONE_INPUT, {"all": 1}).path == batches
    assert save_data(DATASET.take(30), tmp_path, ONE_INPUT, {"all": 1}).path != batches


def subclassed(package: str) -> object:
    library = importlib.import_module(package)

    class Network(library.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = library.layers.Dense(3)

        def call(self, rows):
            return self.dense(rows)

    return Network()


class Scaled(tf.Module):
    """A model without Keras."""

    def __init__(self) -> None:
        """Create the weights."""
        super().__init__()
        self.weights_of_rows = tf.Variable(tf.ones([4, 3]))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="row")])
    def __call__(self, row):
        """Return scaled sums."""
        return {"sums": tf.matmul(row, self.weights_of_rows)}


@pytest.mark.parametrize("package", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)])
def test_a_subclassed_model_is_saved_after_it_was_called(package: str, tmp_path: Path):
    model = subclassed(package)
    with pytest.raises(ComponentError, match="never built"):
        save_model(model, tmp_path)
    expected = np.asarray(model(ROWS))
    with load(save_model(model, tmp_path)) as runtime:
        (name,) = runtime.inputs
        (output,) = runtime.run({name: ROWS}).values()
    assert np.allclose(output, expected, atol=1e-6)


def test_a_module_and_a_loaded_saved_model_are_saved(tmp_path: Path):
    module = Scaled()
    tf.saved_model.save(module, str(tmp_path / "written"))
    for model in (module, tf.saved_model.load(str(tmp_path / "written"))):
        with load(save_model(model, tmp_path)) as runtime:
            assert np.allclose(runtime.run({"row": ROWS})["sums"], ROWS.sum(1, keepdims=True), atol=1e-5)


def test_functions_of_the_user_are_not_compared_by_their_names(tmp_path: Path):
    folders = set()
    for factor in (2, 3):

        def scale(row, times=factor):
            return row * times

        layers = [keras.Input((4,), name="row"), keras.layers.Lambda(scale, name="scale")]
        folders.add(save_model(keras.Sequential(layers, name="scaled"), tmp_path).path)
    assert len(folders) == 2


class Torch:
    """Named like a class of another library."""

    __module__ = "torch.nn.modules.linear"


def unbuilt(package: str) -> object:
    library = importlib.import_module(package)
    model = library.Sequential([library.layers.Dense(3)])
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize(
    ("model", "received", "fix"),
    [
        (Torch(), "torch.nn.modules.linear.Torch", "make a Keras model"),
        (keras.Sequential, "type", "call it"),
        (lambda: dense(), "function", "call it"),
        (3, "int", "pass the trained model"),
        (unbuilt("keras"), "never built", "call fit"),
        (unbuilt("tf_keras"), "never built", "call fit"),
        (tf.Module(), "no signature", "input_signature"),
    ],
)
def test_what_is_no_model_is_refused(model: object, received: str, fix: str, tmp_path: Path):
    with pytest.raises(ComponentError) as raised:
        save_model(model, tmp_path)
    assert received in raised.value.received
    assert fix in raised.value.fix
    assert not list(tmp_path.glob("*/[!.]*"))


def broken(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.astype(float)
    changed.flat[5] = value
    return changed


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((ROWS, CLASSES[:10]), ("row: 60, label: 10 records", "same length", "same records")),
        ((ROWS, broken(CLASSES, np.nan)), ("label: NaN or infinite in 1 of 60", "record 5", "finite")),
        ((broken(ROWS, 1e300), CLASSES), ("row: NaN or infinite in 1 of 60", "float32 can hold")),
        ((ROWS, [None, *CLASSES[1:].tolist()]), ("label: 1 of 60 values are missing", "fillna")),
        ((ROWS, [[1], [1, 2]]), ("label: list", "one shape for each record")),
        ((ROWS, np.array([{}] * 60)), ("label: objects of dict", "numbers or texts")),
        ((ROWS, np.array(["2020-01-01"] * 60, "datetime64[D]")), ("label: values of datetime64", "astype")),
        ((ROWS, np.array([2**63] * 60, np.uint64)), ("label: 9223372036854775808", "64 bits")),
        ((ROWS, 3), ("label: an object of type int", "arrays (x, y)")),
        ((ROWS, CLASSES, None, None), ("a tuple of 4", "pass (x, y)")),
        (({"label": ROWS}, CLASSES), ("label in x and in y", "rename")),
        (ROWS, ("no label 'label'", "pass (x, y)")),
        (FRAME.drop(columns="label"), ("no label 'label'", "a label for each record")),
        ((row for row in ROWS), ("generator", "arrays (x, y)")),
        ((ROWS[:1], CLASSES[:1]), ("1 records, none of them for split", "pass more records")),
        ({"a b": (ROWS, CLASSES)}, ("split 'a b'", "letters")),
        (DATASET.map(lambda row, label: row), ("tf.data.Dataset of row: no label", "label=NAME")),
        (DATASET.repeat(), ("without end", "take(N)")),
        (DATASET.take(0), ("0 records", "pass more records")),
        (
            tf.data.Dataset.from_tensors((tf.ragged.constant([[1.0], [1.0, 2.0]]), [0, 1])),
            ("RaggedTensorSpec", "to_tensor"),
        ),
        (DATASET.map(lambda row, label: (tf.ensure_shape(row[: label + 1], [None]), label)), ("that fails", "pad")),
        ((tf.ragged.constant([[1.0], [1.0, 2.0]]), [0, 1]), ("RaggedTensor", "to_tensor")),
    ],
)  # fmt: skip
def test_what_is_no_data_is_refused(data: object, words: tuple[str, ...], tmp_path: Path):
    with pytest.raises(ComponentError) as raised:
        save_data(data, tmp_path, ONE_INPUT, {"train": 8, "eval": 2})
    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert not list(tmp_path.glob("*/[!.]*"))


def test_arrays_without_names_are_refused_where_none_can_be_known():
    two = Naming("label", dict.fromkeys(("a", "b"), TensorSpec("float32", (None, 4))))
    with pytest.raises(ComponentError, match=re.escape('pass {"a": …, "b": …} as x')):
        ObjectRecords((ROWS, CLASSES), two, {"all": 1})
    with pytest.raises(ComponentError, match="because no model is known here"):
        ObjectRecords((ROWS, CLASSES), NAMING, {"all": 1})


def test_a_dataset_without_a_known_end_stops(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(object_records, "MOST_BYTES", 100_000)

    def forever():
        while True:
            yield ROWS[0], 1

    kinds = (tf.TensorSpec([4]), tf.TensorSpec([], tf.int64))
    with pytest.raises(ComponentError, match="and no end"):
        write(tf.data.Dataset.from_generator(forever, output_signature=kinds), tmp_path / "records")


def test_an_object_for_another_input_is_refused():
    with pytest.raises(ComponentError, match=r"a Python file|PythonModule"):
        components()["train"](examples="e", module=len, label="label", trained="t")

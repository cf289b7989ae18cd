"""Test that Python code in model files does not run unless it is trusted, and that archives are bounded."""

import contextlib
import importlib
import io
import json
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tfopt import keras_models, runtimes
from tfopt.artifacts import KerasModel, Model
from tfopt.cli.main import main
from tfopt.components.export_tflite.component import export_tflite
from tfopt.components.fold_batch_norm.component import fold_batch_norm
from tfopt.components.inspect_model.component import inspect_model
from tfopt.errors import ComponentError
from tfopt.keras_models.archive import check_stored_weights
from tfopt.keras_models.model_code import TRUST, forbidden_call, foreign_path, is_trusted, trusted_code

FORMATS = ["tf_keras h5", "tf_keras keras", "tf_keras tf", "keras h5", "keras keras"]


@pytest.fixture(scope="module")
def marker(tmp_path_factory) -> Path:
    """Return the file that the code in the models writes."""
    return tmp_path_factory.mktemp("code") / "ran"


@pytest.fixture(scope="module")
def models(tmp_path_factory, marker) -> dict[str, Path]:
    """Save a model with a batch norm and a lambda that doubles, in each format."""
    folder, files = tmp_path_factory.mktemp("models"), {}
    for library in ("tf_keras", "keras"):
        keras = importlib.import_module(library)
        keras.utils.set_random_seed(0)
        run = eval(f"lambda x: (open({str(marker)!r}, 'a').close(), x * 2)[1]")
        inputs = keras.Input((4,), name="x")
        hidden = keras.layers.BatchNormalization()(keras.layers.Dense(3)(inputs))
        model = keras.Model(inputs, keras.layers.Lambda(run, name="twice", output_shape=(3,))(hidden))
        model.layers[2].set_weights([np.float32([1, 2, 3]), np.ones(3), np.ones(3), np.float32([4, 5, 6])])
        for kind in ("h5", "keras", "tf"):
            if f"{library} {kind}" in FORMATS:
                path = files[f"{library} {kind}"] = folder / f"{library}.{kind}"
                model.save(path, **({"save_format": "tf"} if kind == "tf" else {}))
    return files


@pytest.fixture(autouse=True)
def _not_run(marker):
    marker.unlink(missing_ok=True)


@pytest.mark.parametrize("name", FORMATS)
def test_a_lambda_is_refused_by_the_name_of_its_layer_and_does_not_run(models, marker, name):
    with pytest.raises(ComponentError, match=r"(?s)layer 'twice' contains a Python lambda.*--trust-model-code"):
        keras_models.load(Model(models[name]))
    assert not marker.exists()
    with trusted_code(True):
        loaded = keras_models.load(Model(models[name]))
    x = np.ones((2, 4), np.float32)
    assert np.asarray(loaded(x)).shape == (2, 3)
    assert marker.exists()
    assert TRUST not in os.environ


def test_components_refuse_code_and_take_it_when_trusted(models, marker, tmp_path):
    file = models["tf_keras h5"]
    for run in (
        lambda: inspect_model(file, tmp_path / "out"),
        lambda: fold_batch_norm(file, tmp_path / "out"),
        lambda: export_tflite(model=file, exported=tmp_path / "out"),
    ):
        with pytest.raises(ComponentError, match="layer 'twice' contains a Python lambda"):
            run()
        assert not (tmp_path / "out").exists()
    assert not marker.exists()
    folded = fold_batch_norm(file, tmp_path / "out", trust_model_code=True)["folded"]
    assert (folded.card.facts["folded"], folded.card.parameters["trust_model_code"]) == (1, True)
    assert marker.exists()
    marker.unlink()
    assert export_tflite(model=file, exported=tmp_path / "tflite", trust_model_code=True)["exported"].tflite
    assert marker.exists()
    assert not is_trusted()


def test_the_command_line_has_the_flag(models, tmp_path, capsys):
    words = ["inspect_model", "--model", str(models["keras keras"]), "--inspection"]
    assert main([*words, str(tmp_path / "first")]) == 1
    assert "--trust-model-code" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "second"), "--trust-model-code"]) == 0


def test_the_graph_of_a_saved_model_is_folded_without_its_code(models, marker, tmp_path):
    folded = fold_batch_norm(models["tf_keras tf"], tmp_path / "folded")["folded"]
    assert folded.card.facts["folded"] == 1
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    outputs = []
    for model in (Model(models["tf_keras tf"]), folded):
        with runtimes.load(model) as runtime:
            outputs += runtime.run({"x": x}).values()
    np.testing.assert_allclose(*outputs, atol=1e-4)
    assert not marker.exists()


def edit_layer(file: Path, name: str, edit) -> None:
    """Change the configuration of the first layer whose name begins so, in an ``.h5`` or ``.keras`` file of Keras 2."""
    import h5py

    def edited(text: bytes | str) -> bytes:
        model = json.loads(text)
        edit(next(layer for layer in model["config"]["layers"] if layer["config"]["name"].startswith(name)))
        return json.dumps(model).encode()

    if file.suffix == ".keras":
        replace_entry(file, "config.json", edited)
        return
    with h5py.File(file, "r+") as content:
        content.attrs["model_config"] = edited(content.attrs["model_config"])


@pytest.fixture
def op_layers(tmp_path):
    """Return a function that saves a model of Keras 2 with layers of TensorFlow's operations."""
    import tensorflow as tf
    import tf_keras

    x = tf_keras.Input((4,), name="x")
    parts = tf.split(tf.concat([tf.abs(x)[:, 1:], tf.nn.relu(x) + 1], axis=1), [3, 4], axis=1)
    model = tf_keras.Model(x, tf.io.decode_raw(tf.strings.as_string(parts[0]), tf.uint8))

    def save(kind: str) -> Path:
        model.save(tmp_path / f"model.{kind}")
        return tmp_path / f"model.{kind}"

    return save


@pytest.mark.parametrize("kind", ["h5", "keras", "tf"])
def test_layers_of_tensorflows_operations_are_loaded(op_layers, kind):
    file = op_layers("keras" if kind == "tf" else kind)
    if kind == "tf":
        import tf_keras

        file = file.with_suffix("")
        tf_keras.models.load_model(file.with_suffix(".keras")).save(file, save_format="tf")
    assert any("split" in layer.name for layer in keras_models.load(Model(file)).layers)


@pytest.mark.parametrize("kind", ["h5", "keras"])
@pytest.mark.parametrize(
    "function",
    ["io.gfile.rmtree", "io.write_file", "compat.v1.write_file", "raw_ops.WriteFile", "py_function", "load_op_library"],
)
def test_functions_of_tensorflow_that_do_not_only_compute_are_not_called(op_layers, tmp_path, kind, function):
    file = op_layers(kind)
    (tmp_path / "victim").mkdir()

    def hostile(layer: dict) -> None:
        layer["config"]["function"] = function
        layer["inbound_nodes"] = [["_CONSTANT_VALUE", -1, str(tmp_path / "victim"), {}]]

    edit_layer(file, "tf.math.abs", hostile)
    with pytest.raises(ComponentError, match=rf"layer 'tf.math.abs.*' contains a call of tf\.{function}"):
        inspect_model(file, tmp_path / "out")
    assert (tmp_path / "victim").is_dir()


@pytest.mark.parametrize(
    ("kind", "config", "call"),
    [
        ("ClassMethod", {"cls_symbol": "io.TFRecordWriter", "method_name": "write"}, "tf.io.TFRecordWriter.write"),
        ("ClassMethod", {"cls_symbol": "RaggedTensor", "method_name": "__init__"}, "tf.RaggedTensor.__init__"),
        ("ClassMethod", {"cls_symbol": "RaggedTensor", "method_name": "from_row_splits"}, ""),
        ("InstanceMethod", {"attr_name": "__reduce__"}, "__reduce__"),
        ("InstanceProperty", {"attr_name": "flat_values"}, ""),
    ],
)
def test_methods_of_other_classes_are_not_called(kind, config, call):
    assert forbidden_call({"class_name": kind, "config": config}) == call


@pytest.mark.parametrize("library", ["tf_keras", "keras"])
def test_builtin_functions_of_python_are_not_called(tmp_path, library):
    keras = importlib.import_module(library)
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="relu", name="hidden")]).save(
        tmp_path / "model.keras"
    )
    function = {"module": "builtins", "class_name": "function", "config": "exit", "registered_name": "function"}
    edit_layer(tmp_path / "model.keras", "hidden", lambda layer: layer["config"].update(activation=function))
    with pytest.raises(ComponentError, match=r"layer 'hidden' contains builtins\.exit"):
        keras_models.load(KerasModel(tmp_path / "model.keras"))


@pytest.mark.parametrize(
    ("module", "kind", "config", "registered"),
    [
        ("builtins", "function", "exec.__call__", "exec.__call__"),
        ("tf_keras.src.layers.core.lambda_layer", "function", "sys.exit", "function"),
        ("tf_keras.src.utils.data_utils", "function", "get_file", "get_file"),
        ("tf_keras.src.utils.data_utils", "get_file", {}, None),
        ("keras.applications", "ResNet50", {}, None),
        ("tf_keras.src.layers.core.tf_op_layer", "Other", {"name": "o", "function": "io.read_file"}, "TFOpLambda"),
        ("tf_keras.src.layers", "core.TFOpLambda", {"name": "o", "function": "io.read_file"}, None),
        ("tf_keras.src.layers.core.tf_op_layer", "__typespec__", {"function": "io.read_file"}, "x"),
        ("tfopt.cli.main", "function", "main", "main"),
    ],
)
def test_keras_does_not_look_up_other_names_than_those_that_are_checked(op_layers, module, kind, config, registered):
    """Keras 2 takes attributes of imported modules, and registered names as attributes, for functions of a Lambda."""
    file = op_layers("keras")
    function = {"module": module, "class_name": kind, "config": config, "registered_name": registered}
    if kind == "__typespec__":
        function["spec_name"] = "TFOpLambda"

    def hostile(layer: dict) -> None:
        layer["class_name"], layer["module"], layer["registered_name"] = "Lambda", "keras.layers", None
        layer["config"] = {"name": layer["config"]["name"], "function": function, "function_type": "function"}

    edit_layer(file, "tf.math.abs", hostile)
    with pytest.raises(ComponentError, match=rf"contains {re.escape(module)}\."):
        keras_models.load(KerasModel(file))


@pytest.mark.parametrize("library", ["tf_keras", "keras"])
def test_functions_of_other_modules_are_not_called(tmp_path, library):
    keras = importlib.import_module(library)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="relu", name="hidden")])
    model.save(tmp_path / "model.keras")
    activation = {"module": "os", "class_name": "function", "config": "getcwd", "registered_name": "getcwd"}

    def edit(config: dict) -> dict:
        for layer in config["config"]["layers"]:
            if "activation" in layer["config"]:
                layer["config"]["activation"] = activation
        return config

    replace_entry(tmp_path / "model.keras", "config.json", lambda text: json.dumps(edit(json.loads(text))).encode())
    with pytest.raises(ComponentError, match=r"layer 'hidden' contains os\.getcwd"):
        keras_models.load(KerasModel(tmp_path / "model.keras"))


def test_a_registered_layer_of_the_users_module_is_no_foreign_code(tmp_path):
    import keras

    @keras.saving.register_keras_serializable("tests")
    class Doubled(keras.layers.Layer):
        def call(self, x):
            return x * 2

    keras.Sequential([keras.Input((4,)), Doubled()]).save(tmp_path / "model.keras")
    assert keras_models.load(Model(tmp_path / "model.keras")).layers[0].__class__ is Doubled


def test_archives_are_bounded_and_stay_in_their_folder(tmp_path):
    import keras

    keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]).save(tmp_path / "model.keras")
    bomb = tmp_path / "bomb.keras"
    bomb.write_bytes((tmp_path / "model.keras").read_bytes())
    with zipfile.ZipFile(bomb, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("assets/zeros", bytes(100 << 20))
    with pytest.raises(ComponentError, match=r"bytes that unpack to 10\d{7}"):
        keras_models.load(Model(bomb))
    with zipfile.ZipFile(tmp_path / "model.keras", "a") as archive:
        archive.writestr("../outside", b"")
    with pytest.raises(ComponentError, match=r"entry '\.\./outside'"):
        keras_models.load(Model(tmp_path / "model.keras"))
    (tmp_path / "cut.keras").write_bytes(bomb.read_bytes()[:500])
    with pytest.raises(ComponentError, match="a zip archive"):
        keras_models.load(Model(tmp_path / "cut.keras"))


def replace_entry(file: Path, name: str, edit) -> None:
    with zipfile.ZipFile(file) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for entry, content in entries.items():
            archive.writestr(entry, edit(content) if entry == name else content)


def test_weights_in_other_files_and_links_in_archives_are_refused(tmp_path):
    import h5py
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="hidden")])
    model.save(tmp_path / "model.h5")
    model.save(tmp_path / "model.keras")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.ones((4, 3), np.float32)
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        weights = file["model_weights/hidden"]
        weights["more"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "secret")
    with pytest.raises(ComponentError, match=r"data 'more' in another file"):
        keras_models.load(Model(tmp_path / "model.h5"))
    link = zipfile.ZipInfo("assets")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "model.keras", "a") as archive:
        archive.writestr(link, "/etc")
    with pytest.raises(ComponentError, match=r"entry 'assets'"):
        keras_models.load(Model(tmp_path / "model.keras"))


@pytest.mark.parametrize("kind", ["tf_keras h5", "tf_keras keras", "tf_keras tf", "keras h5", "keras keras"])
@pytest.mark.parametrize(
    ("layer", "dtype"), [("StringLookup", "string"), ("IntegerLookup", "int64"), ("TextVectorization", "string")]
)
def test_a_vocabulary_in_another_file_is_not_read(tmp_path, kind, layer, dtype):
    library, suffix = kind.split()
    keras = importlib.import_module(library)
    secret, file = tmp_path / "secret", tmp_path / f"model.{suffix}"
    secret.write_text("7\n8\n")
    inputs = keras.Input((1,), dtype=dtype, name="x")
    outputs = getattr(keras.layers, layer)(name="words", vocabulary=str(secret))(inputs)
    keras.Model(inputs, outputs).save(file, **({"save_format": "tf"} if suffix == "tf" else {}))
    if library == "keras":  # it does not save the path
        assert keras_models.load(Model(file)).get_layer("words")
        edit_layer(file, "words", lambda config: config["config"].update(vocabulary=str(secret)))
    with pytest.raises(ComponentError, match=r"(?s)layer 'words' contains the path '/.*/secret'.*vocabulary=\["):
        keras_models.load(Model(file))
    with trusted_code(True):
        assert keras_models.load(Model(file)).get_layer("words").vocabulary_size() > 2


def test_any_existing_file_in_a_configuration_is_refused_and_a_file_of_the_model_is_not(tmp_path):
    item = {"config": {"name": "layer", "weights_source": "/etc/hostname"}}
    assert foreign_path(item["config"], tmp_path / "model.keras") == "/etc/hostname"
    assert foreign_path({"name": "/block/conv", "activation": "relu"}, tmp_path / "model.keras") == ""
    assert foreign_path({"vocabulary": "gs://bucket/words"}, tmp_path) == "gs://bucket/words"
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "words").write_text("a\n")
    (tmp_path / "assets" / "link").symlink_to("/etc/hostname")
    assert foreign_path({"vocabulary": str(tmp_path / "assets" / "words")}, tmp_path) == ""
    assert foreign_path({"vocabulary": str(tmp_path / "assets" / "link")}, tmp_path)
    assert foreign_path({"vocabulary": str(tmp_path / "assets" / ".." / ".." / "words")}, tmp_path)


@pytest.mark.parametrize("name", ["random", "compat.v1.random", "compat.v1.nn"])
def test_a_sampler_with_a_vocabulary_file_is_not_called(name):
    config = {"function": f"{name}.fixed_unigram_candidate_sampler"}
    assert forbidden_call({"class_name": "TFOpLambda", "config": config})


@pytest.mark.parametrize("kind", ["tf_keras h5", "tf_keras keras", "keras h5", "keras keras"])
def test_weights_that_hdf5_unpacks_to_gigabytes_are_refused(tmp_path, kind):
    import h5py

    library, suffix = kind.split()
    keras, file = importlib.import_module(library), tmp_path / f"model.{suffix}"
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="hidden")]).save(file)
    assert keras_models.load(Model(file)).layers
    with zipfile.ZipFile(file) if suffix == "keras" else contextlib.nullcontext() as archive:
        weights = io.BytesIO(archive.read("model.weights.h5")) if archive else file
    with h5py.File(weights, "r+") as content:
        content.create_dataset("more/weights", (1 << 30,), "f4", chunks=(1 << 20,), compression="gzip")  # all zeros
    if suffix == "keras":
        replace_entry(file, "model.weights.h5", lambda _: weights.getvalue())
    assert file.stat().st_size < 100_000
    with pytest.raises(ComponentError, match=r"(?s)\d+ bytes that unpack to 42949\d{5}.*save the model again"):
        keras_models.load(Model(file))


def test_weights_with_many_groups_are_read_once(tmp_path, monkeypatch):
    import h5py

    def seek(*_) -> None:
        raise OSError("each step backwards reads the entry from its start")

    file, weights = tmp_path / "model.keras", io.BytesIO()
    with h5py.File(weights, "w") as content:
        for number in range(100):
            content.create_group(f"group {number}").create_dataset("x", data=np.zeros(10))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model.weights.h5", weights.getvalue())
    monkeypatch.setattr(zipfile.ZipExtFile, "seek", seek)
    check_stored_weights(file)


def test_weights_of_keras_3_in_an_npz_file_are_bounded(tmp_path):
    file, arrays = tmp_path / "model.keras", io.BytesIO()
    np.savez_compressed(arrays, x=np.zeros(100 << 20, np.int8))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model.weights.npz", arrays.getvalue())
    with pytest.raises(ComponentError, match="bytes that unpack to 1048"):
        check_stored_weights(file)

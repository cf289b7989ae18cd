"""A model in a Triton repository: its configuration fits Triton's own schema, and says what the model takes."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInstanceGroup

from tests.components.test_push_model import push
from tests.components.test_validate_serving import FACTOR, product
from tfopt import runtimes
from tfopt.artifacts import Model, SavedModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.push_model import push as pushing
from tfopt.components.push_model.choice import Choice
from tfopt.components.push_model.versions import Versions
from tfopt.components.validate_serving.triton_check import check_config
from tfopt.errors import ComponentError
from tfopt.serving.layouts import version_files
from tfopt.serving.triton_config import Scheduling, config_text, write_config
from tfopt.tensorrt.machine import Machine
from tfopt.tensorrt.tag import CompatibilityTag


def read(file: Path):
    return text_format.Parse(file.read_text(), ModelConfig())


@pytest.fixture(scope="module")
def two_ends(tmp_path_factory) -> Path:
    """A SavedModel with two inputs of two types and two outputs, of which one is a number per request."""
    import tensorflow as tf

    class Model(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None, 3], tf.float32, name="rows"),
                tf.TensorSpec([None], tf.string, name="word"),
            ]
        )
        def serve(self, rows, word):
            return {"scores": tf.reduce_sum(rows, 1), "length": tf.strings.length(word)}

    model = Model()
    folder = tmp_path_factory.mktemp("models") / "two ends"
    tf.saved_model.save(model, str(folder), signatures=model.serve)
    return folder


def test_the_repository_holds_the_versions_and_a_configuration_of_the_signature(two_ends, tmp_path):
    destination = tmp_path / "repository" / "digits"
    push(two_ends, destination, layout="triton", max_batch_size=16)
    assert (destination / "1" / "model.savedmodel" / "saved_model.pb").is_file()
    found = read(destination / "config.pbtxt")
    assert (found.name, found.platform, found.max_batch_size) == ("digits", "tensorflow_savedmodel", 16)
    assert found.HasField("dynamic_batching")
    told = {tensor.name: tensor for tensor in [*found.input, *found.output]}
    assert [list(told[name].dims) for name in ("rows", "word", "scores", "length")] == [[-1, 3], [1], [3], [1]]
    assert told["word"].HasField("reshape")
    assert not told["rows"].HasField("reshape")
    types = {name: DataType.Name(tensor.data_type) for name, tensor in told.items()}
    assert types == {"rows": "TYPE_FP32", "word": "TYPE_STRING", "scores": "TYPE_FP32", "length": "TYPE_INT32"}
    with runtimes.load(SavedModel(destination / "1" / "model.savedmodel")) as served:
        rows, word = np.ones((2, 5, 3), np.float32), np.array([b"ab", b"c"])
        assert served.run({"rows": rows, "word": word})["length"].tolist() == [2, 1]


def test_a_configuration_of_ours_follows_the_model_and_one_of_yours_stays(two_ends, tmp_path):
    destination = tmp_path / "digits"
    push(two_ends, destination, layout="triton")
    file = destination / "config.pbtxt"
    file.write_text(file.read_text().replace("max_batch_size: 64", "max_batch_size: 1"))
    (destination / "1").rename(tmp_path / "taken back")
    push(two_ends, destination, layout="triton")
    assert read(file).max_batch_size == 64
    yours = 'name: "digits" max_batch_size: 2'
    file.write_text(yours)
    (destination / "1").rename(tmp_path / "taken back again")
    push(two_ends, destination, layout="triton")
    assert file.read_text() == yours


def test_the_same_model_is_no_new_version_and_is_run_as_was_asked_last(two_ends, tmp_path):
    for instances in (1, 3):
        pushed = push(two_ends, tmp_path / "digits", layout="triton", instances=instances).read()
    file = tmp_path / "digits" / "config.pbtxt"
    assert (pushed["version"], read(file).instance_group[0].count) == (1, 3)
    before = file.stat().st_ino
    push(two_ends, tmp_path / "digits", layout="triton", instances=3)
    assert file.stat().st_ino == before  # not written again: a server that watches would load the model again
    assert sorted(path.name for path in (tmp_path / "digits").iterdir()) == ["1", "config.pbtxt"]


def pushed(model: Path, destination: Path, **given) -> dict:
    """What is said of a push, without the step around it, for several at once."""
    found = Model(model)
    return pushing.push(Choice(found, "so said"), found, str(destination), "triton", None, None, 0, Scheduling(**given))


def test_of_pushes_at_once_the_configuration_is_of_the_newest_version(tmp_path, monkeypatch):
    models, publish, waits = [], Versions._publish, iter(np.linspace(0.3, 0, 6))

    def slowly(*given):
        time.sleep(next(waits))  # who comes first is to be overtaken
        return publish(*given)

    monkeypatch.setattr(Versions, "_publish", slowly)
    for number in range(6):
        (tmp_path / str(number)).mkdir()
        models.append(product(tmp_path / str(number), FACTOR * number))
    with ThreadPoolExecutor(6) as pool:
        facts = list(pool.map(lambda path: pushed(path, tmp_path / "served"), models))
    newest = max(facts, key=lambda fact: fact["version"])
    assert newest["version"] == 6
    found = read(tmp_path / "served" / "config.pbtxt")
    assert found.parameters["tfopt_digest"].string_value == newest["digest"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_where_a_version_cannot_be_shown_the_configuration_is_as_it_was(tmp_path, monkeypatch, error):
    given, file = product(tmp_path), tmp_path / "served" / "config.pbtxt"
    pushed(given, tmp_path / "served")
    before = file.read_text()

    def fail(*_):
        raise error

    product(tmp_path, FACTOR * 2)
    monkeypatch.setattr(Versions, "_publish", fail)
    for destination in (tmp_path / "served", tmp_path / "new"):
        with pytest.raises((KeyboardInterrupt, ComponentError)):
            pushed(given, destination, instances=3)
    assert file.read_text() == before
    assert not list((tmp_path / "new").iterdir())


def test_pushes_at_once_write_one_whole_configuration(tmp_path):
    given, folder = Model(product(tmp_path)), tmp_path / "served"
    folder.mkdir()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda count: write_config(given, folder, Scheduling(instances=count)), range(1, 65)))
    assert read(folder / "config.pbtxt").instance_group[0].count in range(1, 65)
    assert [path.name for path in folder.iterdir()] == ["config.pbtxt"]


def test_an_engine_is_never_asked_for_larger_batches_than_it_was_built_for(tmp_path, monkeypatch):
    engine = tmp_path / "model.plan"
    engine.write_text("an engine")
    open_end = {"x": TensorSpec("float32", (None, 2))}
    loaded = contextlib.nullcontext(SimpleNamespace(inputs=open_end, outputs=open_end))  # which only a GPU could
    monkeypatch.setattr(runtimes, "load", lambda model: loaded)
    here = Machine("10.11.0.33", "9.0", "NVIDIA H100", "570.86.15")
    for built, asked, written in ((32, 64, 32), (32, 8, 8), (None, 64, 64)):
        CompatibilityTag.for_machine(here, version_compatible=False, largest_batch=built).write(engine)
        write_config(Model(engine), tmp_path, Scheduling(asked))
        assert read(tmp_path / "config.pbtxt").max_batch_size == written
        found = check_config(tmp_path / "config.pbtxt", "tensorrt", open_end, open_end, 1, 7)
        assert found[-1].endswith(f"max_batch_size {written}, for an engine of batches up to 7")


def test_a_fixed_batch_is_one_of_the_axes():
    spec = TensorSpec("float32", (4, 28))
    found = text_format.Parse(config_text("m", "onnx", {"x": spec}, {"y": spec}, Scheduling()), ModelConfig())
    assert (found.backend, found.max_batch_size, list(found.input[0].dims)) == ("onnxruntime", 0, [4, 28])
    assert not found.HasField("dynamic_batching")


def test_a_tensor_without_any_axis_is_refused_since_triton_takes_none():
    batch, none = TensorSpec("float32", (None,)), TensorSpec("float32", ())
    assert "reshape" in config_text("m", "onnx", {"x": batch}, {"y": batch}, Scheduling())
    with pytest.raises(ComponentError, match="'y' is float32"):
        config_text("m", "onnx", {"x": batch}, {"y": none}, Scheduling())


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64", "string"])
def test_every_type_has_its_word(dtype):
    spec = TensorSpec(dtype, (None, 2))
    assert (
        text_format.Parse(config_text("m", "onnx", {"x": spec}, {"y": spec}, Scheduling(1)), ModelConfig())
        .input[0]
        .data_type
    )


def test_copies_devices_and_patience_are_the_users_and_the_reason_is_handed_on(two_ends, tmp_path):
    push(two_ends, tmp_path / "digits", layout="triton", instances=3, device="cpu", queue_delay_us=250)
    found = read(tmp_path / "digits" / "config.pbtxt")
    assert [(group.count, group.kind) for group in found.instance_group] == [(3, ModelInstanceGroup.KIND_CPU)]
    assert found.dynamic_batching.max_queue_delay_microseconds == 250
    assert found.parameters["tfopt_reason"].string_value == "so said"
    assert found.parameters["tfopt_digest"].string_value == SavedModel(two_ends).digest


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["model.onnx"], {"backend": "onnxruntime"}),
        (["model.xml", "model.bin"], {"backend": "openvino"}),
        (["model.plan"], {"platform": "tensorrt_plan"}),
        (["model.plan", "compatibility.json"], {"platform": "tensorrt_plan"}),
    ],
)
def test_each_format_has_its_backend_and_the_file_names_that_triton_looks_for(files, said, tmp_path):
    spec = TensorSpec("float32", (None, 2))
    format = {"model.onnx": "onnx", "model.xml": "openvino", "model.plan": "tensorrt"}[files[0]]
    found = text_format.Parse(config_text("m", format, {"x": spec}, {"y": spec}, Scheduling()), ModelConfig())
    assert {key: getattr(found, key) for key in said} == said
    for file in files:
        (tmp_path / "Format-Serving").mkdir(exist_ok=True)
        (tmp_path / "Format-Serving" / file).write_text(file)
    assert sorted(version_files(Model(tmp_path), "triton")) == sorted(files)


def test_names_are_quoted():
    spec = TensorSpec("float32", (None, 2))
    name = 'größer "x"\\'
    found = text_format.Parse(config_text(name, "onnx", {name: spec}, {"y": spec}, Scheduling(1)), ModelConfig())
    assert (found.name, found.input[0].name) == (name, name)


@pytest.mark.parametrize("spec", [TensorSpec("complex64", (None, 2)), TensorSpec("float32", (None,), ranked=False)])
def test_what_triton_has_no_words_for_is_refused(spec):
    with pytest.raises(ComponentError, match=r"(?s)layout=triton.*how to fix"):
        config_text("m", "onnx", {"x": spec}, {"y": TensorSpec("float32", (None, 2))}, Scheduling())


def test_a_litert_model_is_refused_and_nothing_appears(tmp_path):
    from tests.reports import DIGITS, make_models

    lite = make_models([DIGITS[4]], tmp_path / "models")[0]
    with pytest.raises(ComponentError, match="Triton has backends"):
        push(lite, tmp_path / "repository", layout="triton")
    assert not (tmp_path / "repository").exists()

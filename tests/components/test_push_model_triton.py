"""Test pushes to a Triton repository: layout, and `config.pbtxt` parsed with Triton's own schema."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInstanceGroup

from tests.components.pushes import version
from tests.components.test_push_model import push
from tests.components.test_validate_serving import FACTOR, product
from tfopt import runtimes
from tfopt.artifacts import Model, SavedModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.push_model.parameters import PushSettings
from tfopt.components.push_model.push import Choice
from tfopt.components.push_model.push import push as push_version
from tfopt.components.push_model.version_record import VersionRecord
from tfopt.components.push_model.versions import Versions
from tfopt.components.push_model.withdraw import restore, withdraw
from tfopt.errors import ComponentError
from tfopt.reports.pushed_report import PushedReport
from tfopt.serving.layouts import version_files
from tfopt.serving.triton_config import config_text, write_config
from tfopt.serving.triton_scheduler import Scheduling
from tfopt.serving.triton_server import check_config
from tfopt.tensorrt.machine import Machine
from tfopt.tensorrt.tag import CompatibilityTag


def read(file: Path):
    return text_format.Parse(file.read_text(), ModelConfig())


@pytest.fixture(scope="module")
def two_ends(tmp_path_factory) -> Path:
    """Return a SavedModel with two inputs of two types and two outputs, one of them a scalar per request."""
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


def test_the_repository_contains_the_version_and_a_configuration_of_the_signature(two_ends, tmp_path):
    destination = tmp_path / "repository" / "digits"
    push(two_ends, destination, layout="triton", max_batch_size=16)
    assert (destination / "1" / "model.savedmodel" / "saved_model.pb").is_file()
    config = read(destination / "config.pbtxt")
    assert (config.name, config.platform, config.max_batch_size) == ("digits", "tensorflow_savedmodel", 16)
    assert config.HasField("dynamic_batching")
    tensors = {tensor.name: tensor for tensor in [*config.input, *config.output]}
    assert [list(tensors[name].dims) for name in ("rows", "word", "scores", "length")] == [[-1, 3], [1], [3], [1]]
    assert tensors["word"].HasField("reshape")
    assert not tensors["rows"].HasField("reshape")
    types = {name: DataType.Name(tensor.data_type) for name, tensor in tensors.items()}
    assert types == {"rows": "TYPE_FP32", "word": "TYPE_STRING", "scores": "TYPE_FP32", "length": "TYPE_INT32"}
    with runtimes.load(SavedModel(destination / "1" / "model.savedmodel")) as served:
        rows, word = np.ones((2, 5, 3), np.float32), np.array([b"ab", b"c"])
        assert served.run({"rows": rows, "word": word})["length"].tolist() == [2, 1]


def test_a_generated_configuration_is_updated_and_one_of_the_user_stays(two_ends, tmp_path):
    destination = tmp_path / "digits"
    push(two_ends, destination, layout="triton")
    file = destination / "config.pbtxt"
    file.write_text(file.read_text().replace("max_batch_size: 64", "max_batch_size: 1"))
    (destination / "1").rename(tmp_path / "removed")
    push(two_ends, destination, layout="triton")
    assert read(file).max_batch_size == 64
    user_config = 'name: "digits" max_batch_size: 2'
    file.write_text(user_config)
    (destination / "2").rename(tmp_path / "removed again")
    push(two_ends, destination, layout="triton")
    assert file.read_text() == user_config


def test_the_same_model_adds_no_version_but_updates_the_configuration(two_ends, tmp_path):
    for instances in (1, 3):
        pushed = push(two_ends, tmp_path / "digits", layout="triton", instances=instances).read()
    file = tmp_path / "digits" / "config.pbtxt"
    assert (pushed["version"], read(file).instance_group[0].count) == (1, 3)
    before = file.stat().st_ino
    push(two_ends, tmp_path / "digits", layout="triton", instances=3)
    assert file.stat().st_ino == before  # unchanged, because a server that watches it would load the model again
    assert sorted(path.name for path in (tmp_path / "digits").iterdir()) == ["1", "config.pbtxt", "versions"]


def push_directly(path: Path, destination: Path, **scheduling) -> PushedReport:
    """Push without the component, so that several pushes can run at the same time."""
    model = Model(path)
    settings = PushSettings(destination=str(destination), layout="triton", warm_up_requests=0)
    record = VersionRecord("", version(), [])
    return push_version(Choice(model, "meets the goals"), model, None, settings, Scheduling(**scheduling), record, {})


def test_after_concurrent_pushes_the_configuration_is_that_of_the_newest_version(tmp_path, monkeypatch):
    models, rename, waits = [], Versions._rename, iter(np.linspace(0.3, 0, 6))

    def slowly(*arguments):
        time.sleep(next(waits))  # the first push finishes last
        return rename(*arguments)

    monkeypatch.setattr(Versions, "_rename", slowly)
    for number in range(6):
        (tmp_path / str(number)).mkdir()
        models.append(product(tmp_path / str(number), FACTOR * number))
    with ThreadPoolExecutor(6) as pool:
        reports = list(pool.map(lambda path: push_directly(path, tmp_path / "served"), models))
    newest = max(reports, key=lambda report: report.version)
    assert newest.version == 6
    config = read(tmp_path / "served" / "config.pbtxt")
    assert config.parameters["tfopt_digest"].string_value == newest.digest


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_failed_push_restores_the_configuration(tmp_path, monkeypatch, error):
    model, file = product(tmp_path), tmp_path / "served" / "config.pbtxt"
    push_directly(model, tmp_path / "served")
    before = file.read_text()

    def fail(*_):
        raise error

    product(tmp_path, FACTOR * 2)
    monkeypatch.setattr(Versions, "_rename", fail)
    for destination in (tmp_path / "served", tmp_path / "new"):
        with pytest.raises((KeyboardInterrupt, ComponentError)):
            push_directly(model, destination, instances=3)
    assert file.read_text() == before
    assert not list((tmp_path / "new").iterdir())


def test_concurrent_writes_leave_one_complete_configuration(tmp_path):
    model, folder = Model(product(tmp_path)), tmp_path / "served"
    folder.mkdir()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda count: write_config(model, folder, Scheduling(instances=count)), range(1, 65)))
    assert read(folder / "config.pbtxt").instance_group[0].count in range(1, 65)
    assert [path.name for path in folder.iterdir()] == ["config.pbtxt"]


def test_the_batch_size_is_limited_to_that_of_the_engine(tmp_path, monkeypatch):
    engine = tmp_path / "model.plan"
    engine.write_text("an engine")
    open_end = {"x": TensorSpec("float32", (None, 2))}
    loaded = contextlib.nullcontext(SimpleNamespace(inputs=open_end, outputs=open_end))  # loading an engine needs a GPU
    monkeypatch.setattr(runtimes, "load", lambda model: loaded)
    here = Machine("10.11.0.33", "9.0", "NVIDIA H100", "570.86.15")
    for built, requested, written in ((32, 64, 32), (32, 8, 8), (None, 64, 64)):
        CompatibilityTag(**here.__dict__, version_compatible=False, largest_batch=built).write(engine)
        write_config(Model(engine), tmp_path, Scheduling(requested))
        assert read(tmp_path / "config.pbtxt").max_batch_size == written
        notes = check_config(tmp_path / "config.pbtxt", "tensorrt", open_end, open_end, 1, 7)
        assert notes[-1].endswith(f"max_batch_size {written}, for an engine of batches up to 7")


def test_a_fixed_batch_size_is_part_of_the_shape():
    spec = TensorSpec("float32", (4, 28))
    config = text_format.Parse(config_text("m", "onnx", {"x": spec}, {"y": spec}, Scheduling()), ModelConfig())
    assert (config.backend, config.max_batch_size, list(config.input[0].dims)) == ("onnxruntime", 0, [4, 28])
    assert not config.HasField("dynamic_batching")


def test_a_scalar_tensor_is_refused():
    batch, none = TensorSpec("float32", (None,)), TensorSpec("float32", ())
    assert "reshape" in config_text("m", "onnx", {"x": batch}, {"y": batch}, Scheduling())
    with pytest.raises(ComponentError, match="'y' is float32"):
        config_text("m", "onnx", {"x": batch}, {"y": none}, Scheduling())


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64", "string"])
def test_every_dtype_has_a_triton_type(dtype):
    spec = TensorSpec(dtype, (None, 2))
    assert (
        text_format.Parse(config_text("m", "onnx", {"x": spec}, {"y": spec}, Scheduling(1)), ModelConfig())
        .input[0]
        .data_type
    )


def test_the_configuration_contains_scheduling_and_the_reason_of_the_blessing(two_ends, tmp_path):
    push(two_ends, tmp_path / "digits", layout="triton", instances=3, device="cpu", queue_delay_us=250)
    config = read(tmp_path / "digits" / "config.pbtxt")
    assert [(group.count, group.kind) for group in config.instance_group] == [(3, ModelInstanceGroup.KIND_CPU)]
    assert config.dynamic_batching.max_queue_delay_microseconds == 250
    assert config.parameters["tfopt_reason"].string_value == "meets the goals"
    assert config.parameters["tfopt_digest"].string_value == SavedModel(two_ends).digest


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["model.onnx"], {"backend": "onnxruntime"}),
        (["model.xml", "model.bin"], {"backend": "openvino"}),
        (["model.plan"], {"platform": "tensorrt_plan"}),
        (["model.plan", "compatibility.json"], {"platform": "tensorrt_plan"}),
    ],
)
def test_each_format_has_its_backend_and_file_names(files, expected, tmp_path):
    spec = TensorSpec("float32", (None, 2))
    format = {"model.onnx": "onnx", "model.xml": "openvino", "model.plan": "tensorrt"}[files[0]]
    config = text_format.Parse(config_text("m", format, {"x": spec}, {"y": spec}, Scheduling()), ModelConfig())
    assert {key: getattr(config, key) for key in expected} == expected
    for file in files:
        (tmp_path / "Format-Serving").mkdir(exist_ok=True)
        (tmp_path / "Format-Serving" / file).touch()
    assert sorted(version_files(Model(tmp_path), "triton")) == sorted(files)


def test_names_in_the_configuration_are_quoted():
    spec = TensorSpec("float32", (None, 2))
    name = 'größer "x"\\'
    config = text_format.Parse(config_text(name, "onnx", {name: spec}, {"y": spec}, Scheduling(1)), ModelConfig())
    assert (config.name, config.input[0].name) == (name, name)


@pytest.mark.parametrize("spec", [TensorSpec("complex64", (None, 2)), TensorSpec("float32", (None,), ranked=False)])
def test_dtypes_and_ranks_that_triton_does_not_support_are_refused(spec):
    with pytest.raises(ComponentError, match=r"(?s)layout=triton.*how to fix"):
        config_text("m", "onnx", {"x": spec}, {"y": TensorSpec("float32", (None, 2))}, Scheduling())


def test_a_litert_model_is_refused_and_no_version_is_added(tmp_path):
    from tests.reports import DIGITS, make_models

    lite = make_models([DIGITS[4]], tmp_path / "models")[0]
    with pytest.raises(ComponentError, match="Triton has backends"):
        push(lite, tmp_path / "repository", layout="triton")
    assert not (tmp_path / "repository").exists()


def test_a_withdrawal_restores_the_configuration_of_the_version_before(tmp_path):
    models, served = [], tmp_path / "served"
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        models.append(product(tmp_path / str(number), FACTOR * number))
        push_directly(models[-1], served)
    withdraw(str(served), None, "wrong")
    assert read(served / "config.pbtxt").parameters["tfopt_digest"].string_value == Model(models[0]).digest
    restore(str(served), None, "")
    assert read(served / "config.pbtxt").parameters["tfopt_digest"].string_value == Model(models[1]).digest

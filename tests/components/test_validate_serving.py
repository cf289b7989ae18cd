"""Test validate_serving: models that a server cannot serve are not blessed, with the reason."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tests.conftest import write_examples
from tests.distributions import install
from tests.runtimes.formulas import saved
from tfopt.artifacts import InfraBlessing, Model
from tfopt.components.validate_serving.component import validate_serving
from tfopt.errors import ComponentError
from tfopt.serving import warm_up

FACTOR = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)


def validate(model: Path, folder: Path, **settings) -> InfraBlessing:
    target = folder / f"infra {len(list(folder.glob('infra*')))}"
    settings = {"seconds": 0.1, "requests": 4, "concurrency": 2} | settings
    return validate_serving(model, target, **settings)["infra_blessing"]


def validate_unservable(model: Path, folder: Path, **settings) -> str:
    return reason_of(validate(model, folder, **settings))


def reason_of(blessing: InfraBlessing) -> str:
    """Assert that a model is not blessed, and return the reason."""
    report = blessing.read()
    assert (report["blessed"], report["models"][0]["blessed"], blessing.metadata["blessed"]) == (False, False, 0)
    assert (blessing.path / "INFRA_NOT_BLESSED").exists()
    assert blessing.metadata["reason"] == report["reason"] == report["models"][0]["reason"]
    return report["reason"]


def product(folder: Path, factor: np.ndarray = FACTOR, *, lost: bool = False) -> Path:
    """Write an ONNX model: rows times a matrix; if ``lost``, with fewer columns than in the signature."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["full" if lost else "y"])]
    if lost:
        nodes += [
            helper.make_node("ReduceMax", ["x"], ["largest"], axes=[0, 1], keepdims=1),
            helper.make_node("Reshape", ["largest", "one"], ["flat"]),
            helper.make_node("Greater", ["flat", "never"], ["kept"]),
            helper.make_node("Compress", ["full", "kept"], ["y"], axis=1),
        ]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [
            numpy_helper.from_array(factor, "w"),
            numpy_helper.from_array(np.array([1]), "one"),
            numpy_helper.from_array(np.array([-1], np.float32), "never"),
        ],
    )
    file = folder / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), str(file))
    return file


def test_a_saved_model_is_loaded_in_a_session_with_its_warm_up_requests(digits_model, digits_examples, tmp_path):
    blessing = validate(digits_model, tmp_path, examples=digits_examples, batch_size=2)
    report = blessing.read()
    row = report["models"][0]
    assert (report["blessed"], blessing.metadata["blessed"]) == (True, 1)
    assert (blessing.path / "INFRA_BLESSED").exists()
    assert "session" in row["server"]
    assert row["warm_up"] == "4 requests from examples, split 'eval'"
    assert row["digest"] == Model(digits_model).digest
    assert (row["latency"]["concurrency"], row["latency"]["batch_size"]) == (2, 2)
    assert 0 < row["latency"]["p50_ms"] <= row["latency"]["p99_ms"]
    assert row["max_error"] < 1e-5
    assert row["sweep"] is None


def test_a_saved_model_with_an_asset_outside_of_it_is_not_blessed(digits_model, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(Model(digits_model).saved_model, model)
    proto = SavedModel.FromString((model / "saved_model.pb").read_bytes())
    graph = proto.meta_graphs[0]
    graph.ClearField("object_graph_def")  # as TensorFlow 1 writes it
    graph.asset_file_def.add(filename="../../secret").tensor_info.name = "x:0"
    (model / "saved_model.pb").write_bytes(proto.SerializeToString())
    assert "asset '../../secret'" in validate_unservable(model, tmp_path)


def test_a_scalar_input_gets_one_value_of_the_examples(tmp_path):
    def serve(k, x):
        return {"top": tf.math.top_k(x, k).values}

    model = saved(tmp_path / "model", serve, k=([], tf.int32), x=([None, 6], tf.float32))
    columns = {"k": np.full((20, 1), 2), "x": np.random.default_rng(0).random((20, 6), np.float32)}
    write_examples(tmp_path / "examples" / "Split-eval" / "data_tfrecord", columns)
    blessing = validate(model, tmp_path, examples=tmp_path / "examples", batch_size=2).read()
    assert blessing["blessed"], blessing["reason"]
    assert blessing["models"][0]["warm_up"] == "4 requests from examples, split 'eval'"


def test_a_broken_litert_model_and_its_fallback_are_tested_independently(digits_lite, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(digits_lite, broken)
    file = broken / "Format-Serving" / "tflite"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    blessing = validate(broken, tmp_path, fallback=digits_lite, sweep=3)
    child, parent = blessing.read()["models"]
    assert child["sweep"] is None
    assert [row["concurrency"] for row in parent["sweep"]["clients"]] == [1, 2]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in parent["sweep"]["clients"])
    assert parent["reason"].endswith(f"clients; by the number of clients {parent['sweep']['saturation']['summary']}")
    assert (child["blessed"], parent["blessed"], parent["server"]) == (False, True, "LiteRT")
    assert "tflite" in child["reason"]
    assert blessing.metadata["blessed"] == 0  # stock components read this; it is about the model


def test_a_fallback_that_the_layout_cannot_hold_is_not_blessed_but_the_model_is(digits_lite, tmp_path):
    report = validate(product(tmp_path), tmp_path, fallback=digits_lite, layout="triton").read()
    child, parent = report["models"]
    assert (report["blessed"], child["blessed"], parent["blessed"]) == (True, True, False)
    assert "tflite, layout='triton'" in parent["reason"]


@pytest.fixture(scope="module")
def blessings(tmp_path_factory) -> dict[bool, InfraBlessing]:
    """Validate an ONNX file that is blessed, and one that is not, since it returns NaN."""
    folder, broken = tmp_path_factory.mktemp("blessings"), FACTOR.copy()
    broken[1, 1] = np.nan
    return {good: validate(product(folder, FACTOR if good else broken), folder) for good in (True, False)}


def test_an_onnx_file_is_tested_in_onnx_runtime(blessings):
    row = blessings[True].read()["models"][0]
    assert (row["blessed"], row["server"], row["source"]) == (True, "ONNX Runtime", "random inputs")


def test_nan_wrong_shapes_and_broken_files_are_reported(blessings, tmp_path):
    assert "'y': NaN or infinity in 1 of 2" in reason_of(blessings[False])
    assert "'y': of shape [1, 1], not float32[?,2]" in validate_unservable(product(tmp_path, lost=True), tmp_path)
    file = product(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ComponentError, match=r"product\.onnx: a field that ends after its message"):
        validate_unservable(file, tmp_path)


def test_a_model_slower_than_the_limit_is_not_blessed(tmp_path):
    reason = validate_unservable(product(tmp_path), tmp_path, max_p99_ms=1e-6)
    assert "not 1e-06 ms" in reason
    assert "with 2 clients" in reason


def test_warm_up_requests_that_do_not_fit_the_model_are_reported(digits_model, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(digits_model, own)
    warm_up.write_requests(own / "Format-Serving", [{"image": np.zeros((1, 9, 9, 1), np.float32)}])
    reason = validate_unservable(own, tmp_path)
    assert "a request fails" in reason


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ('input { name: "rows" data_type: TYPE_FP32 dims: [3] }', "input rows, where the model has x"),
        ('input { name: "x" data_type: TYPE_FP16 dims: [3] }', "'x' of TYPE_FP16, not TYPE_FP32"),
        ('output { name: "y" data_type: TYPE_FP32 dims: [7] }', "'y' of dims [7], where the model has float32[?,2]"),
        ('name: "another"', "name 'another' in a folder called 'product'"),
        ('backend: "tensorflow"', "'tensorflow' for a model of 'onnxruntime'"),
        ('input { name: "x" ', "config.pbtxt"),
        ("max_batch_size: 1 ", "max_batch_size 1, for requests of 2"),
        ('max_batch_size: 0 output { name: "z" data_type: TYPE_FP32 dims: [1] reshape { } }', "'z' has no axes"),
    ],
)
def test_a_user_configuration_that_triton_would_reject_is_reported(tmp_path, wrong, fault):
    from tfopt.artifacts.tensor_spec import TensorSpec
    from tfopt.serving.triton_server import check_config

    file = tmp_path / "product" / "config.pbtxt"
    file.parent.mkdir()
    size = "" if "max_batch" in wrong else "max_batch_size: 8 "
    file.write_text(f"{size}version_policy {{ latest {{ num_versions: 2 }} }} {wrong}")
    outputs = {"y": TensorSpec("float32", (None, 2))}
    outputs |= {"z": TensorSpec("float32", ())} if '"z"' in wrong else {}
    faults = check_config(file, "onnx", {"x": TensorSpec("float32", (None, 3))}, outputs, 2)
    assert len(faults) == 1
    assert fault in faults[0]


@pytest.mark.parametrize("shape", [(4, 28), (), (None,)])
@pytest.mark.parametrize("config", ["", 'input { name: "x" data_type: TYPE_FP32 dims: [28] }'])
def test_batching_without_an_open_batch_is_reported(tmp_path, shape, config):
    from tfopt.artifacts.tensor_spec import TensorSpec
    from tfopt.serving.triton_server import check_config

    file = tmp_path / "config.pbtxt"
    spec, open_spec = TensorSpec("float32", shape, ranked=shape != (None,)), TensorSpec("float32", (None, 28))
    file.write_text(f"max_batch_size: 8 {config}")
    assert "max_batch_size above 0" in check_config(file, "onnx", {"x": spec}, {"y": open_spec}, 1)[0]
    assert "max_batch_size above 0" in check_config(file, "onnx", {"x": open_spec}, {"y": spec}, 1)[0]
    assert check_config(file, "onnx", {"x": open_spec}, {"y": open_spec}, 1) == []


def test_the_configuration_at_the_destination_is_checked(tmp_path, monkeypatch):
    # The variable HOME would start another server of processes.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path.replace("~", str(tmp_path)))
    served = tmp_path / "product"
    assert validate(product(tmp_path), tmp_path, layout="triton", destination=str(served)).read()["blessed"]
    served.mkdir()
    (served / "config.pbtxt").write_text('max_batch_size: 8 input { name: "z" data_type: TYPE_FP32 dims: [3] }')
    reason = validate_unservable(product(tmp_path), tmp_path, layout="triton", destination="~/product")
    assert reason == "config.pbtxt: input z, where the model has x"


def test_the_declared_fields_match_tritons_configuration():
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from tfopt.serving.triton_server import _create_message

    def compare(ours, theirs) -> None:
        for field in ours.fields:
            other = theirs.fields_by_name[field.name]
            assert field.is_repeated == other.is_repeated
            if field.message_type:
                compare(field.message_type, other.message_type)
            elif field.enum_type:
                assert set(field.enum_type.values_by_name) <= set(other.enum_type.values_by_name)

    compare(type(_create_message()).DESCRIPTOR, ModelConfig.DESCRIPTOR)


def test_a_full_disk_raises_instead_of_a_result(digits_model, tmp_path, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=False).returncode:
        pytest.skip("only root may mount")
    monkeypatch.setattr(tempfile, "tempdir", str(small))
    try:
        with pytest.raises(ComponentError, match="room for the outputs"):
            validate(digits_model, tmp_path)
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)  # this process holds its scratch folder there
    assert not list(tmp_path.glob("infra*"))


def test_a_fixed_batch_does_not_change_the_number_of_requests(tmp_path):
    model = saved(tmp_path / "model", lambda x: {"y": x * 2}, x=([8, 2], tf.float32))
    assert validate(model, tmp_path).read()["models"][0]["requests"] == 4


def test_the_generated_configuration_has_the_maximal_batch_size(tmp_path):
    settings = {"layout": "triton", "batch_size": 128}
    assert "max_batch_size 64, for requests of 128" in validate_unservable(product(tmp_path), tmp_path, **settings)
    report = validate(product(tmp_path), tmp_path, max_batch_size=128, **settings).read()
    assert report["blessed"], report["reason"]


def test_examples_and_layouts_that_do_not_fit_raise(tmp_path):
    write_examples(tmp_path / "others" / "Split-eval" / "data_tfrecord", {"z": np.zeros((2, 2), np.float32)})
    with pytest.raises(ComponentError, match="no feature 'x'"):
        validate(product(tmp_path), tmp_path, examples=tmp_path / "others")
    with pytest.raises(ComponentError, match="which is what TensorFlow Serving loads"):
        validate(product(tmp_path), tmp_path, layout="tf_serving")


@pytest.mark.parametrize("blessed", [True, False])
def test_tfxs_pusher_accepts_the_blessing(blessings, tmp_path, blessed):
    from tfx.components.pusher.executor import Executor
    from tfx.types import standard_artifacts

    from tfopt.tfx.components import _publish

    source = blessings[blessed]
    serving = tmp_path / "model" / "Format-Serving" / "model.onnx"
    serving.parent.mkdir(parents=True)
    product(tmp_path).rename(serving)
    blessing, model, pushed = (
        getattr(standard_artifacts, name)() for name in ("InfraBlessing", "Model", "PushedModel")
    )
    blessing.uri, model.uri, pushed.uri = source.uri, str(serving.parent.parent), str(tmp_path / "pushed")
    _publish(blessing, source)
    destination = json.dumps({"filesystem": {"base_directory": str(tmp_path / "served")}})
    Executor().Do(
        {"model": [model], "infra_blessing": [blessing]},
        {"pushed_model": [pushed]},
        {"push_destination": destination},
    )
    assert bool(list(tmp_path.glob("served/*/model.onnx"))) == blessed
    assert pushed.get_int_custom_property("pushed") == int(blessed)


def test_a_rate_has_a_latency_of_its_own_and_a_limit(tmp_path):
    blessing = validate(product(tmp_path), tmp_path, rate=500, max_p99_ms=5000, seconds=0.1)
    row = blessing.read()["models"][0]
    assert row["blessed"] and "at 500/s by 1 replica (1 needed)" in row["reason"]
    at_rate = row["at_rate"]
    assert (at_rate["calls"], at_rate["replicas_needed"], at_rate["arrivals"]) == (100, 1, "poisson")
    assert 0 < at_rate["p50_ms"] <= at_rate["p99_ms"] == blessing.metadata["p99_ms_at_rate"]
    settings = {"rate": 900, "replicas": 3, "arrivals": "constant", "seconds": 0.1}
    reason = validate_unservable(product(tmp_path), tmp_path, max_p99_ms=0.0, **settings)
    assert reason.endswith("ms at 900/s by 3 replicas, not 0 ms")


def test_a_rate_above_the_capacity_needs_replicas():
    """A service of 4 ms is 250 per second; three replicas of 400/s have a utilization of 53 % each."""
    from tfopt.components.validate_serving.latency import Traffic, measure_rate
    from tfopt.components.validate_serving.parameters import ServingTest

    batches = [{"x": np.zeros((1, 3), np.float32)}]
    test = ServingTest(max_p99_ms=40, seconds=0.2)
    traffic = Traffic(batches, 400, "constant")
    measured = measure_rate([lambda batch: time.sleep(0.004)], traffic, test, throughput=250)
    assert measured.p99_ms > 100
    assert measured.replicas_needed in (2, 3)
    hopeless = replace(test, max_p99_ms=1.0)
    assert measure_rate([lambda batch: time.sleep(0.004)], traffic, hopeless, 250).replicas_needed is None


def record(file: Path, times: list[float | None]) -> Path:
    """Write a recording with a request of one row at each of the times."""
    lines = [
        {"inputs": {"x": [[number, 1.0, 2.0]]}} | ({"time": time} if time else {}) for number, time in enumerate(times)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_recorded_requests_arrive_at_their_times_which_repeat(tmp_path):
    """Ten at once each tenth of a second: with 4 ms for each, the last one waits for 36 ms."""
    from tfopt.components.validate_serving.latency import Traffic, measure_rate
    from tfopt.components.validate_serving.parameters import ServingTest
    from tfopt.serving.recordings.recorded_requests import Recording, Request

    requests = [Request({"x": np.float32([[number]])}, 7 + number // 10 / 10, {}, 1) for number in range(50)]
    traffic, seen = Traffic.recorded(Recording("", requests, 0), test := ServingTest(seconds=0.1)), list[float]()

    def answer(batch):
        seen.append(batch["x"].item())
        time.sleep(0.004)
        return {}

    measured = measure_rate([answer], traffic, test, throughput=250)
    assert (measured.calls, measured.arrivals) == (100, "recorded")
    assert seen == [*range(50), *range(50)]
    assert measured.rate == pytest.approx(49 / 0.4)
    assert measured.p99_ms > 36
    numbers, times = traffic.part(4, seconds=0.1)
    assert len(numbers) == pytest.approx(100, abs=30)  # a quarter of 400
    assert times == pytest.approx(numbers % 50 // 10 / 10 + numbers // 50 * 0.4 * 50 / 49)


def test_a_recording_is_measured_behind_the_server(tmp_path):
    recording = record(tmp_path / "requests.jsonl", [1 + 0.002 * number for number in range(60)])
    blessing = validate(product(tmp_path), tmp_path, recording=recording, seconds=0.05, max_p99_ms=5000)
    row = blessing.read()["models"][0]
    assert "at 500/s at recorded times by 1 replica (1 needed)" in row["reason"]
    assert (row["at_rate"]["arrivals"], row["at_rate"]["calls"]) == ("recorded", 100)
    at_rate = validate(product(tmp_path), tmp_path, recording=recording, rate=400).read()["models"][0]["at_rate"]
    assert (at_rate["arrivals"], at_rate["rate"]) == ("poisson", 400)


@pytest.mark.parametrize(
    ("times", "received"),
    [
        ([None] * 5, "a recording without times, and no rate"),
        ([3.0] * 5, "a recording whose requests have one time, and no rate"),
    ],
)
def test_a_recording_without_a_rate_needs_times(times, received, tmp_path):
    recording = record(tmp_path / "requests.jsonl", times)
    with pytest.raises(ComponentError, match=received):
        validate(product(tmp_path), tmp_path, recording=recording)


SERVER = """
import contextlib
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.serving.servers import Server, ServerProgram

@contextlib.contextmanager
def run(program, root, signature, deadline):
    with runtimes.load(Model(root / "1" / "model.onnx")) as runtime:
        yield Server(program, runtime.inputs, runtime.outputs, lambda: runtime.run)

def check_folder(model, root, expected, test):
    return [] if root.name == "product" else [f"a model called {root.name}"]

PROGRAM = ServerProgram(lambda format: f"another server of {format}", run, check_folder)
"""


def test_an_entry_point_of_another_package_adds_a_server(tmp_path, monkeypatch):
    entries = {"plain.onnx": "other_server:PROGRAM", "plain.openvino": "no_such_module:PROGRAM"}
    install(tmp_path / "site", monkeypatch, "tfopt.servers", entries, other_server=SERVER)
    row = validate(product(tmp_path), tmp_path, layout="plain", destination="served/product").read()["models"][0]
    assert (row["blessed"], row["server"]) == (True, "another server of onnx")
    assert validate_unservable(product(tmp_path), tmp_path, layout="plain") == "a model called model"


@pytest.mark.nightly
def test_a_model_that_never_responds_is_stopped(tmp_path):
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
    def serve(x):
        return {"y": tf.while_loop(lambda value: True, lambda value: (value,), (x,))[0]}

    tf.saved_model.save(tf.Module(), str(tmp_path / "endless"), signatures=serve)
    assert "no end after 20 s" in validate_unservable(tmp_path / "endless", tmp_path, max_seconds=20)


ENDS, LOADS = "echo no such disk; exit 3", "echo still reading; exec sleep 100"


@pytest.mark.nightly
@pytest.mark.parametrize("command", [None, ENDS, LOADS], ids=["serves", "ends", "loads"])
def test_a_model_server_is_called_by_grpc_and_its_log_is_reported_if_it_ends_or_still_loads(
    digits_model, digits_examples, tmp_path, monkeypatch, command
):
    program = tmp_path / "bin" / "tensorflow_model_server"
    program.parent.mkdir()
    script = Path(__file__).parents[1] / "stand_in_server.py"
    serves = f'exec "{sys.executable}" "{script}" "$@"'
    program.write_text(f"#!/bin/sh\n{command or serves}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    if command:
        reason = validate_unservable(digits_model, tmp_path, examples=digits_examples, max_seconds=40)
        assert {ENDS: "no such disk", LOADS: "still reading"}[command] in reason
    else:
        row = validate(digits_model, tmp_path, examples=digits_examples).read()["models"][0]
        assert row["blessed"], row["reason"]
        assert row["server"] == "TensorFlow Serving"
        assert row["max_error"] < 1e-5

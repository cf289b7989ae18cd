"""Test replay: recorded requests to two versions, early ends, latency with queues, verdicts and refusals."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper
from tensorflow_serving.apis import prediction_log_pb2

from tests.runtimes.formulas import onnx, saved
from tfopt.artifacts import Blessing, InfraBlessing, Model, Replay
from tfopt.components.push_model.push import choose
from tfopt.components.replay.component import replay
from tfopt.components.validate_serving.component import validate_serving
from tfopt.errors import ComponentError

COUNT = 600
ROWS = np.random.default_rng(0).normal(size=(COUNT, 3)).astype(np.float32)
FACTOR = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
GOALS = ["disagreement max 2%"]


def scores(folder: Path, factor: np.ndarray = FACTOR, name: str = "scores") -> Path:
    """Write an ONNX model with two inputs and two outputs: scores of four classes, and the number of a customer."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"]), helper.make_node("Identity", ["id"], ["customer"])]
    file = folder / f"{name}.onnx"
    shapes = {"x": (TensorProto.FLOAT, ["batch", 3]), "id": (TensorProto.INT64, ["batch", 1])}
    outputs = {"scores": (TensorProto.FLOAT, ["batch", 4]), "customer": (TensorProto.INT64, ["batch", 1])}
    model = onnx(file, nodes, shapes, outputs)
    import onnx as library

    proto = library.load(str(file))
    proto.graph.initializer.append(numpy_helper.from_array(factor, "w"))
    library.save(proto, str(file))
    return model.path


def lines(file: Path, count: int = COUNT, rate: float = 1000) -> Path:
    """Write JSON lines: a row in each, the number of a customer, and a city."""
    rows = [
        {"time": n / rate, "city": ["Oslo", "Rome"][n % 2], "instances": [{"x": ROWS[n].tolist(), "id": [n]}]}
        for n in range(count)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def run(model: Path, served: Path | None, recording: Path, folder: Path, **settings) -> Replay:
    target = folder / f"out {len(list(folder.glob('out*')))}"
    settings = {"goals": GOALS, "seconds": 0.3} | settings
    outputs = {"replayed": target / "replayed", "infra_blessing": target / "blessing"}
    return replay(model, recording, **outputs, served=served, **settings)["replayed"]


def refusal(*arguments, **settings) -> ComponentError:
    with pytest.raises(ComponentError) as error:
        run(*arguments, **settings)
    assert all((error.value.received, error.value.expected, error.value.fix))
    return error.value


def test_an_equal_version_is_blessed_and_its_latency_measured(tmp_path):
    served, model = scores(tmp_path), scores(tmp_path, name="new")
    goals = [*GOALS, "disagreement[city=*] max 4%", "p99 max 10000", "p50 max_regression 500%"]
    replayed = run(model, served, lines(tmp_path / "a.jsonl"), tmp_path, goals=goals, slices=["city"])
    report = replayed.load()
    assert report.blessed and all(goal.met for goal in report.goals), report.reason
    assert [row.goal for row in report.goals][:3] == [
        GOALS[0],
        *(f"disagreement[city={c}] max 4%" for c in ("Oslo", "Rome")),
    ]
    assert (report.traffic.requests, report.traffic.source, report.model.server) == (
        COUNT,
        "JSON lines",
        "ONNX Runtime",
    )
    assert report.looks[-1].disagreeing == 0 and report.looks[-1].records == COUNT
    assert {(row.value, row.records) for row in report.slices} == {("Oslo", 300), ("Rome", 300)}
    assert sum(window.requests for window in report.windows) == report.model.latency.calls == 301
    assert 0 < report.latency["p50"].model.value <= report.latency["p99"].model.value
    page = (replayed.path / "report.html").read_text()
    assert "new.onnx is blessed" in page and page.count("<svg") == 4
    permission = Blessing(tmp_path / "blessing")
    permission.write({"blessed": True, "reason": "good", "model_digest": Model(model).digest})
    infra = replayed.path.parent / "blessing"
    assert (infra / "INFRA_BLESSED").exists()
    assert choose(Model(model), permission, InfraBlessing(infra), None).model


def test_another_version_is_not_blessed_after_few_records_and_without_a_measurement(tmp_path):
    model = scores(tmp_path, -FACTOR, "new")
    replayed = run(model, scores(tmp_path), lines(tmp_path / "a.jsonl"), tmp_path, goals=[*GOALS, "p99 max 1"])
    report = replayed.load()
    assert not report.blessed
    assert [look.records for look in report.looks] == [64]
    assert "goal asks for at most 2" in report.reason and "of 64 answers disagree" in report.reason
    assert report.ended == "after 64 of 600 records: a goal is missed"
    assert [goal.met for goal in report.goals] == [False, False] and not report.latency
    assert (replayed.path.parent / "blessing" / "INFRA_NOT_BLESSED").exists()


def test_a_slice_decides_where_all_records_do_not(tmp_path):
    """The scores of every 20th row differ, all of them in Rome."""
    recording = tmp_path / "a.jsonl"
    rows = [
        {"city": "Rome" if n % 20 == 0 else "Oslo", "instances": [{"x": [1 - 2 * (n % 20 == 0), 0, 0], "id": [n]}]}
        for n in range(COUNT)
    ]
    recording.write_text("\n".join(map(json.dumps, rows)))
    served = scores(tmp_path, np.array([[1, 0, 0, 0], [0] * 4, [0] * 4], np.float32))
    model = scores(tmp_path, np.array([[1, 0, -1, 0], [0] * 4, [0] * 4], np.float32), "new")
    report = run(model, served, recording, tmp_path, goals=["disagreement max 9%"], slices=["city"]).load()
    assert report.blessed, report.reason
    goals = ["disagreement max 9%", "disagreement[city=Rome] max 40%"]
    report = run(model, served, recording, tmp_path, goals=goals, slices=["city"], slice_records=20).load()
    assert not report.blessed and "disagreement where city is Rome is 100" in report.reason


def write_log(file: Path, batches, times, signature: str = "") -> Path:
    """Write requests as TensorFlow Serving's logger does, with the protos of its package."""
    with tf.io.TFRecordWriter(str(file)) as writer:
        for batch, time in zip(batches, times, strict=True):
            log = prediction_log_pb2.PredictionLog()
            log.log_metadata.model_spec.version.value = 1
            log.log_metadata.timestamp_secs = int(time)
            log.predict_log.request.model_spec.signature_name = signature
            for name, array in batch.items():
                log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(array))
            log.predict_log.response.outputs["y"].CopyFrom(tf.make_tensor_proto([1.0]))
            writer.write(log.SerializeToString())
    return file


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Callable[[float], Path]:
    """Write SavedModels of a text input, whose outputs are lengths times a factor, and the text."""
    folder = tmp_path_factory.mktemp("texts")

    def write(factor: float) -> Path:
        def serve(text):
            return {"length": factor * tf.cast(tf.strings.length(text), tf.float32), "same": text}

        target = folder / str(factor)
        return target if target.exists() else saved(target, serve, text=([None], tf.string))

    return write


def test_a_request_log_of_tensorflow_serving_with_text(texts, tmp_path):
    batches = [{"text": np.array([b"x" * (n % 9), b"y"], object)} for n in range(200)]
    log = write_log(tmp_path / "log", batches, 1_790_000_000 + np.arange(200) / 400)
    goals = ["disagreement max 3%", "p99 max 60000"]
    report = run(texts(1.001), texts(1.0), log, tmp_path, goals=goals, speed=2).load()
    assert report.blessed, report.reason
    assert (report.traffic.source, report.traffic.records) == ("TensorFlow Serving's request log", 400)
    assert 0.5 < report.traffic.seconds < 1  # of one recorded second: spread at random in it
    assert "2 times as fast" in report.traffic.arrivals
    report = run(texts(1.2), texts(1.0), log, tmp_path, goals=["disagreement max 3%"]).load()
    assert not report.blessed and report.looks[-1].disagreeing > 50
    assert run(texts(1.2), texts(1.0), log, tmp_path, goals=["disagreement max 3%"], tolerance=0.3).load().blessed


def test_faults_of_the_new_version_are_reasons_and_those_of_the_served_one_are_errors(texts, tmp_path):
    recording, served = lines(tmp_path / "a.jsonl"), scores(tmp_path)
    broken = FACTOR.copy()
    broken[0, 0] = np.nan
    nan = scores(tmp_path, broken, "nan")
    report = run(nan, served, recording, tmp_path).load()
    assert not report.blessed
    assert report.reason.startswith("request 0: output 'scores': NaN or infinity in 1 of 4 values")
    silent = scores(tmp_path, FACTOR * np.nan, "all")
    assert "NaN or infinity for all" in refusal(served, silent, recording, tmp_path).received
    assert "both models return NaN or infinity for 600 records" in run(nan, nan, recording, tmp_path).load().notes
    report = run(texts(1.0), served, recording, tmp_path).load()
    assert not report.blessed and "another signature than the served version: inputs text are served" in report.reason
    unloadable = scores(tmp_path, FACTOR[:2], "unloadable")
    assert "the served version cannot be loaded" in refusal(served, unloadable, recording, tmp_path).received
    assert not run(unloadable, served, recording, tmp_path).load().blessed

    def fail(text):
        with tf.control_dependencies([tf.debugging.assert_less(tf.shape(text)[0], 1)]):
            return {"length": tf.cast(tf.strings.length(text), tf.float32), "same": tf.identity(text)}

    failing = saved(tmp_path / "failing", fail, text=([None], tf.string))
    log = write_log(tmp_path / "log", [{"text": np.array([b"a"], object)}] * 300, np.arange(300) + 1)
    assert "the served version fails on a recorded request" in refusal(texts(1.0), failing, log, tmp_path).received
    assert not run(failing, texts(1.0), log, tmp_path).load().blessed


def test_a_version_that_failed_the_serving_test_is_not_blessed(tmp_path):
    served, model, recording = scores(tmp_path), scores(tmp_path, name="new"), lines(tmp_path / "a.jsonl")
    tested = validate_serving(model, tmp_path / "tested", seconds=0.05, requests=2, max_p99_ms=0.0)["infra_blessing"]
    report = run(model, served, recording, tmp_path, tested=tested.path).load()
    assert not report.blessed and "not 0 ms" in report.reason
    other = scores(tmp_path, -FACTOR, "other")
    assert "is about" in refusal(other, model, recording, tmp_path, tested=tested.path).received


def test_nothing_to_compare_with_is_an_error_unless_there_is_a_result_to_pass_on(tmp_path):
    model, recording, destination = scores(tmp_path), lines(tmp_path / "a.jsonl"), str(tmp_path / "served")
    assert "destination=DESTINATION" in refusal(model, None, recording, tmp_path).fix
    assert "pass tested" in refusal(model, None, recording, tmp_path, destination=destination).fix
    for limit, is_blessed in ((0.0, False), (9000.0, True)):
        folder = tmp_path / f"tested {limit}"
        tested = validate_serving(model, folder, seconds=0.05, requests=2, max_p99_ms=limit)["infra_blessing"]
        replayed = run(model, None, recording, tmp_path, destination=destination, tested=tested.path)
        report = replayed.load()
        assert (report.blessed, report.served, report.looks) == (is_blessed, None, [])
        assert ("yet: the result" in report.reason) == is_blessed and ("not 0 ms" in report.reason) != is_blessed
        assert InfraBlessing(replayed.path.parent / "blessing").load() == tested.load()
        assert "No requests were replayed" in (replayed.path / "report.html").read_text()


def test_goals_that_the_recording_cannot_show_are_refused(tmp_path):
    served, recording = scores(tmp_path), lines(tmp_path / "a.jsonl", count=100)
    error = refusal(served, served, recording, tmp_path, goals=["disagreement max 0.5%"])
    assert "100 records" in error.received and "875 records" in error.expected
    untimed = tmp_path / "b.jsonl"
    untimed.write_text("\n".join(json.dumps({"instances": [{"x": row.tolist(), "id": [1]}]}) for row in ROWS))
    assert "without arrival times" in refusal(served, served, untimed, tmp_path, goals=["p99 max 9"]).received
    report = run(served, served, untimed, tmp_path, goals=["p99 max 9000"], rate=300, arrivals="constant").load()
    assert report.blessed and report.traffic.arrivals == "300 requests per second at equal distances"
    assert report.model.latency.calls == 90

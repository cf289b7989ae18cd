"""Test the forms of recordings that replay reads, and what it refuses."""

import base64
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tests.conftest import write_examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.replay.replay_goals import read_replay_goals
from tfopt.errors import ComponentError
from tfopt.serving.recordings.recorded_requests import Recording, Selection, read_recording

SPECS = {"x": TensorSpec("float32", (None, 2)), "name": TensorSpec("string", (None, 1))}
X, NAMES = [[1.0, 2.0], [3.0, 4.5]], [["ann"], ["bob"]]
V1_ROWS = {"instances": [{"x": x, "name": name} for x, name in zip(X, NAMES, strict=True)]}
V1_COLUMNS = {"inputs": {"x": X, "name": [[{"b64": base64.b64encode(b"ann").decode()}], ["bob"]]}}
V2 = {
    "inputs": [
        {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.5]},
        {"name": "name", "shape": [2, 1], "datatype": "BYTES", "data": ["ann", "bob"]},
    ]
}


def event(body: dict, number: int, kind: str = "request") -> dict:
    """Return an event as KServe's logger sends it."""
    return {
        "specversion": "1.0",
        "id": f"36f3-{number}",
        "source": "http://localhost:9081/",
        "type": f"org.kubeflow.serving.inference.{kind}",
        "time": f"2026-11-28T09:00:00.{number:03d}456789Z",
        "inferenceservicename": "digits",
        "data": body,
    }


def read(path: Path, specs=SPECS, **selection) -> Recording:
    return read_recording(path, specs, "serving_default", Selection(**selection))


def write(file: Path, *rows: dict) -> Path:
    text = "\n".join(map(json.dumps, rows))
    if file.suffix == ".gz":
        with gzip.open(file, "wt") as stream:
            stream.write(text)
    else:
        file.write_text(text)
    return file


@pytest.mark.parametrize("body", [V1_ROWS, V1_COLUMNS, V2], ids=["rows", "columns", "v2"])
@pytest.mark.parametrize("form", ["lines", "events", "binary events"])
def test_the_forms_of_json_have_the_same_inputs(body, form, tmp_path):
    plain = {"time": 12.25, "city": "Oslo"} | body
    rows = {
        "lines": [plain, plain | {"time": 13}],
        "events": [event(body, 1), event({"predictions": []}, 2, "response"), event(body, 751)],
        "binary events": [
            {**event({}, 1), "data": None, "data_base64": base64.b64encode(json.dumps(body).encode()).decode()},
            event(body, 751),
        ],
    }[form]
    recording = read(write(tmp_path / "log.json.gz", *rows))
    assert recording.source == ("JSON lines" if form == "lines" else "KServe's logger events")
    assert recording.times == pytest.approx([0, 0.75])
    for request in recording.requests:
        assert request.records == 2
        assert request.inputs["x"].tolist() == X and request.inputs["x"].dtype == np.float32
        assert request.inputs["name"].tolist() == [[b"ann"], [b"bob"]]


def test_one_input_needs_no_name_and_slices_are_keys_or_inputs(tmp_path):
    rows = [{"city": "Oslo", "instances": [[1], [2]]}, {"city": "Rome", "inputs": [[2]]}]
    recording = read(write(tmp_path / "a.jsonl", *rows), {"id": TensorSpec("int64", (None, 1))}, slices=("city", "id"))
    assert [[*map(str, request.slices["city"])] for request in recording.requests] == [["Oslo", "Oslo"], ["Rome"]]
    assert [request.slices["id"].tolist() for request in recording.requests] == [[1, 2], [2]]
    assert recording.times is None


def prediction_log(x, signature: str = "", seconds: int = 0) -> prediction_log_pb2.PredictionLog:
    log = prediction_log_pb2.PredictionLog()
    log.log_metadata.timestamp_secs = seconds
    log.predict_log.request.model_spec.signature_name = signature
    log.predict_log.request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.array(x, np.float32)))
    return log


def write_records(file: Path, *records) -> Path:
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            writer.write(record if isinstance(record, bytes) else record.SerializeToString())
    return file


ONE = {"x": SPECS["x"]}


def test_times_of_whole_seconds_are_spread_within_each_second(tmp_path):
    logs = [prediction_log([[n, 0]], seconds=100 + n // 50) for n in range(100)]
    logs.insert(5, prediction_log([[0, 0]], "classify", 100))
    recording = read(write_records(tmp_path / "log", *logs), ONE)
    times = np.array([request.time for request in recording.requests])
    assert [int(request.inputs["x"][0, 0]) for request in recording.requests] == [*range(100)]
    assert (np.diff(times) > 0).all() and np.floor(times).tolist() == [100.0] * 50 + [101.0] * 50
    assert recording.skipped == 1
    assert len(read(tmp_path / "log", ONE, limit=7).requests) == 7


def test_examples_have_no_times_and_any_feature_as_a_slice(tmp_path):
    columns = {"x": np.arange(600).reshape(300, 2).astype(np.float32), "label": np.arange(300) % 3}
    write_examples(tmp_path / "data_tfrecord", columns)
    recording = read(tmp_path, ONE, slices=("label",))
    assert (recording.source, recording.times, len(recording.requests)) == ("tf.Example records", None, 300)
    assert recording.requests[299].inputs["x"].tolist() == [[598.0, 599.0]]
    assert [int(request.slices["label"][0]) for request in recording.requests[:4]] == [0, 1, 2, 0]


LINE = {"instances": [{"x": [1, 2], "name": ["a"]}]}
BAD_LINES = {
    "no JSON": (['{"a": 1'], "log, line 1"),
    "a list": (['{"instances": 1}', "[1]"], "instances without a record"),
    "no body": ([{"time": 1, "values": [1]}], "a request with time, values"),
    "another input": ([LINE, {"instances": [{"y": [1, 2], "name": ["a"]}]}], "line 2: no input 'x'"),
    "a missing input": ([{"instances": [{"x": [1, 2]}]}], "no input 'name'"),
    "another shape": ([{"instances": [{"x": [1, 2, 3], "name": ["a"]}]}], "input 'x': float32[1,3]"),
    "ragged": ([{"instances": [{"x": [1, [2]], "name": ["a"]}]}], "input 'x'"),
    "text": ([{"instances": [{"x": ["a", "b"], "name": ["a"]}]}], "input 'x': could not convert"),
    "unequal rows": ([{"instances": [{"x": [1, 2], "name": ["a"]}, {"x": [1, 2]}]}], "without 'name'"),
    "no names": ([{"instances": [[1, 2]]}], "values without names"),
    "wrong shape": ([{"inputs": [V2["inputs"][0] | {"shape": [3, 2]}]}], "4 values and shape [3, 2]"),
    "binary tensor": ([{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32"}]}], "without shape or data"),
    "a bad time": ([LINE | {"time": "yesterday"}], "time 'yesterday'"),
    "a time that is NaN": ([LINE | {"time": float("nan")}], "time nan"),
    "times that go backwards": ([LINE | {"time": 3}, LINE | {"time": 2.5}], "request 1 is 0.5 s before request 0"),
    "a missing time": ([LINE | {"time": 3}, LINE], "1 of 2 requests without a time"),
    "only responses": ([event({}, 1, "response")], "no request"),
    "not base64": ([{**event({}, 1), "data_base64": "e30"}], "data_base64"),
    "a missing slice": ([LINE], "no slice 'city'"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_lines_that_are_no_requests_to_this_model_are_refused(case, tmp_path):
    rows, received = BAD_LINES[case]
    (tmp_path / "log").write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    with pytest.raises(ComponentError) as error:
        read(tmp_path / "log", slices=("city",) if case == "a missing slice" else ())
    assert received in error.value.received
    assert error.value.expected and error.value.fix


def test_other_files_are_refused(tmp_path):
    logs = [prediction_log([[n, 0]], seconds=100) for n in range(20)]
    whole = write_records(tmp_path / "log", *logs)
    other = prediction_log_pb2.PredictionLog()
    other.classify_log.request.model_spec.name = "digits"
    cases = {
        "empty": (b"", "no request"),
        "cut": (whole.read_bytes()[:-7], "damaged or unreadable"),
        "text": (b"x,y\n1,2\n", "damaged or unreadable"),
        "gzip.json.gz": (b"not gzip", "Not a gzipped file"),
        "utf.json": (b'{"a": "\xff"}', "utf-8"),
        "classify": (write_records(tmp_path / "other", other).read_bytes(), "a classify_log"),
        "records": (write_records(tmp_path / "other", b"\xff\xff").read_bytes(), "no protocol buffer"),
    }
    for name, (content, received) in cases.items():
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(ComponentError) as error:
            read(file, ONE)
        assert received in error.value.received, name
        assert "prepare_examples" not in error.value.fix
    write_records(tmp_path / "log", prediction_log([[1, 2]], "other"))
    with pytest.raises(ComponentError, match="1 requests to other signatures"):
        read(tmp_path / "log", ONE)
    write_records(tmp_path / "log", logs[3], prediction_log([[1, 2]], seconds=99))
    with pytest.raises(ComponentError, match="before request 0"):
        read(tmp_path / "log", ONE)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ComponentError, match="no files"):
        read(tmp_path / "folder", ONE)


@pytest.mark.parametrize(
    ("goal", "fix"),
    [
        ("disagreement maximum 1%", "max"),
        ("disagrement max 1%", "disagreement"),
        ("accuracy max 1%", "write"),
        ("disagreement max_degradation 1%", "write disagreement max 1%"),
        ("disagreement max 150%", "write disagreement max 0.5%"),
        ("disagreement max x%", "write disagreement max 0.5%"),
        ("disagreement max 5", "write disagreement"),
        ("p99 max 10%", "write p99 max_degradation 10%"),
        ("p99[city=Oslo] max 10", "write p99 max 10"),
        ("p99 max", "write the goal in this form"),
    ],
)
def test_goals_of_another_form_are_refused(goal, fix):
    with pytest.raises(ComponentError) as error:
        read_replay_goals([goal])
    assert fix in error.value.fix or goal.startswith("accuracy")
    assert goal.split()[0] in error.value.received


def test_limits_are_shares_or_milliseconds():
    goals = read_replay_goals(["disagreement max 0.5%", "disagreement max 0.01", "p99 max 20", "p50 threshold 3"])
    assert [goal.number for goal in goals] == [0.005, 0.01, 20, 3]
    assert [goal.metric for goal in goals] == ["disagreement", "disagreement", "latency_p99", "latency"]
    assert goals[0].text == "disagreement max 0.5%"

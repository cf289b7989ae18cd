"""The same DAG on both of TFX's runners, with the SQLite store: reuse, failures, changed files."""

import json
import os
from pathlib import Path

import pytest

import tests.shelf  # noqa: F401  (Beam finds file systems by their being defined)
from tests import toys
from tfopt.artifacts import Files, Model
from tfopt.component import Input, components
from tfopt.dag.tracing import trace
from tfopt.errors import ComponentError
from tfopt.tfx import runner as engine


def counting(steps, data: Input[Files], *, unit: str = "bytes", notes: list[str] = []) -> None:  # noqa: B006
    """Count and add."""
    counts = [steps(toys.count, data=data, unit=unit, notes=notes, loud=True) for _ in range(2)]
    steps(toys.add, reports=[count.outputs["report"] for count in counts], extra=counts[0].outputs["report"], start=100)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data with ä.txt"
    file.write_text("one\ntwo\n")
    return file


@pytest.mark.parametrize("name", ["beam", "local"])
def test_a_dag_runs_is_reused_and_runs_again_when_something_changed(name, data, tmp_path):
    dag, root = trace(counting), tmp_path / "root"

    def run(**values):
        return engine.run(dag, {"data": data, **values}, root, engine=name)

    first = run(notes=["a", "b"])
    assert [outcome.reused for outcome in first.values()] == [False, False, False]
    total = json.loads((first["add"].outputs["total"].path / "total").with_name("report.json").read_text())
    assert total == {"count": 124.0, "parts": [8.0, 8.0, 8.0]}
    counted = json.loads((first["count"].outputs["report"].path / "report.json").read_text())
    assert counted == {"count": 8.0, "loud": True, "notes": ["a", "b"]}

    again = run(notes=["a", "b"])
    assert [outcome.reused for outcome in again.values()] == [True, True, True]
    assert again["add"].outputs["total"].uri == first["add"].outputs["total"].uri

    assert not any(outcome.reused for outcome in run(notes=["a", "b"], unit="lines").values())
    data.write_text("one\ntwo\nthree\n")  # the same path with other content is other data
    assert not any(outcome.reused for outcome in run(notes=["a", "b"]).values())


def noting(steps, data: Input[Files], *, book: str) -> None:
    """Count, and note it."""
    steps(toys.count, data=data)
    steps(toys.note, data=data, book=book)


@pytest.mark.parametrize("name", ["beam", "local"])
def test_what_changes_something_outside_is_done_in_every_run(name, data, tmp_path):
    book = tmp_path / "book"
    for lines, reused in ((1, False), (2, True), (1, True)):
        outcomes = engine.run(trace(noting), {"data": data, "book": str(book)}, tmp_path / "root", engine=name)
        assert [outcome.reused for outcome in outcomes.values()] == [reused, False]
        assert outcomes["note"].outputs["report"].read() == {"lines": lines}
        if lines == 2:
            book.unlink()  # as somebody may remove what was pushed


def test_a_push_is_such_a_change_and_no_engine_takes_an_earlier_one_for_it():
    assert [name for name, found in components().items() if found.cache == "never"] == ["push_model"]


def one(steps, data: Input[Files]) -> None:
    """Count."""
    steps(toys.count, data=data)


def test_what_lies_at_an_address_is_another_source_when_it_changed_and_where_nobody_can_tell(data, tmp_path):
    def imported(uri: str) -> tuple[dict, bool]:
        (importer, _) = engine.pipeline(trace(one), {"data": uri}, tmp_path / "root").components
        properties = importer.outputs["result"].additional_custom_properties
        return properties, bool(importer.exec_properties["reimport"])

    address = f"shelf://{data}"
    first, same = imported(address), imported(address)
    data.write_text("two\none\n")  # as long as it was
    os.utime(data, (1, 1))
    changed = imported(address)
    assert first == same != changed
    assert not (first[1] or changed[1])
    assert imported("nowhere://bucket/data.txt") == ({}, True)


def failing(steps, data: Input[Files], *, how: str = "refuse") -> None:
    """Count, then fail."""
    steps(toys.count, data=data)
    steps(toys.fail, data=data, how=how)


@pytest.mark.parametrize("name", ["beam", "local"])
def test_a_failure_is_the_components_own_error_and_is_never_reused(name, data, tmp_path):
    dag, root = trace(failing), tmp_path / "root"
    for _ in range(2):
        with pytest.raises(ComponentError) as refusal:
            engine.run(dag, {"data": data}, root, engine=name)
        assert refusal.value.fix == "give something else"
    assert not list((root / "artifacts" / "fail").rglob("half"))
    with pytest.raises(Exception, match="a bug"):
        engine.run(dag, {"data": data, "how": "crash"}, root, engine=name)
    with pytest.raises(ComponentError, match="fail ended the process with 0"):
        engine.run(dag, {"data": data, "how": "leave"}, root, engine=name)


def test_a_missing_source_is_refused_before_anything_runs(data, tmp_path):
    with pytest.raises(ComponentError, match="no such file"):
        engine.run(trace(counting), {"data": data.with_name("absent")}, tmp_path / "root")
    assert not (tmp_path / "root" / "metadata.sqlite").exists()


def test_wrong_types_are_refused_when_a_tfx_pipeline_is_built_by_hand():
    from tfx import types
    from tfx.types import standard_artifacts

    from tfopt.tfx.components import TYPES, node

    with pytest.raises(ComponentError, match="declared type"):
        node(
            toys.take_keras,
            model=types.Channel(type=TYPES[engine_type("TFLiteModel")]),
            examples=types.Channel(type=standard_artifacts.Examples),
        )
    node(
        toys.take_keras,
        model=types.Channel(type=standard_artifacts.Model),
        examples=types.Channel(type=standard_artifacts.Examples),
    )
    node(toys.copy_model, model=types.Channel(type=TYPES[engine_type("KerasModel")]))


def test_remote_artifacts_are_brought_here_and_sent_back(digits_model, tmp_path):
    """TensorFlow's in-memory file system stands for a bucket: nothing local has its addresses."""
    import tensorflow as tf
    from tfx.dsl.io import filesystem_registry
    from tfx.dsl.io.plugins.tensorflow_gfile import TensorflowFilesystem

    from tfopt.tfx.components import COMPONENT, TYPES, Executor, _copy

    class Bucket(TensorflowFilesystem):
        SUPPORTED_SCHEMES = ("ram://",)

    filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY.register(Bucket, priority=0)
    _copy(str(digits_model), "ram://bucket/model")
    parent, child = TYPES[Model](), TYPES[Model]()
    parent.uri, child.uri = "ram://bucket/model", "ram://bucket/child"
    Executor().Do({"model": [parent]}, {"copied": [child]}, {COMPONENT: "tests.toys:copy_model", "note": "far"})
    assert json.loads(tf.io.gfile.GFile("ram://bucket/child/model_card.json").read())["note"] == "far"
    assert tf.io.gfile.exists("ram://bucket/child/Format-Serving/saved_model.pb")
    assert child.get_string_custom_property("note") == "far"


def engine_type(name: str):
    import tfopt.artifacts

    return getattr(tfopt.artifacts, name)

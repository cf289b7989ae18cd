"""Test DAGs on both TFX runners with the SQLite store: reuse, failures, changed files."""

import json
import os
from pathlib import Path

import pytest

import tests.object_store  # noqa: F401  (Beam finds file systems among the defined classes)
from tests import toys
from tfopt.artifacts import Files, KerasModel, Model, TFLiteModel
from tfopt.component import Input, components
from tfopt.dag.tracing import trace
from tfopt.errors import ComponentError
from tfopt.tfx import runner


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
def test_steps_are_reused_until_a_parameter_or_a_file_changes(name, data, tmp_path):
    dag, root = trace(counting), tmp_path / "root"

    def run(**values):
        return runner.run(dag, {"data": data, **values}, root, engine=name)

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
    data.write_text("one\ntwo\nthree\n")  # another digest at the same path
    assert not any(outcome.reused for outcome in run(notes=["a", "b"]).values())


def count_and_note(steps, data: Input[Files], *, book: str) -> None:
    """Count, and add a note."""
    steps(toys.count, data=data)
    steps(toys.note, data=data, book=book)


@pytest.mark.parametrize("name", ["beam", "local"])
def test_a_component_with_cache_never_runs_in_every_run(name, data, tmp_path):
    book = tmp_path / "book"
    for lines, reused in ((1, False), (2, True), (1, True)):
        outcomes = runner.run(trace(count_and_note), {"data": data, "book": str(book)}, tmp_path / "root", engine=name)
        assert [outcome.reused for outcome in outcomes.values()] == [reused, False]
        assert outcomes["note"].outputs["report"].read() == {"lines": lines}
        if lines == 2:
            book.unlink()  # like a user who removes a pushed version


def test_push_model_is_the_only_component_that_is_never_cached():
    assert [name for name, component in components().items() if component.cache == "never"] == ["push_model"]


def one(steps, data: Input[Files]) -> None:
    """Count."""
    steps(toys.count, data=data)


def test_a_remote_source_is_imported_again_if_it_changed_or_has_no_digest(data, tmp_path):
    def imported(uri: str) -> tuple[dict, bool]:
        (importer, _) = runner.pipeline(trace(one), {"data": uri}, tmp_path / "root").components
        properties = importer.outputs["result"].additional_custom_properties
        return properties, bool(importer.exec_properties["reimport"])

    address = f"objects://{data}"
    first, unchanged = imported(address), imported(address)
    data.write_text("two\none\n")  # of the same length
    os.utime(data, (1, 1))
    changed = imported(address)
    assert first == unchanged != changed
    assert not (first[1] or changed[1])
    assert imported("nowhere://bucket/data.txt") == ({}, True)


def failing(steps, data: Input[Files], *, how: str = "refuse") -> None:
    """Count, then fail."""
    steps(toys.count, data=data)
    steps(toys.fail, data=data, how=how)


@pytest.mark.parametrize("name", ["beam", "local"])
def test_a_failed_step_raises_its_own_error_and_is_not_reused(name, data, tmp_path):
    dag, root = trace(failing), tmp_path / "root"
    for _ in range(2):
        with pytest.raises(ComponentError) as refusal:
            runner.run(dag, {"data": data}, root, engine=name)
        assert refusal.value.fix == "give something else"
    assert not list((root / "artifacts" / "fail").rglob("half"))
    with pytest.raises(Exception, match="a bug"):
        runner.run(dag, {"data": data, "how": "crash"}, root, engine=name)
    with pytest.raises(ComponentError, match="fail ended the process with 0"):
        runner.run(dag, {"data": data, "how": "leave"}, root, engine=name)


def test_a_missing_source_is_refused_before_the_first_step(data, tmp_path):
    with pytest.raises(ComponentError, match="no such file"):
        runner.run(trace(counting), {"data": data.with_name("absent")}, tmp_path / "root")
    assert not (tmp_path / "root" / "metadata.sqlite").exists()


def test_node_refuses_channels_of_wrong_types():
    from tfx import types
    from tfx.types import standard_artifacts

    from tfopt.tfx.components import TYPES, node

    with pytest.raises(ComponentError, match="declared type"):
        node(
            toys.take_keras,
            model=types.Channel(type=TYPES[TFLiteModel]),
            examples=types.Channel(type=standard_artifacts.Examples),
        )
    node(
        toys.take_keras,
        model=types.Channel(type=standard_artifacts.Model),
        examples=types.Channel(type=standard_artifacts.Examples),
    )
    node(toys.copy_model, model=types.Channel(type=TYPES[KerasModel]))


def test_remote_artifacts_are_downloaded_and_uploaded(digits_model, tmp_path):
    """Use TensorFlow's in-memory file system as a bucket, because its files have no local paths."""
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

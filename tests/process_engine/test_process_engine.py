"""Test the engine of this process: what is run again after a change, remote sources, optional inputs, the lock."""

import logging
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest

import tests.object_store  # noqa: F401  (registers the scheme)
from tests import toys
from tests.process_tree import wait_until
from tfopt.artifacts import CARD, Files, Model, Report
from tfopt.component import Input, Output, component
from tfopt.dag.outcome import Outcome
from tfopt.dag.tracing import load, trace
from tfopt.data import beam_runner
from tfopt.errors import ComponentError
from tfopt.process_engine.runner import run
from tfopt.storage.folder_lock import lock_folder


def branches(steps, data: Input[Files], *, limit: int = 1000, start: int = 0) -> None:
    """Count twice, and add."""
    limited = steps(toys.count, data=data, limit=limit)
    full = steps(toys.count, data=data)
    steps(toys.add, reports=[limited.outputs["report"], full.outputs["report"]], start=start)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data with ä.txt"
    file.write_text("one\ntwo\n")
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root with spaces and ä"


def reused(outcomes: dict[str, Outcome]) -> list[str]:
    """Return the names of the steps whose outputs are those of an earlier run."""
    return [step for step, outcome in outcomes.items() if outcome.reused]


def test_a_record_that_a_killed_run_left_incomplete_is_removed_and_one_of_a_live_process_stays(data, root):
    ended = subprocess.Popen(["true"])
    ended.wait()
    root.mkdir()
    names = [f".partial-{socket.gethostname()}-{process}-abc" for process in (ended.pid, os.getpid())]
    for name in names:
        (root / name).write_text("{")
    run(trace(branches), {"data": data}, root)
    assert [name for name in names if (root / name).exists()] == names[1:]


def test_a_changed_parameter_reruns_its_step_and_what_follows(data, root):
    dag = trace(branches)
    assert reused(run(dag, {"data": data}, root)) == []
    assert reused(run(dag, {"data": data, "start": 1}, root)) == ["count", "count_2"]
    assert reused(run(dag, {"data": data, "limit": 3}, root)) == ["count_2"]
    assert reused(run(dag, {"data": data}, root)) == ["count", "count_2", "add"]  # the first results are still there
    assert len(list((root / "artifacts" / "add" / "total").iterdir())) == 3


def test_a_step_with_a_new_result_of_equal_content_leaves_what_follows(data, root):
    dag = trace(branches)
    run(dag, {"data": data}, root)
    assert reused(run(dag, {"data": data, "limit": 500}, root)) == ["count_2", "add"]


def test_the_name_and_the_content_of_a_source_are_part_of_the_key(data, root):
    dag = trace(branches)
    run(dag, {"data": data}, root)
    data.write_text("one\ntwo!")  # of the same length: all counts are equal
    assert reused(run(dag, {"data": data}, root)) == ["add"]
    assert reused(run(dag, {"data": data.rename(data.with_suffix(".csv"))}, root)) == ["add"]


def test_a_changed_component_runs_again(data, tmp_path, root):
    code = '''
from tfopt.artifacts import Files, Report
from tfopt.component import Input, Output, component


@component(image="tf")
def write(data: Input[Files], report: Output[Report]) -> None:
    """Write a number.

    Args:
        data: A file.
        report: The number.
    """
    report.write({"number": 1})


def written(steps, data: Input[Files]) -> None:
    """Write a number."""
    steps(write, data=data)
'''
    file = tmp_path / "written.py"
    for number, expected in ((1, []), (1, ["write"]), (2, []), (1, ["write"])):
        file.write_text(code.replace(": 1}", f": {number}}}"))
        outcomes = run(load(str(file)), {"data": data}, root)
        assert reused(outcomes) == expected
        assert outcomes["write"].outputs["report"].read() == {"number": number}


@pytest.mark.parametrize(
    "damage", ["changed output", "removed output", "{", '{"schema_version": 99}', '{"a":' * 100_000]
)
def test_a_damaged_result_is_made_again_and_not_touched(damage, data, root):
    dag = trace(branches)
    first = run(dag, {"data": data}, root)["count"].outputs["report"].path
    (record,) = (root / "executions" / "count").iterdir()
    if damage == "changed output":
        (first / "report.json").write_text('{"count": 0}')
    elif damage == "removed output":
        shutil.rmtree(first)
    else:
        record.write_text(damage)
    again = run(dag, {"data": data}, root)
    assert reused(again) == ["count_2", "add"]
    assert again["count"].outputs["report"].read()["count"] == 8
    assert again["count"].outputs["report"].path != first
    assert damage != "changed output" or (first / "report.json").read_text() == '{"count": 0}'
    assert reused(run(dag, {"data": data}, root)) == ["count", "count_2", "add"]


def test_a_run_folder_can_be_moved(data, root):
    run(trace(branches), {"data": data}, root)
    moved = root.rename(root.with_name("moved"))
    outcomes = run(trace(branches), {"data": data}, moved)
    assert reused(outcomes) == ["count", "count_2", "add"]
    assert outcomes["add"].outputs["total"].path.is_relative_to(moved)


def failing(steps, data: Input[Files]) -> None:
    """Count, fail, and count again."""
    steps(toys.count, data=data)
    steps(toys.fail, data=data)
    steps(toys.count, data=data, unit="lines")


def test_steps_that_finished_before_a_failure_are_reused(data, root):
    for _ in range(2):
        with pytest.raises(ComponentError, match="something else"):
            run(trace(failing), {"data": data}, root)
    assert [path.parent.name for path in root.glob("executions/*/*.json")] == ["count"]
    assert len(list((root / "artifacts" / "count" / "report").iterdir())) == 1
    assert not (root / "artifacts" / "count_2").exists()


def attempts(steps, model: Input[Model]) -> None:
    """Try to make a model, and copy another one."""
    steps(toys.attempt, model=model, on_failure="row")
    steps(toys.copy_model, model=model)


def test_a_model_that_failed_with_a_crash_is_tried_again(digits_lite, tmp_path, root):
    shutil.copytree(digits_lite, tmp_path / "model")
    for _ in range(2):
        outcomes = run(trace(attempts), {"model": tmp_path / "model"}, root)
        assert "not ready" in outcomes["attempt"].outputs["made"].failure
    assert reused(outcomes) == ["copy_model"]
    (tmp_path / "ready").write_text("")
    assert run(trace(attempts), {"model": tmp_path / "model"}, root)["attempt"].outputs["made"].failure is None
    assert reused(run(trace(attempts), {"model": tmp_path / "model"}, root)) == ["attempt", "copy_model"]


def refusals(steps, model: Input[Model], *, precision: str = "int8") -> None:
    """Try to make a model that is refused for its content, and a model from it."""
    made = steps(toys.attempt, model=model, on_failure="row", refuses=True).outputs["made"]
    steps.export_onnx(model=made, on_failure="row", precision=precision)


def test_a_refused_model_is_not_tried_again_until_something_changed(digits_lite, tmp_path, root):
    shutil.copytree(digits_lite, tmp_path / "model")
    run(trace(refusals), {"model": tmp_path / "model"}, root)
    (tmp_path / "ready").write_text("")
    outcomes = run(trace(refusals), {"model": tmp_path / "model"}, root)
    assert reused(outcomes) == ["attempt", "export_onnx"]
    assert "not ready" in outcomes["export_onnx"].outputs["exported"].failure
    assert reused(run(trace(refusals), {"model": tmp_path / "model", "precision": "float32"}, root)) == ["attempt"]
    (tmp_path / "model" / "another").write_text("")
    assert reused(run(trace(refusals), {"model": tmp_path / "model"}, root)) == []


def copies(steps, model: Input[Model], *, note: str = "a") -> None:
    """Copy a model twice."""
    steps(toys.copy_model, model=steps(toys.copy_model, model=model, note=note).outputs["copied"])


def test_the_model_card_is_part_of_the_content(digits_lite, tmp_path, root):
    shutil.copytree(Path(digits_lite) / "Format-Serving", tmp_path / "model" / "Format-Serving")  # without its card
    dag = trace(copies)
    run(dag, {"model": tmp_path / "model"}, root)
    outcomes = run(dag, {"model": tmp_path / "model", "note": "b"}, root)
    assert reused(outcomes) == []  # the files of the model are the same, but its card has another note
    assert '"note": "b"' in (outcomes["copy_model"].outputs["copied"].path / CARD).read_text()
    again = run(dag, {"model": tmp_path / "model", "note": "b"}, root)
    assert reused(again) == ["copy_model", "copy_model_2"]
    assert again["copy_model"].outputs["copied"].metadata == outcomes["copy_model"].outputs["copied"].metadata
    assert again["copy_model"].outputs["copied"].metadata["note"] == "b"


def one(steps, data: Input[Files]) -> None:
    """Count."""
    steps(toys.count, data=data)


def test_a_remote_source_is_copied_again_if_it_changed(data, root):
    def counted() -> tuple[list[str], int]:
        outcomes = run(trace(one), {"data": f"objects://{data}"}, root)
        return reused(outcomes), outcomes["count"].outputs["report"].read()["count"]

    assert counted() == ([], 8)
    assert counted() == (["count"], 8)
    data.write_text("one\ntwo\nthree\n")
    assert counted() == ([], 14)


def test_a_remote_source_without_modification_times_is_never_reused(data, root):
    os.utime(data, (0, 0))
    for _ in range(2):
        assert reused(run(trace(one), {"data": f"objects://{data}"}, root)) == []


def optional(steps, data: Input[Files], more: Input[Report] | None = None) -> None:
    """Count, and add an optional report."""
    counted = steps(toys.count, data=data).outputs["report"]
    steps(toys.add, reports=[counted, more], extra=more)


def test_an_optional_source_without_a_path_is_left_out_of_inputs_and_lists(data, root, tmp_path):
    def total(**values):
        return run(trace(optional), {"data": data, **values}, root)["add"].outputs["total"].read()

    Report(tmp_path / "more").write({"count": 2})
    assert total() == {"count": 8, "parts": [8]}
    assert total(more=tmp_path / "more") == {"count": 12, "parts": [8, 2, 2]}


@component(image="beam", beam=True)
def show_workers(data: Input[Files], report: Output[Report]) -> None:
    """Report the number of Beam's workers and the address of the data.

    Args:
        data: Anything.
        report: The number.
    """
    report.write({"workers": beam_runner.worker_count(), "uri": data.uri})


def workers(steps, data: Input[Files]) -> None:
    """Report the workers."""
    steps(show_workers, data=data)


def test_a_beam_component_gets_the_beam_arguments_and_remote_addresses(data, root):
    (outcome,) = run(trace(workers), {"data": f"objects://{data}"}, root, beam_args=["--direct_num_workers=3"]).values()
    assert outcome.outputs["report"].read() == {"workers": 3, "uri": f"objects://{data}"}


def test_a_second_run_in_the_same_folder_waits_for_the_first(data, root, caplog):
    caplog.set_level(logging.INFO, logger="tfopt")
    root.mkdir()
    second = threading.Thread(target=run, args=(trace(one), {"data": data}, root))
    with lock_folder(root):
        second.start()
        wait_until(lambda: f"another run uses {root}: waiting for its end" in caplog.text)
        assert not (root / "artifacts").exists()
    second.join(60)
    assert (root / "executions" / "count").is_dir()

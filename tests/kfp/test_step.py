"""The container's end when things go wrong: no ExecutorInput, no input, a step that ends the process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toys
from tfopt.artifacts import Decision, Files, Report
from tfopt.component import Input, Output, component, find
from tfopt.errors import ComponentError
from tfopt.kfp.step import read_parameter_value, run_step

LEAVE = [sys.executable, "-m", "tfopt.run", "tests.kfp.test_step:leave", "--executor-input"]


@component(image="tf")
def leave(data: Input[Files], report: Output[Report], *, code: int = 0, rudely: bool = False) -> None:
    """End the process.

    Args:
        data: Anything.
        report: Never written.
        code: The exit code.
        rudely: Without Python's clean-up, as native code that crashes does.
    """
    if rudely:
        os._exit(code)
    sys.exit(code)


@component(image="tf")
def decide(data: Input[Files], decision: Output[Decision]) -> None:
    """Write a page, and print nonsense."""
    print('\x00{"artifacts": garbage')
    decision.write({"selected": "a"})
    (decision.path / decision.page).write_text("<html>a</html>")
    decision.metadata |= {"selected": "a", "scores": [1, 2], "good": True}


def message(folder: Path, uri: str, *outputs: str, **parameters) -> str:
    places = {name: {"artifacts": [{"name": name, "uri": str(folder / name), "metadata": {}}]} for name in outputs}
    given = {"data": {"artifacts": [{"name": "17", "uri": uri, "metadata": {}}]}}
    return json.dumps(
        {
            "inputs": {"artifacts": given, "parameterValues": parameters},
            "outputs": {"artifacts": places, "outputFile": str(folder / "executor_output.json")},
        }
    )


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "{{$}}",
        "[]",
        "{}",
        '{"outputs": {}}',
        '{"inputs": {}, "outputs": {"outputFile": "o", "artifacts": {}}}',
        "null",
    ],
)
def test_what_is_no_executor_input_is_refused(garbage):
    with pytest.raises(ComponentError, match="ExecutorInput"):
        run_step(toys.count, garbage)


def test_an_address_with_nothing_there_is_told_as_the_user_wrote_it(tmp_path):
    with pytest.raises(ComponentError) as refused:
        run_step(toys.count, message(tmp_path, "s3://bucket/absent/rows.csv", "report"))
    assert (
        "data: nothing at s3://bucket/absent/rows.csv (looked at /s3/bucket/absent/rows.csv)" in refused.value.received
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [0, 3])
def test_a_step_that_ends_the_process_fails_even_with_exit_code_0(code, tmp_path):
    data = tmp_path / "data"
    data.write_text("x")
    done = subprocess.run(
        [*LEAVE, message(tmp_path, str(data), "report", code=float(code))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"leave ended the process with {code}" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["data"]


def test_after_a_step_that_died_with_exit_code_0_and_left_nothing_the_next_one_says_so(tmp_path):
    data = tmp_path / "data"
    data.write_text("x")
    died = subprocess.run([*LEAVE, message(tmp_path, str(data), "report", rudely=True)], check=False)
    assert died.returncode == 0
    assert not (tmp_path / "report").exists()
    with pytest.raises(ComponentError, match="why that step wrote none"):
        run_step(toys.count, message(tmp_path, str(tmp_path / "report"), "report"))


def test_an_empty_text_is_an_optional_one_that_was_not_given():
    assert read_parameter_value(find("prepare_examples"), "pack", "") is None
    assert read_parameter_value(find("prepare_examples"), "label", "") == "", "not optional: refused, with what is allowed"


def test_what_a_step_prints_is_not_its_output(tmp_path, capfd):
    data = tmp_path / "data"
    data.write_text("x")
    run_step(decide, message(tmp_path, str(data), "decision"))
    assert "garbage" in capfd.readouterr().out
    assert set(json.loads((tmp_path / "executor_output.json").read_text())["artifacts"]) == {"decision"}


def test_a_place_that_the_server_added_for_itself_is_left_alone(tmp_path):
    """Newer servers keep the container's log as an output named executor-logs."""
    data = tmp_path / "data"
    data.write_text("x")
    run_step(toys.count, message(tmp_path, str(data), "report", "executor-logs"))
    assert set(json.loads((tmp_path / "executor_output.json").read_text())["artifacts"]) == {"report"}


def test_a_page_is_a_file_of_its_own_beside_the_whole_folder(tmp_path):
    """KFP's launcher uploads what the artifact's address names: a page's address would leave the folder behind."""
    data = tmp_path / "data"
    data.write_text("x")
    run_step(decide, message(tmp_path, str(data), "decision", "decision_page"))
    written = json.loads((tmp_path / "executor_output.json").read_text())["artifacts"]
    assert written["decision"]["artifacts"][0]["uri"] == str(tmp_path / "decision")
    assert written["decision"]["artifacts"][0]["metadata"] == {"selected": "a", "scores": "[1, 2]", "good": True}
    assert (tmp_path / "decision" / "decision.json").is_file()
    assert (tmp_path / "decision_page").read_text() == "<html>a</html>"


def test_a_model_is_shown_with_format_precision_size_and_digest(tmp_path, digits_model, digits_examples):
    places = {"exported": {"artifacts": [{"name": "exported", "uri": str(tmp_path / "exported"), "metadata": {}}]}}
    given = {"model": digits_model, "examples": digits_examples}
    step = {
        "inputs": {
            "artifacts": {key: {"artifacts": [{"name": key, "uri": str(path)}]} for key, path in given.items()},
            "parameterValues": {"precision": "float16"},
        },
        "outputs": {"artifacts": places, "outputFile": str(tmp_path / "output.json")},
    }
    words = [sys.executable, "-m", "tfopt.run", "export_tflite", "--executor-input", json.dumps(step)]
    subprocess.run(words, check=True)
    shown = json.loads((tmp_path / "output.json").read_text())["artifacts"]["exported"]["artifacts"][0]["metadata"]
    assert (shown["format"], shown["precision"]) == ("tflite", "float16")
    assert shown["bytes"] == (tmp_path / "exported" / "Format-Serving" / "tflite").stat().st_size
    assert len(shown["digest"]) == 64

"""Test a step in its container: wrong messages, missing inputs, a step that ends the process, outputs."""

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
from tfopt.kfp.container_entry import read_parameter_value, run_step
from tfopt.run import main

LEAVE = [sys.executable, "-m", "tfopt.run", "tests.kfp.test_container_entry:leave", "--executor-input"]


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
    """Write an HTML report, and print text that is not JSON."""
    print('\x00{"artifacts": garbage')
    decision.write({"selected": "a"})
    (decision.path / decision.page).write_text("<html>a</html>")
    decision.metadata |= {"selected": "a", "scores": [1, 2], "good": True, "unknown": None}


def message(folder: Path, uri: str, *outputs: str, **parameters) -> str:
    targets = {name: {"artifacts": [{"name": name, "uri": str(folder / name), "metadata": {}}]} for name in outputs}
    sources = {"data": {"artifacts": [{"name": "17", "uri": uri, "metadata": {}}]}}
    return json.dumps(
        {
            "inputs": {"artifacts": sources, "parameterValues": parameters},
            "outputs": {"artifacts": targets, "outputFile": str(folder / "executor_output.json")},
        }
    )


WITH_INPUTS = '{"inputs": %s, "outputs": {"outputFile": "o", "artifacts": {"report": {"artifacts": [{"uri": "r"}]}}}}'


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
        "[" * 100_000,
        "9" * 5000,
        *(
            WITH_INPUTS % change
            for change in (
                "[]",
                '"text"',
                '{"artifacts": []}',
                '{"artifacts": {"data": []}}',
                '{"artifacts": {"data": {"artifacts": [null]}}}',
                '{"artifacts": {"data": {"artifacts": [{"uri": 5}]}}}',
                '{"artifacts": {"data": {"artifacts": [{"uri": "a\\u0000b"}]}}}',
                '{"parameterValues": [1]}',
            )
        ),
    ],
)
def test_a_message_that_is_not_an_executor_input_is_refused(garbage):
    with pytest.raises(ComponentError, match="ExecutorInput"):
        run_step(toys.count, garbage)


@pytest.mark.parametrize("inputs", ["null", '{"artifacts": null}', '{"artifacts": {"data": null}}'])
def test_null_is_an_input_that_is_not_set(inputs):
    with pytest.raises(ComponentError, match="count: no data"):
        run_step(toys.count, WITH_INPUTS % inputs)


def test_a_missing_input_is_reported_with_its_address(tmp_path):
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


def test_a_crash_with_exit_code_0_fails_its_step_and_the_next_one(tmp_path):
    data = tmp_path / "data"
    data.write_text("x")
    words = [*LEAVE, message(tmp_path, str(data), "report", rudely=True)]
    crashed = subprocess.run(words, check=False, capture_output=True, text=True)
    assert crashed.returncode == 1
    assert "the process ended with status 0 before its work was done" in crashed.stderr
    assert not (tmp_path / "report").exists()
    with pytest.raises(ComponentError, match="why that step wrote none"):
        run_step(toys.count, message(tmp_path, str(tmp_path / "report"), "report"))


def test_an_empty_text_is_none_for_an_optional_parameter():
    assert read_parameter_value(find("prepare_examples"), "pack", "") is None
    assert read_parameter_value(find("prepare_examples"), "label", "") == "", (
        "not optional: the component reports what is allowed"
    )


def test_printed_text_is_not_part_of_the_output(tmp_path, capfd):
    data = tmp_path / "data"
    data.write_text("x")
    run_step(decide, message(tmp_path, str(data), "decision"))
    assert "garbage" in capfd.readouterr().out
    assert set(json.loads((tmp_path / "executor_output.json").read_text())["artifacts"]) == {"decision"}


def test_an_output_that_the_server_added_is_ignored(tmp_path):
    """Test with the output executor-logs, in which newer servers store the container's log."""
    data = tmp_path / "data"
    data.write_text("x")
    run_step(toys.count, message(tmp_path, str(data), "report", "executor-logs"))
    assert set(json.loads((tmp_path / "executor_output.json").read_text())["artifacts"]) == {"report"}


def test_an_html_report_is_also_an_output_of_its_own(tmp_path):
    """Check both addresses: KFP's launcher uploads only what an artifact's address names, a file or a folder."""
    data = tmp_path / "data"
    data.write_text("x")
    run_step(decide, message(tmp_path, str(data), "decision", "decision_page"))
    written = json.loads((tmp_path / "executor_output.json").read_text())["artifacts"]
    assert written["decision"]["artifacts"][0]["uri"] == str(tmp_path / "decision")
    assert written["decision"]["artifacts"][0]["metadata"] == {"selected": "a", "scores": "[1, 2]", "good": True}
    assert (tmp_path / "decision" / "decision.json").is_file()
    assert (tmp_path / "decision_page").read_text() == "<html>a</html>"


def test_the_metadata_of_a_model_has_format_precision_size_and_digest(tmp_path, digits_model, digits_examples):
    targets = {"exported": {"artifacts": [{"name": "exported", "uri": str(tmp_path / "exported"), "metadata": {}}]}}
    sources = {"model": digits_model, "examples": digits_examples}
    step = {
        "inputs": {
            "artifacts": {key: {"artifacts": [{"name": key, "uri": str(path)}]} for key, path in sources.items()},
            "parameterValues": {"precision": "float16"},
        },
        "outputs": {"artifacts": targets, "outputFile": str(tmp_path / "output.json")},
    }
    assert main(["export_tflite", "--executor-input", json.dumps(step)]) == 0
    metadata = json.loads((tmp_path / "output.json").read_text())["artifacts"]["exported"]["artifacts"][0]["metadata"]
    assert (metadata["format"], metadata["precision"]) == ("tflite", "float16")
    assert metadata["bytes"] == (tmp_path / "exported" / "Format-Serving" / "tflite").stat().st_size
    assert len(metadata["digest"]) == 64


def test_a_step_reads_all_models_that_kfp_collected_from_a_loop(tmp_path):
    """Write the ExecutorInput by hand: KFP's local engine (2.16) cannot run a pipeline with dsl.Collected."""
    entries = {}
    for key, counts in {"reports_2": [2, 3, 4], "reports_10": [5], "reports_1": [1]}.items():
        folders = [tmp_path / f"{key}_{count}" for count in counts]
        for folder, count in zip(folders, counts, strict=True):
            folder.mkdir()
            (folder / "report.json").write_text(json.dumps({"count": count}))
        entries[key] = {"artifacts": [{"name": "r", "uri": str(folder)} for folder in folders]}
    step = json.loads(message(tmp_path, "", "total"))
    run_step(toys.add, json.dumps({**step, "inputs": {"artifacts": entries}}))
    assert json.loads((tmp_path / "total" / "report.json").read_text())["parts"] == [1, 2, 3, 4, 5]


def test_confusion_matrices_after_collected_models_are_those_of_their_model(tmp_path, digits_model, digits_examples):
    targets = {"evaluation": "system.Metrics", "evaluation_candidates_2": "system.ClassificationMetrics"}
    models = {"baseline": [digits_model], "candidates_1": [digits_model] * 2, "candidates_2": [digits_model]}
    sources = {**models, "examples": [digits_examples]}
    step = {
        "inputs": {
            "artifacts": {
                key: {"artifacts": [{"name": key, "uri": str(path)} for path in paths]}
                for key, paths in sources.items()
            },
            "parameterValues": {"label": "label"},
        },
        "outputs": {
            "artifacts": {name: {"artifacts": [{"name": name, "uri": str(tmp_path / name)}]} for name in targets},
            "outputFile": str(tmp_path / "output.json"),
        },
    }
    run_step(find("evaluate"), json.dumps(step))
    models = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())["models"]
    written = json.loads((tmp_path / "output.json").read_text())["artifacts"]
    assert len(models) == 4
    assert written["evaluation_candidates_2"]["artifacts"][0]["metadata"]["model"] == models[3]["name"]


def test_the_image_that_a_pipeline_parameter_sets_is_no_parameter_of_the_component(tmp_path):
    (tmp_path / "data").write_text("x")
    image = {"base_image": "registry.example/mine:1", "pipelinechannel--image": "registry.example/mine:1"}
    run_step(toys.count, message(tmp_path, str(tmp_path / "data"), "report", unit="bytes", **image))
    assert json.loads((tmp_path / "report" / "report.json").read_text())["count"] == 1

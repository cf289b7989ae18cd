"""Test that damaged and hostile inputs are refused in three parts, all of them at night, and which they are."""

from pathlib import Path

import pytest

from tests.fuzz.cases import all_cases
from tests.fuzz.originals import write_originals
from tests.trial_log import run_trials
from tfopt.processes.subprocess_call import run_in_child


@pytest.mark.nightly  # daily: the refusals in the tests of each format
def test_a_sample_of_2_damaged_inputs_has_no_defect(tmp_path: Path):
    originals = tmp_path / "originals"
    originals.mkdir()
    write_originals(originals)  # here, where TensorFlow is imported
    output = _run(tmp_path / "output", "--count", "2", "--originals", str(originals))
    summary = output.splitlines()[-1]
    assert summary.startswith("fuzz: 2 damaged inputs"), output
    assert summary.endswith("; 0 defects"), output


def test_there_are_more_than_1700_cases_of_all_formats_and_kinds_and_their_order_is_seeded():
    cases = list(all_cases())
    names = [case.name for case in cases]
    assert len(set(names)) == len(names) > 1700
    assert names == [case.name for case in all_cases()]
    hostile = {
        "record",
        "journal",
        "run file",
        "version",
        "message",
        "words",
        "special file",
        "Keras path",
        "ONNX part",
    }
    hostile |= {"LiteRT buffer", "link", "effect", "bomb", "dimension", "NaN", "endless"}
    assert hostile <= {case.kind for case in cases}
    inputs = {name.partition("/")[0].strip() for name in names[:600]}
    formats = {"saved_model", "keras2", "model.keras", "model.h5", "frozen.pb", "model.tflite", "onnx", "openvino"}
    assert formats | {"examples", "plain", "data", "evaluation", "decision", "dag", "path"} <= inputs


@pytest.mark.nightly
def test_no_damaged_input_has_a_defect(tmp_path: Path):
    output = _run(tmp_path / "output")
    assert "; 0 defects" in output.splitlines()[-1], output


def _run(output: Path, *words: str) -> str:
    run_in_child(run_trials, "tests.fuzz.__main__", words, output, doing="running damaged inputs")
    return output.read_text()

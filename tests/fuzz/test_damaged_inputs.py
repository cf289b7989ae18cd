"""Test that damaged and hostile inputs are refused in three parts: a sample daily, all of them nightly."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.cases import all_cases
from tests.fuzz.originals import write_originals


def test_a_sample_of_2_damaged_inputs_has_no_defect(tmp_path: Path):
    write_originals(tmp_path)  # here, where TensorFlow is imported
    output = _run("--count", "2", "--originals", str(tmp_path))
    summary = output.splitlines()[-1]
    assert summary.startswith("fuzz: 2 damaged inputs"), output
    assert summary.endswith("; 0 defects"), output


def test_there_are_more_than_1700_cases_of_all_formats_and_kinds_and_their_order_is_seeded():
    names = [case.name for case in all_cases()]
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
    assert hostile <= {case.kind for case in all_cases()}
    inputs = {name.partition("/")[0].strip() for name in names[:600]}
    formats = {"saved_model", "keras2", "model.keras", "model.h5", "frozen.pb", "model.tflite", "onnx", "openvino"}
    assert formats | {"examples", "plain", "data", "evaluation", "decision", "dag", "path"} <= inputs


@pytest.mark.nightly
def test_no_damaged_input_has_a_defect():
    output = _run()
    assert "; 0 defects" in output.splitlines()[-1], output


def _run(*words: str) -> str:
    process = subprocess.run([sys.executable, "-m", "tests.fuzz", *words], capture_output=True, text=True, check=False)
    return process.stdout

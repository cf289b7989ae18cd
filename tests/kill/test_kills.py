"""Test that killed commands leave nothing half written, and that the same command then succeeds: a sample each day."""

import re
from pathlib import Path

import pytest

from tests.kill.cases import write_inputs
from tests.trial_log import run_trials
from tfopt.processes.subprocess_call import run_in_child


def kill(output: Path, *words: str) -> None:
    """Run the harness in a process that has not run TensorFlow."""
    status = run_in_child(run_trials, "tests.kill.__main__", words, output, doing="killing commands")
    text = output.read_text()
    summary = re.search(r"kill: (\d+) kills, .*killed (\d+).*; 0 defects", text)
    assert status == 0 and summary and int(summary[2]) >= int(summary[1]) * 0.6, text


def test_three_kills_and_a_signal_leave_no_defect(tmp_path: Path):
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    write_inputs(inputs, every=False)  # here, where TensorFlow is imported
    # A component of each kind and the engine without TFX; those of TFX take three times as long.
    words = ["--kills", "3", "--signals", "1", "--inputs", str(inputs), "fold_batch_norm|push_model|process"]
    kill(tmp_path / "output", *words)


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_a_thousand_kills_of_all_components_and_engines_leave_no_defect(tmp_path: Path):
    kill(tmp_path / "output", "--kills", "1000", "--every", "--signals", "84", "--faults")

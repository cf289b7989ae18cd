"""Test that killed commands leave nothing half written, and that the same command then succeeds: a sample each day."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kill.cases import write_inputs


def kill(*words: str) -> None:
    """Run the harness in a process that has not run TensorFlow."""
    run = subprocess.run([sys.executable, "-m", "tests.kill", *words], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    summary = re.search(r"kill: (\d+) kills, .*killed (\d+).*; 0 defects", run.stdout)
    assert summary and int(summary[2]) >= int(summary[1]) * 0.6, run.stdout


def test_six_kills_and_two_signals_leave_no_defect(tmp_path: Path):
    write_inputs(tmp_path, every=False)  # here, where TensorFlow is imported
    # The components and the engine without TFX; those of TFX take three times as long.
    kill("--kills", "6", "--signals", "2", "--inputs", str(tmp_path), "_|process")


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_a_thousand_kills_of_all_components_and_engines_leave_no_defect():
    kill("--kills", "1000", "--every", "--signals", "84", "--faults")

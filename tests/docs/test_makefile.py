"""Test the commands of the Makefile in a folder whose name has a space, with a program that prints its arguments."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRINT = '#!/bin/sh\nprintf "%s\\n" "$DIGITS" "$@"\n'


def test_the_main_job_gets_its_data_in_a_folder_with_a_space(tmp_path):
    clone = tmp_path / "a clone"
    (clone / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", clone)
    program = clone / ".venv" / "bin" / "tfopt"
    program.write_text(PRINT)
    program.chmod(0o755)
    words = ["make", "--silent", "--assume-old=.venv/.ready", "run"]
    (clone / ".venv" / ".ready").touch()
    done = subprocess.run(words, cwd=clone, capture_output=True, text=True, check=True)
    digits, *arguments = done.stdout.splitlines()
    assert digits.startswith(f"{clone}/.venv/lib/") and digits.endswith("mnist_5k.csv.gz")
    assert arguments == ["run", "-f", "docs/mnist/retrain.yaml"]

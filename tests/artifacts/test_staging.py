"""What a killed process left half done is cleared by the next, and nobody else's work is touched."""

import os
import subprocess
import sys
import time

import pytest

from tfopt.artifacts import staging as partial


def left_by_the_dead(folder, kind: str):
    """Something half done by a process that has ended."""
    code = "import pathlib, sys; from tfopt.artifacts import staging; print(staging.name(pathlib.Path(sys.argv[1])))"
    run = subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True, text=True)
    place = folder / run.stdout.strip()
    make(place, kind)
    return place


def make(place, kind: str) -> None:
    if kind == "folder":
        place.mkdir()
        (place / "half").write_text("half")
    elif kind == "link":
        place.symlink_to("nowhere")
    else:
        place.write_text("half")


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_the_dead_left_is_cleared_and_what_the_living_write_stays(tmp_path, kind):
    dead, living = left_by_the_dead(tmp_path, kind), partial.name(tmp_path)
    make(living, kind)
    (tmp_path / ".partial").write_text("somebody's")
    (tmp_path / "1").mkdir()
    partial.clear(tmp_path)
    assert not os.path.lexists(dead)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living.name, ".partial", "1"])


def test_another_machines_work_is_left_alone_for_a_day(tmp_path):
    other = tmp_path / ".partial-otherhost-1234567-abc"
    other.mkdir()
    os.utime(other, (time.time() - 3600,) * 2)
    partial.clear(tmp_path)
    assert other.is_dir()
    os.utime(other, (time.time() - 1.1 * partial.FORGOTTEN_S,) * 2)
    partial.clear(tmp_path)
    assert not other.exists()

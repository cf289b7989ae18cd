"""Test that staging paths of ended processes are removed and those of running ones are not."""

import os
import subprocess
import sys
import time

import pytest

from tfopt.storage import staging
from tfopt.storage.folder_lock import lock_folder


def abandoned_path(folder, kind: str):
    """Create a staging path of a process that has ended."""
    code = "import pathlib, sys; from tfopt.storage import staging; print(staging.new_path(pathlib.Path(sys.argv[1])))"
    run = subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True, text=True)
    path = folder / run.stdout.strip()
    make(path, kind)
    return path


def make(path, kind: str) -> None:
    if kind == "folder":
        (path / staging.INNER).mkdir(parents=True)
        (path / staging.INNER / "half").write_text("half")
    elif kind == "link":
        path.symlink_to("nowhere")
    else:
        path.write_text("half")


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_paths_of_ended_processes_are_removed_and_those_of_running_ones_stay(tmp_path, kind):
    ended, running = abandoned_path(tmp_path, kind), staging.new_path(tmp_path)
    make(running, kind)
    (tmp_path / ".partial").write_text("somebody's")
    (tmp_path / "1").mkdir()
    staging.remove_abandoned(tmp_path)
    assert not os.path.lexists(ended)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([running.name, ".partial", "1"])


@pytest.mark.parametrize("target", ["", "out"])
def test_paths_of_another_machine_stay_for_a_day(tmp_path, target):
    other = tmp_path / f"{'.' + target if target else ''}.partial-otherhost-1234567-abc"
    other.mkdir()
    os.utime(other, (time.time() - 3600,) * 2)
    staging.remove_abandoned(tmp_path, target)
    assert other.is_dir()
    os.utime(other, (time.time() - 1.1 * staging.STALE_S,) * 2)
    staging.remove_abandoned(tmp_path, target)
    assert not other.exists()


@pytest.mark.parametrize("host", ["this host", "another container"])
def test_the_lock_decides_for_other_containers_and_equal_process_ids(tmp_path, monkeypatch, host):
    with monkeypatch.context() as elsewhere:
        if host == "another container":
            elsewhere.setattr(staging.socket, "gethostname", lambda: "0a1b2c")
        path = staging.new_folder_path(tmp_path, "out")
    path.mkdir(parents=True)
    with lock_folder(path):
        staging.remove_abandoned(tmp_path, "out")
        assert path.is_dir()
    staging.remove_abandoned(tmp_path, "out")
    assert not path.parent.exists()

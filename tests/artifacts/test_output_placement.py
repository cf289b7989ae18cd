"""Test that several outputs are renamed all or none, also by processes that are killed between two renames."""

import subprocess
import sys
from pathlib import Path

import pytest

from tfopt.errors import ComponentError
from tfopt.storage import staging
from tfopt.storage.publication import place, remove_interrupted

KILLED = """
import os, signal, sys
from pathlib import Path
from tfopt.storage.publication import place
rename, left = Path.rename, int(sys.argv[2])
def counted(path, target):
    global left
    if not Path(target).name.startswith("."):
        left -= 1
        if left < 0:
            print("between", flush=True)
            input() if sys.argv[3:] else os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, target)
Path.rename = counted
folder = Path(sys.argv[1])
place({folder / f"staged{name}": folder / name for name in "abc"})
"""


KILLED_AFTER = """
import os, signal, sys
from pathlib import Path
from tfopt.storage.publication import place
unlink, left = Path.unlink, int(sys.argv[2])
def counted(path, missing_ok=False):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    unlink(path, missing_ok)
Path.unlink = counted
folder = Path(sys.argv[1])
place({folder / f"staged{name}": folder / name for name in "abc"})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / f"staged{name}").mkdir()
        (tmp_path / f"staged{name}" / "file").write_text(name)
    return tmp_path


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "staged" not in path.name)


@pytest.mark.parametrize("renames", [0, 1, 2])
@pytest.mark.parametrize("first", "abc")
def test_a_rerun_removes_what_a_killed_process_placed(folder, renames, first):
    subprocess.run([sys.executable, "-c", KILLED, folder, str(renames)], check=False)
    assert [name for name in visible(folder) if "." not in name] == list("abc")[:renames]
    for name in (first, *"abc"):
        remove_interrupted(folder / name)
    assert visible(folder) == []


@pytest.mark.parametrize("removed", [1, 2])
def test_outputs_of_a_process_that_was_killed_after_its_commit_stay(folder, removed):
    subprocess.run([sys.executable, "-c", KILLED_AFTER, folder, str(removed)], check=False)
    for name in "abc":
        remove_interrupted(folder / name)
    assert visible(folder) == ["a", "b", "c"]


def test_a_journal_that_was_not_written_whole_is_removed_with_the_staging_folders(folder):
    code = KILLED.replace("Path.rename = counted", "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)")
    code = code.replace("place({", "from tfopt.storage import staging\nstaging.sync_tree = lambda _: None\nplace({")
    subprocess.run([sys.executable, "-c", code, folder, "9"], check=False)
    assert [name.split("-")[0] for name in visible(folder)] == [".a.partial"]
    staging.remove_abandoned(folder, "a")
    assert visible(folder) == []


def test_what_a_user_changed_after_the_kill_stays(folder):
    subprocess.run([sys.executable, "-c", KILLED, folder, "2"], check=False)
    (folder / "a" / "notes").write_text("mine")
    remove_interrupted(folder / "b")
    assert visible(folder) == ["a"] and (folder / "a" / "notes").exists()


def test_complete_outputs_and_those_of_a_running_process_stay(folder):
    running = subprocess.Popen(
        [sys.executable, "-c", KILLED, folder, "2", "stop"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert running.stdout.readline() == b"between\n"
        for name in "abc":
            remove_interrupted(folder / name)
        assert (folder / "a" / "file").exists() and (folder / "b" / "file").exists()
        running.communicate(b"\n", timeout=30)
        assert running.returncode == 0
    finally:
        running.kill()
    for name in "abc":
        remove_interrupted(folder / name)
    assert visible(folder) == ["a", "b", "c"]


def test_an_output_that_appeared_meanwhile_stays_and_nothing_is_placed(folder):
    (folder / "b").mkdir()
    (folder / "b" / "theirs").write_text("theirs")
    with pytest.raises(ComponentError, match="another process wrote it meanwhile"):
        place({folder / f"staged{name}": folder / name for name in "abc"})
    assert visible(folder) == ["b"] and [path.name for path in (folder / "b").iterdir()] == ["theirs"]

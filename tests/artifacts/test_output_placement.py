"""Test that several outputs are renamed all or none, also by processes that are killed between two renames."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.toys import count
from tfopt.errors import ComponentError
from tfopt.storage import publication, scratch, staging
from tfopt.storage.folder_lock import lock_file
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


@pytest.fixture
def no_locks(monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)


def forge(journal: Path, *victims: Path) -> None:
    """Write a journal by which somebody else wants files to be removed."""
    outputs = {str(victim): publication._fingerprint(victim) for victim in victims}
    journal.write_text(json.dumps({"token": "x", "process": "x", "outputs": outputs}))


def test_a_journal_removes_nothing_but_what_lies_next_to_it(folder):
    victim = folder / "home" / "thesis"
    victim.parent.mkdir()
    victim.write_text("mine")
    (folder / "shared").mkdir()
    forge(folder / "shared" / ".out.commit-x", victim)
    remove_interrupted(folder / "shared" / "out")
    assert victim.read_text() == "mine"
    (folder / "shared" / "out").mkdir()
    forge(folder / "shared" / ".out.commit-x", folder / "shared" / "out", victim)
    remove_interrupted(folder / "shared" / "out")
    assert not (folder / "shared" / "out").exists() and victim.read_text() == "mine"
    forge(victim.parent / ".thesis.commit-x", victim)  # a real one, as a control
    remove_interrupted(victim)
    assert not victim.exists()


@pytest.mark.parametrize("kind", ["other user", "link", "pipe", "folder", "[]", "{", "earlier", "[" * 100_000])
def test_a_journal_that_was_not_written_here_is_ignored(folder, kind, monkeypatch):
    victim, journal = folder / "out", folder / ".out.commit-x"
    victim.write_text("mine")
    forge(journal, victim)
    if kind == "other user":
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    elif kind == "link":
        journal.rename(folder / "journal")
        journal.symlink_to(folder / "journal")
    elif kind == "pipe":
        journal.unlink()
        os.mkfifo(journal)
    elif kind == "folder":
        journal.unlink()
        journal.mkdir()
    elif kind == "earlier":
        journal.write_text(journal.read_text().replace("process", "unknown"))
    else:
        journal.write_text(kind)
    remove_interrupted(victim)
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["/", "", "a\0b", "\ud800", "x" * 5000, "..", "a/.."])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_journal_with_a_path_that_cannot_be_one_is_no_error(folder, name, is_first):
    victim, journal = folder / "out", folder / ".out.commit-x"
    victim.write_text("mine")
    names = [name, str(victim)] if is_first else [str(victim), name]
    journal.write_text(json.dumps({"token": "x", "process": "x", "outputs": dict.fromkeys(names, "unknown")}))
    remove_interrupted(victim)
    assert victim.read_text() == "mine" and not journal.exists()


@pytest.mark.parametrize("token", ["/", "x/../y", "a\0b", ""])
def test_a_journal_with_a_token_that_cannot_be_in_a_name_is_no_error(folder, token):
    (folder / "out").write_text("mine")
    outputs = {str(folder / "out"): publication._fingerprint(folder / "out")}
    (folder / ".out.commit-x").write_text(json.dumps({"token": token, "process": "x", "outputs": outputs}))
    remove_interrupted(folder / "out")
    assert (folder / "out").read_text() == "mine"


def test_outputs_in_several_folders_are_removed_together(folder):
    for name in "abc":
        (folder / f"of_{name}").mkdir()
    code = KILLED.replace("folder / name for", "folder / f'of_{name}' / name for")
    for first in "abc":
        subprocess.run([sys.executable, "-c", code, folder, "2"], check=False)
        assert (folder / "of_a" / "a").exists() and (folder / "of_b" / "b").exists()
        remove_interrupted(folder / f"of_{first}" / first)
        assert [path for name in "abc" for path in (folder / f"of_{name}").iterdir()] == []
        for name in "ab":
            (folder / f"staged{name}").mkdir()


@pytest.mark.usefixtures("no_locks")
def test_without_locks_outputs_are_placed_and_those_of_a_killed_process_removed(folder):
    place({folder / f"staged{name}": folder / name for name in "ab"})
    assert visible(folder) == ["a", "b"]
    for name in "ab":
        (folder / name).rename(folder / f"staged{name}")
    subprocess.run([sys.executable, "-c", KILLED, folder, "2"], check=False)
    (journal,) = folder.glob(".a.commit-*")
    stopped = json.loads(journal.read_text())
    running = stopped | {"process": staging.new_path(Path()).name}
    for path in folder.glob(".*.commit-*"):
        path.write_text(json.dumps(running))
    remove_interrupted(folder / "a")
    assert (folder / "a").exists()
    for path in folder.glob(".*.commit-*"):
        path.write_text(json.dumps(stopped))
    remove_interrupted(folder / "b")
    assert visible(folder) == []


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_that_cannot_sync_folders_places_outputs(folder, monkeypatch, number):
    sync = os.fsync

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    place({folder / f"staged{name}": folder / name for name in "abc"})
    assert visible(folder) == ["a", "b", "c"]


def test_unfinished_files_of_other_users_stay_and_a_pipe_does_not_block(folder, monkeypatch):
    name = staging.new_path(folder, "out").name.replace(f"-{os.getpid()}-", "-99999999-")
    (folder / name).mkdir()
    os.mkfifo(folder / staging.new_path(folder, "out").name)
    owner = os.geteuid()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: owner + 1)
        staging.remove_abandoned(folder, "out")
    assert len(list(folder.glob(".out.partial-*"))) == 2
    staging.remove_abandoned(folder, "out")
    assert not (folder / name).exists()


def test_temporary_files_of_other_users_stay(tmp_path, monkeypatch):
    mine = tmp_path / "tfopt-99999999-0123abcd" / staging.INNER
    (mine / "file").mkdir(parents=True)
    os.mkfifo(tmp_path / "tfopt-99999999-0123abce")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    owner = os.geteuid()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: owner + 1)
        scratch._remove_abandoned(tmp_path)
    assert mine.is_dir()
    scratch._remove_abandoned(tmp_path)
    assert not mine.exists()


@pytest.mark.parametrize("has_inner", [False, True])
def test_a_folder_that_another_user_renamed_stays(tmp_path, has_inner):
    unfinished = staging.new_path(tmp_path, "out").name.replace(f"-{os.getpid()}-", "-99999999-")
    for name in (unfinished, "tfopt-99999999-0123abcd"):
        (tmp_path / name / (staging.INNER if has_inner else "photos")).mkdir(parents=True)
        (tmp_path / name / (staging.INNER if has_inner else "photos") / "file").touch()
    staging.remove_abandoned(tmp_path, "out")
    scratch._remove_abandoned(tmp_path)
    assert len(list(tmp_path.rglob("file"))) == (0 if has_inner else 2)


@pytest.mark.parametrize("name", ["link", "link/below/out"])
def test_an_output_through_a_link_of_another_user_is_refused(tmp_path, monkeypatch, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data").touch()
    arguments, owner = {"data": tmp_path / "data", "report": tmp_path / name}, os.geteuid()
    with monkeypatch.context() as other:
        if owner == 0:  # which made the link: everybody follows links of root
            os.lchown(tmp_path / "link", 65534, -1)
        else:
            other.setattr(os, "geteuid", lambda: owner + 1)
        with pytest.raises(ComponentError, match="a link of another user"):
            count(**arguments)
    assert not list((tmp_path / "elsewhere").iterdir())
    (tmp_path / "mine").symlink_to(tmp_path / "elsewhere")
    count(**arguments | {"report": tmp_path / name.replace("link", "mine")})
    assert list((tmp_path / "elsewhere").rglob("report.json"))


def test_the_lock_of_a_cache_empties_no_file(tmp_path):
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / ".cache.lock").symlink_to(tmp_path / "thesis")
    with pytest.raises(OSError, match="symbolic links"), lock_file(tmp_path / ".cache.lock"):
        pass
    with lock_file(tmp_path / "thesis"):
        assert (tmp_path / "thesis").read_text() == "mine"


def test_without_hard_links_a_new_file_replaces_no_other(tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", fail)
    assert staging.create_file(tmp_path / "file", b"first")
    assert not staging.create_file(tmp_path / "file", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"first")]

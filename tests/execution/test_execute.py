"""Outputs appear whole or not at all, and everything is checked before work starts."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toys
from tests.kill.kill_dag import split
from tfopt import keras_models
from tfopt.artifacts import CARD, Model
from tfopt.errors import ComponentError
from tfopt.storage import staging
from tfopt.storage.staging import link_tree


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "with spaces and ä" / "data.txt"
    file.parent.mkdir()
    file.write_text("one\ntwo\n")
    return file


def test_a_component_called_with_paths_writes_its_output(data, tmp_path):
    outputs = toys.count(data, tmp_path / "out", unit="lines", scale=2)
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == {"count": 4.0, "loud": False, "notes": []}
    assert outputs["report"].metadata == {"count": 2}


@pytest.mark.parametrize("how", ["refuse", "crash", "leave", "forget"])
def test_a_failure_leaves_nothing(data, tmp_path, how):
    with pytest.raises((ComponentError, RuntimeError)):
        toys.fail(data=data, report=tmp_path / "deep" / "out", how=how)
    assert list((tmp_path / "deep").iterdir()) == []


def test_a_kill_leaves_no_output_and_the_next_run_clears_what_it_left(data, tmp_path):
    code = "import sys; from tests import toys; toys.fail(data=sys.argv[1], report=sys.argv[2], how='kill')"
    killed = subprocess.run([sys.executable, "-c", code, data, tmp_path / "out"], check=False)
    assert killed.returncode == -9
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob(".out.partial-*"))
    toys.count(data, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", data.parent.name]


@pytest.mark.parametrize("name", ["out", "out [1]"])
def test_a_step_removes_the_staging_folder_of_a_killed_step_with_the_same_process_id(data, tmp_path, name):
    (staging.new_folder_path(tmp_path, name) / "half").mkdir(parents=True)
    toys.count(data, tmp_path / name)
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["report.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, data.parent.name]


def test_a_step_leaves_the_staging_folder_of_a_running_step_on_another_machine(data, tmp_path):
    theirs = tmp_path / ".out.partial-otherhost-1234567-0123456789abcdef"
    theirs.mkdir()
    toys.count(data, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([theirs.name, "out", data.parent.name])


def test_of_several_outputs_all_appear_or_none(data, tmp_path):
    (tmp_path / "ok").mkdir()
    with pytest.raises((ComponentError, OSError)):
        toys.two(data=data, first=tmp_path / "ok" / "first", second=tmp_path / "ok" / "second")
    assert [path.name for path in (tmp_path / "ok").iterdir()] == ["second"]  # what somebody else put there stays
    assert (tmp_path / "ok" / "second" / "theirs").exists()


def test_an_output_that_exists_is_never_overwritten(data, tmp_path):
    toys.count(data, tmp_path / "out")
    with pytest.raises(ComponentError, match="exists"):
        toys.count(data, tmp_path / "out")
    assert (tmp_path / "out" / "report.json").exists()


KILLED_AFTER_COMMIT = """
import os, signal, sys
from pathlib import Path
from tests.kill.kill_dag import split
unlink = Path.unlink
def kill_at_second(path, missing_ok=False):
    if ".second.commit-" in path.name:
        os.kill(os.getpid(), signal.SIGKILL)
    unlink(path, missing_ok)
Path.unlink = kill_at_second
data, first, second = sys.argv[1:]
split(data=data, first=first, second=second)
"""


def test_a_rerun_that_is_refused_removes_the_journals_of_a_killed_process(data, tmp_path):
    outputs = {name: tmp_path / "ok" / name for name in ("first", "second")}
    killed = subprocess.run([sys.executable, "-c", KILLED_AFTER_COMMIT, data, *outputs.values()], check=False)
    assert killed.returncode == -9
    assert list((tmp_path / "ok").glob(".second.commit-*"))
    with pytest.raises(ComponentError, match="exists"):
        split(data=data, **outputs)
    assert sorted(path.name for path in (tmp_path / "ok").iterdir()) == ["first", "second"]


def test_an_empty_output_folder_is_taken(data, tmp_path):
    (tmp_path / "out").mkdir()
    toys.count(data, tmp_path / "out")
    assert (tmp_path / "out" / "report.json").exists()


def test_an_unwritable_target_is_refused(data):
    with pytest.raises(ComponentError, match="writable folder"):
        toys.count(data, data / "below a file")
    with pytest.raises(ComponentError):
        toys.count(data, "/proc/no/such")


def test_a_full_disk_is_refused_and_leaves_nothing(data, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=False, capture_output=True
    )
    target = small / "out"
    try:
        if mounted.returncode:  # not root: the kernel's own always-full device behaves the same
            with pytest.raises(OSError, match="No space") as full, Path("/dev/full").open("w") as stream:
                stream.write("x")
                stream.flush()
            assert full.value.errno == errno.ENOSPC
        else:
            with pytest.raises(ComponentError, match="room for the outputs"):
                toys.count(data, target, notes=["x" * 200_000])
            assert list(small.iterdir()) == []
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", small], check=True)


def test_outputs_are_on_the_disk_before_they_appear(data, tmp_path, monkeypatch):
    events = []
    sync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda file: (events.append(Path(f"/proc/self/fd/{file}").readlink()), sync(file)))
    monkeypatch.setattr(Path, "rename", lambda path, target: (events.append("rename"), rename(path, target))[1])
    toys.count(data, tmp_path / "out")
    *before, parent = [Path(event).name for event in events]
    assert before == ["report.json", staging.INNER, "rename"]
    assert parent == tmp_path.name


@pytest.mark.parametrize("second", ["out", "out/below"])
def test_two_outputs_at_one_path_are_refused(data, tmp_path, second):
    with pytest.raises(ComponentError, match="a folder for each output"):
        toys.two(data, tmp_path / "out", tmp_path / second)


def test_missing_and_unknown_things_are_named(data, tmp_path):
    with pytest.raises(ComponentError, match="no data"):
        toys.count(report=tmp_path / "out")
    with pytest.raises(ComponentError, match="no report"):
        toys.count(data)
    with pytest.raises(ComponentError, match="no such file"):
        toys.count(data.with_name("absent"), tmp_path / "out")
    with pytest.raises(ComponentError, match="did you mean scale"):
        toys.count(data, tmp_path / "out", scael=2)
    with pytest.raises(ComponentError, match=r"(?s)memory://bucket/data: no such file.*an address with content"):
        toys.count("memory://bucket/data", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_list_and_optional_inputs(data, tmp_path):
    for name in ("a", "b"):
        toys.count(data, tmp_path / name)
    toys.add([tmp_path / "a", tmp_path / "b"], tmp_path / "two", start=1)
    assert json.loads((tmp_path / "two" / "report.json").read_text()) == {"count": 17.0, "parts": [8.0, 8.0]}
    toys.add([tmp_path / "a"], tmp_path / "three", extra=tmp_path / "b")
    assert json.loads((tmp_path / "three" / "report.json").read_text())["count"] == 16.0
    with pytest.raises(ComponentError, match="no reports"):
        toys.add([], tmp_path / "none")


def test_a_model_gets_a_card_that_tells_its_lineage(digits_model, tmp_path):
    toys.copy_model(digits_model, tmp_path / "child")
    toys.copy_model(tmp_path / "child", tmp_path / "grandchild", note="kept")
    parent, child = Model.open(digits_model), Model.open(tmp_path / "child")
    assert child.card.component == "copy_model"
    assert child.card.parameters == {"note": "as it was"}
    assert child.card.facts["parent"]["digest"] == parent.digest == child.card.digest
    assert child.card.sizes["raw"] > child.card.sizes["gzipped"] > 0
    assert child.card.versions["tensorflow"]
    assert [file.name for file in child.files() if file.name == CARD] == []
    grandchild = Model.open(tmp_path / "grandchild")
    assert grandchild.card == child.card  # a card travels with the model that is passed on


def test_the_digest_is_of_the_content_and_of_the_names(digits_model, tmp_path):
    link_tree(Path(digits_model), tmp_path / "same")
    assert Model(tmp_path / "same").digest == Model(digits_model).digest
    file = next(Model(tmp_path / "same").files())
    file.rename(file.with_name("renamed"))
    assert Model(tmp_path / "same").digest != Model(digits_model).digest


def test_linking_copies_no_bytes(digits_model, tmp_path):
    link_tree(Path(digits_model), tmp_path / "linked")
    file = next(Model(tmp_path / "linked").files())
    assert file.stat().st_nlink > 1


def test_keras_2_and_keras_3_forms_are_told_apart(digits_model):
    assert not keras_models.is_keras_2(keras_models.load(Model.open(digits_model)))

"""Test `push_model`: numbered, complete versions, layouts, concurrent pushes, interrupted pushes and errors."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.components.pushes import add
from tests.reports import DIGITS, TRAINED, make_models
from tfopt import runtimes
from tfopt.artifacts import Blessing, Model, Pushed
from tfopt.components.push_model.component import push_model
from tfopt.components.push_model.versions import Versions
from tfopt.errors import ComponentError
from tfopt.reports.report_schema import dump


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_models([DIGITS[4]], tmp_path / "models")[0]


def bless(model: Path, folder: Path, *, blessed: bool = True, digest: str | None = None) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    Blessing(folder).write(
        {"blessed": blessed, "reason": "meets the goals", "model_digest": digest or Model(model).digest}
    )
    return folder


def push(model: Path, destination: Path, *, blessed: bool = True, **parameters) -> Pushed:
    number = len(list(model.parent.glob("pushed*")))
    blessing = bless(model, model.parent / "blessing", blessed=blessed)
    target = model.parent / f"pushed {number}"
    return push_model(model, blessing, target, destination=str(destination), **parameters)["pushed"]


def changed(model: Path, text: str) -> Path:
    """Return a copy of a model with another content."""
    other = model.with_name(f"{model.name} {text[:20]}")
    shutil.copytree(model, other)
    (other / "Format-Serving" / "tflite").write_text(text)
    return other


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def entries(folder: Path) -> list[str]:
    """Return the names in a destination, except for the folder with the manifests."""
    return sorted(path.name for path in folder.iterdir() if path.name != "versions")


def test_each_push_adds_the_next_number(model, tmp_path):
    destination = tmp_path / "served here, größer"
    first, second = push(model, destination), push(changed(model, "new"), destination)
    assert first.read() == {
        "schema_version": 1,
        "pushed": True,
        "destination": str(destination),
        "version": 1,
        "path": str(destination / "1"),
        "layout": "tf_serving",
        "reason": "blessed",
        "previous": None,
        "model": "tflite int8",
        "digest": Model(model).digest,
        "environment": {},
        "fallback": False,
        "blessing": "meets the goals",
        "warm_up": "none: tflite as tf_serving has no such file",
        "versions": {"tensorflow": "2.21.0", "tfopt": "0.1.0"},
    }
    assert (second.read()["version"], second.read()["previous"]) == (2, 1)
    assert dump(first.load()) == first.read()
    assert second.metadata == {
        "pushed": 1, "pushed_destination": str(destination / "2"), "pushed_version": "2", "reason": "blessed",
        "fallback": 0, "blessing": "meets the goals",
    }  # fmt: skip
    assert entries(destination) == ["1", "2"]
    assert (destination / "1" / "model.tflite").read_text() == "flatbuffer 0"
    assert (destination / "2" / "model.tflite").read_text() == "new"


def test_a_numbered_folder_with_leading_zeros_counts_as_a_version(model, tmp_path):
    for name in ("000007", "12-old", "²", "models.config"):
        (tmp_path / "served" / name).mkdir(parents=True)
    assert push(model, tmp_path / "served").read()["version"] == 8


def test_the_tf_serving_layout_contains_the_saved_model(digits_model, tmp_path):
    destination = tmp_path / "served"
    blessing = bless(digits_model, tmp_path / "blessing")
    push_model(digits_model, blessing, tmp_path / "pushed", destination=str(destination))
    served = tree(destination / "1")
    assert {"saved_model.pb", "variables/variables.index"} <= set(served)
    assert not any("Format" in file or "keras" in file for file in served)
    images = {"image": np.random.default_rng(0).random((3, 8, 8, 1), np.float32) * 16}
    outputs = []
    for path in (digits_model, destination / "1"):
        with runtimes.load(Model.open(path)) as runtime:
            outputs.append(runtime.run(images)["digit"])
    np.testing.assert_array_equal(*outputs)


def test_the_plain_layout_contains_file_and_card_and_a_link_to_the_newest(digits_model, tmp_path):
    destination = tmp_path / "plain"
    for number in (1, 2):
        folder = tmp_path / f"model {number}"
        (folder / "Format-Serving").mkdir(parents=True)
        (folder / "Format-Serving" / "model.onnx").write_bytes(bytes([8, number]))
        (folder / "model_card.json").write_text('{"name": "onnx"}')
        push(folder, destination, layout="plain")
    assert tree(destination / "2") == ["model.onnx", "model_card.json"]
    assert (destination / "latest").readlink() == Path("2")
    assert json.loads((destination / "latest" / "model_card.json").read_text())["name"] == "onnx"


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_a_foreign_file_or_folder_named_latest_is_not_replaced(model, tmp_path, make):
    (tmp_path / "served").mkdir()
    make(tmp_path / "served" / "latest")
    with pytest.raises(ComponentError, match="latest is no link"):
        push(model, tmp_path / "served", layout="plain")
    assert entries(tmp_path / "served") == ["latest"]
    assert not (tmp_path / "served" / "latest").is_symlink()


def test_the_plain_layout_can_contain_a_saved_model_a_keras_file_and_an_onnx_file(digits_model, tmp_path):
    models = {"saved_model/saved_model.pb": digits_model, "model.keras": digits_model / "Format-Keras" / "model.keras"}
    models["model.onnx"] = tmp_path / "mine.onnx"
    models["model.onnx"].write_bytes(b"\x08\x07")
    for number, (name, model) in enumerate(models.items(), 1):
        blessing = bless(model, tmp_path / "blessing")
        push_model(model, blessing, tmp_path / f"p{number}", destination=str(tmp_path / "plain"), layout="plain")
        assert (tmp_path / "plain" / str(number) / name).is_file()


def test_the_tf_serving_layout_refuses_a_keras_file(digits_model, tmp_path):
    model = digits_model / "Format-Keras" / "model.keras"
    with pytest.raises(ComponentError) as refusal:
        push_model(
            model, bless(model, tmp_path / "b"), tmp_path / "p", destination=str(tmp_path / "s"), layout="tf_serving"
        )
    assert "keras" in refusal.value.received
    assert "layout='plain'" in refusal.value.fix
    assert not (tmp_path / "s").exists()


def test_by_default_each_format_gets_the_layout_of_its_server(model, digits_model, tmp_path):
    models = {"model.tflite": model, "model.onnx": tmp_path / "mine.onnx", "saved_model.pb": digits_model}
    models["model.onnx"].write_bytes(b"\x08\x07")
    for number, (name, path) in enumerate(models.items(), 1):
        blessing = bless(path, tmp_path / "blessing")
        pushed = push_model(path, blessing, tmp_path / f"p{number}", destination=str(tmp_path / "served"))["pushed"]
        assert (tmp_path / "served" / str(number) / name).is_file()
        assert pushed.read()["layout"] == ("plain" if name == "model.onnx" else "tf_serving")
    assert (tmp_path / "served" / "latest").readlink() == Path("3")  # an existing link follows every format


def test_a_version_shares_no_file_with_the_artifact(model, tmp_path):
    push(model, tmp_path / "served")
    (tmp_path / "served" / "1" / "model.tflite").write_text("edited by hand")
    assert (model / "Format-Serving" / "tflite").read_text() == "flatbuffer 0"


def test_an_unblessed_model_is_not_pushed(model, tmp_path):
    push(model, tmp_path / "served")
    pushed = push(changed(model, "worse"), tmp_path / "served", blessed=False)
    report = pushed.load()
    assert (report.pushed, report.version, report.path, report.previous) == (False, None, None, 1)
    assert report.reason == "not blessed: meets the goals"
    assert pushed.metadata["pushed"] == 0
    assert entries(tmp_path / "served") == ["1"]


def test_an_unblessed_model_creates_no_destination(model, tmp_path):
    push(model, tmp_path / "served", blessed=False)
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize("blessed", ["false", "true", 1, None])
def test_a_blessing_that_is_no_truth_value_is_refused(model, tmp_path, blessed):
    blessing = bless(model, tmp_path / "b", blessed=blessed)
    with pytest.raises(ComponentError, match=r"blessed is .*, not bool"):
        push_model(model, blessing, tmp_path / "p", destination=str(tmp_path / "served"))
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize("blessed", [True, False])
def test_a_blessing_of_another_model_is_refused(model, tmp_path, blessed):
    blessing = bless(model, tmp_path / "b", blessed=blessed, digest="f" * 64)
    with pytest.raises(ComponentError) as refusal:
        push_model(model, blessing, tmp_path / "p", destination=str(tmp_path / "served"))
    assert "ffffffffffff" in refusal.value.received
    assert refusal.value.expected == "the blessing of this very model"
    assert "select_model" in refusal.value.fix
    assert not (tmp_path / "served").exists()


def test_the_newest_version_is_not_pushed_again_but_an_older_one_is(model, tmp_path):
    push(model, tmp_path / "served")
    again = push(model, tmp_path / "served").read()
    assert (again["pushed"], again["version"], again["previous"]) == (True, 1, 1)
    assert again["reason"] == "the newest version is this very model already"
    push(changed(model, "new"), tmp_path / "served")
    assert push(model, tmp_path / "served").read()["version"] == 3  # a rollback is a push


def test_a_damaged_newest_version_is_pushed_again(model, tmp_path):
    push(model, tmp_path / "served")
    (tmp_path / "served" / "1" / "model.tflite").write_text("edited by hand")
    assert push(model, tmp_path / "served").read()["version"] == 2


def test_keep_removes_the_oldest_versions(model, tmp_path):
    for number in range(5):
        push(changed(model, str(number)), tmp_path / "served", keep=2)
    assert entries(tmp_path / "served") == ["4", "5"]
    push(changed(model, "new"), tmp_path / "served", keep=0)
    assert entries(tmp_path / "served") == ["4", "5", "6"]


@pytest.mark.parametrize("layout", ["tf_serving", "plain"])
def test_concurrent_pushes_get_different_numbers_and_are_complete(model, tmp_path, layout):
    models = [changed(model, f"model {number}") for number in range(12)]
    versions = Versions(str(tmp_path / "served"), layout)
    with ThreadPoolExecutor(12) as pool:
        results = list(pool.map(lambda path: add(versions, path), models))
    assert sorted(result.version for result in results) == list(range(1, 13))
    for path, result in zip(models, results, strict=True):
        pushed = versions.path(result.version) / "model.tflite"
        assert pushed.read_bytes() == (path / "Format-Serving" / "tflite").read_bytes()
    if layout == "plain":
        assert (tmp_path / "served" / "latest").readlink() == Path("12")
    assert not list((tmp_path / "served").glob(".*"))


def test_a_number_that_another_machine_uses_first_is_skipped(model, tmp_path):
    others = ["1", "2"]

    class LateVersions(Versions):
        def _numbered(self):
            paths = super()._numbered()
            if others:
                (self.folder / others[0]).mkdir()
                (self.folder / others.pop(0) / "model.tflite").write_text("another")
            return paths

    assert add(LateVersions(str(tmp_path / "served"), "tf_serving"), model).version == 3
    for number, text in enumerate(["another", "another", "flatbuffer 0"], 1):
        assert (tmp_path / "served" / str(number) / "model.tflite").read_text() == text


def test_concurrent_pushes_of_one_model_add_one_version(model, tmp_path):
    versions = Versions(str(tmp_path / "served"), "tf_serving")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: add(versions, model), range(16)))
    assert {result.version for result in results} == {1}
    assert entries(tmp_path / "served") == ["1"]


def test_a_push_waits_for_a_push_of_another_process(model, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    code = (
        "import pathlib, sys; from tfopt.storage.folder_lock import lock_folder\n"
        "with lock_folder(pathlib.Path(sys.argv[1])): print('in', flush=True); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, served], **pipes) as other, ThreadPoolExecutor(1) as pool:
        assert other.stdout.readline() == "in\n"
        pushed = pool.submit(add, Versions(str(served), "tf_serving"), model)
        time.sleep(1)
        assert not (served / "1").exists()
        other.communicate("out\n")
        assert pushed.result().version == 1


def test_a_foreign_file_with_a_number_as_name_is_kept_and_no_version(model, tmp_path):
    served = tmp_path / "served"
    push(model, served)
    (served / "3").write_text("notes")
    assert push(changed(model, "new"), served, keep=1).read()["version"] == 4
    assert entries(served) == ["3", "4"]


def test_an_old_version_that_cannot_be_deleted_only_logs_a_warning(model, tmp_path, caplog):
    served = tmp_path / "served"
    served.mkdir()
    (served / "1").symlink_to(changed(model, "elsewhere"))
    assert push(model, served, keep=1).read()["version"] == 2
    assert "version 1 is not removed" in caplog.text
    assert push(model, served, keep=1).read()["version"] == 2


def test_a_reader_never_sees_an_incomplete_version(model, tmp_path):
    served, stop, seen = tmp_path / "served", threading.Event(), []
    served.mkdir()

    def count_files() -> None:
        while not stop.is_set():
            seen.extend(len(tree(path)) for path in served.iterdir() if path.name.isdecimal())

    reader = threading.Thread(target=count_files)
    reader.start()
    for number in range(30):
        add(Versions(str(served), "tf_serving"), changed(model, str(number)))
    stop.set()
    reader.join()
    assert set(seen) == {2}


def test_a_killed_push_adds_no_version_and_the_next_push_removes_its_files(model, tmp_path):
    large = changed(model, "large")
    with (large / "Format-Serving" / "tflite").open("wb") as stream:
        stream.truncate(4 << 30)  # a sparse file: needs no disk space, and is slow to copy
    served = tmp_path / "served"
    push(model, served)
    code = (
        "import sys; from tests.components.pushes import add\n"
        "from tfopt.components.push_model.versions import Versions\n"
        "add(Versions(sys.argv[1], 'tf_serving'), sys.argv[2])"
    )
    process = subprocess.Popen([sys.executable, "-c", code, served, large])
    while not list(served.glob(".partial-*/*/model.tflite")):
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert [name for name in entries(served) if not name.startswith(".")] == ["1"]
    assert list(served.glob(".partial-*"))
    assert push(changed(model, "new"), served).read()["version"] == 2
    assert entries(served) == ["1", "2"]


def test_an_unwritable_destination_is_refused(model, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ComponentError) as refusal:
        push(model, tmp_path / "file" / "served")
    assert "Not a directory" in refusal.value.received
    assert refusal.value.expected == "a folder that can be written"
    assert refusal.value.fix


def test_a_full_destination_is_refused_and_its_versions_remain(model, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small]
    mounted = not subprocess.run(mount, check=False, capture_output=True).returncode
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        push(model, small)
        large = changed(model, "x" * 200_000)
        blessing = bless(large, tmp_path / "b")
        if not mounted:  # only root can mount; a limit on file sizes also makes the copy fail
            resource.setrlimit(resource.RLIMIT_FSIZE, (64_000, limits[1]))
        with pytest.raises(ComponentError) as refusal:
            push_model(large, blessing, tmp_path / "p", destination=str(small))
        assert entries(small) == ["1"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        if mounted:
            subprocess.run(["umount", small], check=True)
    assert ("No space left" if mounted else "too large") in refusal.value.received
    assert ("by removing old versions" if mounted else "push elsewhere") in refusal.value.fix
    assert not (tmp_path / "p").exists()


def test_a_saved_model_is_pushed_with_its_card(tmp_path):
    parent = make_models([TRAINED], tmp_path / "models")[0]
    push(parent, tmp_path / "served")
    assert tree(tmp_path / "served" / "1") == ["assets.extra/model_card.json", "saved_model.pb"]


@pytest.mark.parametrize("killed", ["before the link was written", "before the link was changed"])
def test_a_rerun_completes_the_link_and_the_removal_of_a_killed_push(digits_model, tmp_path, killed):
    destination, model = tmp_path / "served", tmp_path / "models" / "digits"
    shutil.copytree(digits_model, model)
    push(model, destination, layout="plain")
    (destination / "1").rename(destination / "2")
    (destination / "1").mkdir()  # an older version
    (destination / "latest").unlink()
    if killed == "before the link was changed":
        (destination / "latest").symlink_to("1")
    again = push(model, destination, layout="plain", keep=1)
    assert again.read()["reason"] == "the newest version is this very model already"
    assert (destination / "latest").readlink() == Path("2")
    assert entries(destination) == ["2", "latest"]

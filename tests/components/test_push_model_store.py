"""Test pushes to a bucket of a local S3 server: claims, pointers, concurrent and interrupted pushes, the next run."""

import json
import os
import re
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

import tests.object_store  # noqa: F401  (registers the schemes)
from tests.components.pushes import add
from tests.components.test_push_model import bless, changed, model, push  # noqa: F401  (model is a fixture)
from tests.components.test_select_model_history import pushed_report
from tests.components.test_select_model_history import run as select_and_push
from tfopt.artifacts import Decision, KerasModel, Model, Recipe
from tfopt.components.push_model.component import push_model
from tfopt.components.push_model.store_versions import StoreVersions
from tfopt.errors import ComponentError
from tfopt.model_store import run_history, warm_start
from tfopt.storage import remote_files


@pytest.fixture(params=["memory", pytest.param("bucket", marks=pytest.mark.nightly)])
def store(request, tmp_path) -> str:
    """Return the address of a store: in this process, where what is tested does not depend on the server."""
    return f"memory:/{tmp_path}" if request.param == "memory" else request.getfixturevalue("bucket")


def read_json(address: str) -> dict:
    return json.loads(remote_files.read_file(address) or b"{}")


def names(bucket: str) -> list[str]:
    files = (file.removeprefix(f"{bucket}/served/") for file in remote_files.list_remote_files(f"{bucket}/served"))
    return [file for file in files if not file.endswith("/assets.extra/model_card.json")]


def test_each_push_copies_the_version_and_writes_its_pointer_last(model, bucket, caplog):  # noqa: F811
    caplog.set_level("INFO", "werkzeug")
    first, second = push(model, f"{bucket}/served"), push(changed(model, "new"), f"{bucket}/served")
    assert (first.read()["path"], first.read()["previous"]) == (f"{bucket}/served/1", None)
    assert (second.read()["path"], second.read()["previous"]) == (f"{bucket}/served/2", 1)
    assert names(bucket) == [
        "1/model.tflite", "2/model.tflite",
        "versions/1.claim", "versions/1.json", "versions/1.provenance.json",
        "versions/1.pushed.json", "versions/1.sha256",
        "versions/2.claim", "versions/2.json", "versions/2.provenance.json",
        "versions/2.pushed.json", "versions/2.sha256",
    ]  # fmt: skip
    assert remote_files.read_file(f"{bucket}/served/2/model.tflite") == b"new"
    pointer = read_json(f"{bucket}/served/versions/2.json")
    assert (pointer["version"], pointer["files"]["model.tflite"]) == (2, 3)
    order = [name for name in re.findall(r"PUT /\S+/served/(\S+)", caplog.text) if ".probe" not in name][-7:]
    files = ["2/assets.extra/model_card.json", "2/model.tflite"]
    described = ["versions/2.provenance.json", "versions/2.sha256", "versions/2.pushed.json"]
    assert order == ["versions/2.claim", *files, *described, "versions/2.json"]


def test_the_newest_model_is_not_pushed_again_and_old_versions_are_removed(model, store):  # noqa: F811
    push(model, f"{store}/served")
    again = push(model, f"{store}/served").read()
    assert (again["version"], again["reason"]) == (1, "the newest version is this very model already")
    for text in ("two", "three"):
        push(changed(model, text), f"{store}/served", keep=2)
    assert StoreVersions(f"{store}/served", "tf_serving").numbers() == [2, 3]
    assert not [name for name in names(store) if name.startswith("1/")]
    assert push(changed(model, "four"), f"{store}/served").read()["version"] == 4


def test_numbers_of_files_without_a_pointer_are_skipped(model, store):  # noqa: F811
    remote_files.write_file(f"{store}/served/000007/saved_model.pb", b"copied by hand")
    remote_files.write_file(f"{store}/served/12-old/saved_model.pb", b"no number")
    assert push(model, f"{store}/served").read()["version"] == 8


def test_concurrent_pushes_get_different_numbers(model, bucket):  # noqa: F811
    models = [Model(changed(model, f"model {number}")) for number in range(6)]

    def push_directly(model: Model) -> int:
        return add(StoreVersions(f"{bucket}/served", "tf_serving"), model.path).version

    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(push_directly, models))
    assert sorted(versions) == StoreVersions(f"{bucket}/served", "tf_serving").numbers() == [1, 2, 3, 4, 5, 6]
    for version, pushed in zip(versions, models, strict=True):
        content = remote_files.read_file(f"{bucket}/served/{version}/model.tflite")
        assert content == (pushed.path / "Format-Serving" / "tflite").read_bytes()


def test_a_push_that_fails_before_its_pointer_leaves_no_version(model, store, tmp_path, monkeypatch):  # noqa: F811
    push(model, f"{store}/served")
    stage = shutil.copytree(model, tmp_path / "stage")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(remote_files, "write_file", fail)
        versions = StoreVersions(f"{store}/served", "tf_serving")
        versions._add(stage, "digest", lambda: None, versions)
    assert StoreVersions(f"{store}/served", "tf_serving").numbers() == [1]
    suffixes = ("claim", "json", "provenance.json", "pushed.json", "sha256")
    version = ["1/model.tflite", *(f"versions/1.{suffix}" for suffix in suffixes)]
    assert names(store) == [*version, "versions/2.claim"]
    assert push(changed(model, "new"), f"{store}/served").read()["version"] == 3


def test_the_files_of_a_killed_push_are_removed_after_a_day(model, store):  # noqa: F811
    for number, time in ((1, "2020-01-01T00:00:00+00:00"), (2, "2999-01-01T00:00:00+00:00")):
        remote_files.write_file(f"{store}/served/{number}/model.tflite", b"half")
        remote_files.write_file(f"{store}/served/versions/{number}.claim", json.dumps({"time": time}).encode())
    push(model, f"{store}/served")
    assert [name for name in names(store) if not name.startswith("versions/")] == ["2/model.tflite", "3/model.tflite"]
    assert StoreVersions(f"{store}/served", "tf_serving").numbers() == [3]


def test_the_files_of_a_push_that_was_killed_on_this_machine_are_removed_at_once(model, store):  # noqa: F811
    for number, process in ((1, 4_194_305), (2, os.getpid())):  # the first ID is larger than any of Linux
        owner = f".partial-{socket.gethostname()}-{process}-abc"
        claim = {"time": "2999-01-01T00:00:00+00:00", "owner": owner}
        remote_files.write_file(f"{store}/served/{number}/model.tflite", b"half")
        remote_files.write_file(f"{store}/served/versions/{number}.claim", json.dumps(claim).encode())
    push(model, f"{store}/served")
    assert [name for name in names(store) if not name.startswith("versions/")] == ["2/model.tflite", "3/model.tflite"]


def test_a_store_without_conditional_writes_is_refused(model, tmp_path):  # noqa: F811
    with pytest.raises(ComponentError, match=r"(?s)no conditional writes.*mount this one"):
        push(model, f"overwriting://{tmp_path}/served")
    assert list((tmp_path / "served").iterdir()) == []


def test_a_triton_repository_in_a_bucket_has_a_configuration(digits_model, tmp_path, bucket):
    blessing = bless(digits_model, tmp_path / "blessing")
    destination = f"{bucket}/repository/digits"
    push_model(digits_model, blessing, tmp_path / "pushed", destination=destination, layout="triton")
    config = text_format.Parse((remote_files.read_file(f"{destination}/config.pbtxt") or b"").decode(), ModelConfig())
    assert (config.name, [tensor.name for tensor in config.input]) == ("digits", ["image"])
    assert remote_files.read_file(f"{destination}/1/model.savedmodel/saved_model.pb")
    remote_files.write_file(f"{destination}/config.pbtxt", b"# ours\n")
    push_model(digits_model, blessing, tmp_path / "again", destination=destination, layout="triton")
    assert remote_files.read_file(f"{destination}/config.pbtxt") == b"# ours\n"


def test_the_next_run_reads_model_recipe_and_history_of_the_bucket(model, digits_model, tmp_path, bucket):  # noqa: F811
    destination = f"{bucket}/served"
    assert warm_start.load_model(destination) is None
    assert warm_start.load_recipe(destination) is None
    assert run_history.read_runs(destination, 5) == []
    for number in (1, 2):
        assert select_and_push(tmp_path / str(number), destination)["blessed"]
    assert [run.version for run in run_history.read_runs(destination, 5)] == [1, 2]
    run_history.write_run(destination, Decision(tmp_path / "2" / "decision"), pushed_report(9))  # a retry of the step
    assert [run.version for run in run_history.read_runs(destination, 5)] == [1, 2]
    recipe = Recipe(tmp_path / "recipe")
    recipe.write({"decision": {"selected_digest": Model(model).digest}})
    pushed = push(model, destination, trained=digits_model, recipe=recipe.path).read()
    assert (pushed["trained"], pushed["recipe"]) == (f"{destination}/trained.json", f"{destination}/recipe")
    assert warm_start.load_model(destination).digest == KerasModel(digits_model).digest
    assert warm_start.load_recipe(destination).read()["served"] is True


def test_the_model_before_stays_for_readers_of_the_old_pointer(digits_model, tmp_path, bucket):
    copies = []
    for number in range(3):
        copies.append(KerasModel(shutil.copytree(digits_model, tmp_path / str(number))))
        (copies[-1].path / "Format-Keras" / "more").write_text(str(number))
        warm_start.store_model(bucket, copies[-1])
        assert warm_start.load_model(bucket).digest == copies[-1].digest
    stored = {name for name in remote_files.list_names(bucket) if name.startswith("trained-")}
    assert stored == {f"trained-{copy.digest[:16]}" for copy in copies[1:]}


def test_a_version_that_another_push_has_just_added_stays(model, bucket, monkeypatch):  # noqa: F811
    versions, numbers = StoreVersions(f"{bucket}/served", "tf_serving"), StoreVersions.numbers
    push(model, f"{bucket}/served")
    owner = f".partial-{socket.gethostname()}-4194305-abc"  # a process that has ended
    claim = json.dumps({"time": "2999-01-01T00:00:00+00:00", "owner": owner}).encode()
    remote_files.write_file(f"{bucket}/served/versions/1.claim", claim)
    monkeypatch.setattr(StoreVersions, "numbers", lambda of: [])  # listed before that push wrote its pointer
    versions._remove_old(1)
    assert numbers(versions) == [1]
    assert remote_files.read_file(f"{bucket}/served/1/model.tflite") is not None

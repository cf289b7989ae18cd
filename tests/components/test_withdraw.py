"""Test `tfopt withdraw` and `tfopt restore` on folders and a bucket of a local S3 server, whole and killed."""

import datetime
import itertools
import json
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.components.pushes import add, version
from tests.components.test_push_model import changed, entries, model, push  # noqa: F401  (model is a fixture)
from tests.components.test_push_model_manifest import keys  # noqa: F401  (a fixture)
from tests.components.test_push_model_registry import stored
from tests.components.test_select_model_history import earlier, three_runs  # noqa: F401  (fixtures)
from tests.model_registry import ModelRegistryServer
from tfopt.artifacts import KerasModel
from tfopt.cli.main import main
from tfopt.components.push_model import registration
from tfopt.components.push_model.registrations.kind import parse_targets, register_with, update_with
from tfopt.components.push_model.versions import Versions
from tfopt.components.push_model.withdraw import open_versions, restore, withdraw
from tfopt.errors import ComponentError
from tfopt.model_store import run_history, warm_start, withdrawals
from tfopt.model_store.withdrawals import read_changes
from tfopt.serving.version_manifest import verify_version
from tfopt.storage import remote_files


@pytest.fixture(params=["folder", "memory", pytest.param("bucket", marks=pytest.mark.nightly)])
def destination(request, tmp_path) -> str:
    if request.param == "folder":
        return str(tmp_path / "served here")
    if request.param == "memory":  # a store in this process
        return f"memory:/{tmp_path}/served"
    return f"{request.getfixturevalue('bucket')}/served"


@pytest.fixture
def two(model, destination) -> tuple[Path, Path]:  # noqa: F811
    """Return two models, which are pushed as versions 1 and 2."""
    models = model, changed(model, "new")
    for each in models:
        push(each, destination)
    return models


WITH_A_SERVER = pytest.mark.parametrize("destination", ["folder", "bucket"], indirect=True)


def content(destination: str, version: int) -> bytes | None:
    return remote_files.read_file(f"{destination}/{version}/model.tflite")


@WITH_A_SERVER
def test_a_withdrawn_version_is_not_served_and_not_pushed_again(two, destination):
    result = withdraw(destination, None, "wrong labels")
    assert (result.change.version, result.served) == (2, 1)
    assert open_versions(destination).numbers() == [1]
    assert (content(destination, 2), content(f"{destination}/withdrawn", 2)) == (None, b"new")

    again = push(two[1], destination).read()
    assert (again["pushed"], again["version"], again["previous"]) == (False, None, 1)
    assert "wrong labels; to push it again: tfopt restore" in again["reason"]

    other = push(changed(two[0], "other"), destination).read()
    assert (other["version"], other["previous"]) == (3, 1)  # the number 2 is not used again


@WITH_A_SERVER
def test_a_restored_version_has_its_number_and_files(two, destination):
    withdraw(destination, 2, "wrong labels")
    result = restore(destination, None, "the labels were right")
    assert (result.change.version, result.served) == (2, 2)
    assert content(destination, 2) == b"new"
    assert not [name for name in remote_files.list_names(f"{destination}/withdrawn") if name.isdecimal()]
    assert push(two[1], destination).read()["reason"] == "the newest version is this very model already"
    assert [(change.action, change.reason) for change in read_changes(destination)[2]] == [
        ("withdrawn", "wrong labels"),
        ("restored", "the labels were right"),
    ]


def test_an_older_version_can_be_withdrawn(two, destination):
    assert withdraw(destination, 1, "").served == 2
    assert open_versions(destination).numbers() == [2]
    assert not push(two[0], destination).read()["pushed"]


def test_a_withdrawn_model_may_be_pushed_again_if_that_is_allowed(two, destination):
    withdraw(destination, 2, "the server was broken")
    withdraw(destination, 2, "it works again", allow=True)
    assert push(two[1], destination).read()["version"] == 3


def fail_at(
    monkeypatch, number: int, functions: tuple[str, ...] = ("move", "create_file", "write_file", "remove")
) -> list:
    """Let the call with this number of functions that change a destination raise; return the calls."""
    calls: list[str] = []

    def failing(name, original):
        def call(*arguments, **options):
            calls.append(name)
            if len(calls) == number:
                raise KeyboardInterrupt
            return original(*arguments, **options)

        return call

    for name in functions:
        monkeypatch.setattr(remote_files, name, failing(name, getattr(remote_files, name)))
    return calls


KILLED = [
    *(("withdraw", "command", "folder"), ("withdraw", "push", "memory")),
    *(("restore", "push", "folder"), ("restore", "command", "memory")),
]
KILLED += [
    pytest.param(*case, marks=pytest.mark.nightly)
    for case in itertools.product(("withdraw", "restore"), ("command", "push"), ("folder", "memory", "bucket"))
    if case not in KILLED
]


@pytest.mark.parametrize(("action", "resume", "destination"), KILLED, indirect=["destination"])
def test_a_killed_command_is_completed_by_the_next_one(action, resume, model, destination, monkeypatch):  # noqa: F811
    for text in ("one", "two"):
        push(changed(model, text), destination)
    third, killed = changed(model, "three"), 0
    monkeypatch.setattr(withdrawals, "IN_PROGRESS", datetime.timedelta(0))  # the commands have ended
    if action == "restore":
        withdraw(destination, 2, "before")
    while killed < 40:
        killed += 1
        with monkeypatch.context() as patch:
            fail_at(patch, killed)
            try:
                withdraw(destination, 2, "wrong") if action == "withdraw" else restore(destination, 2, "right")
            except KeyboardInterrupt:
                pass
            else:
                break
        recorded = read_changes(destination).get(2, ())
        is_done = bool(recorded) and recorded[-1].action == ("withdrawn" if action == "withdraw" else "restored")
        if resume == "push":
            add(open_versions(destination), third)
        elif action == "withdraw":
            withdraw(destination, 2, "wrong")
            is_done = True
        else:
            restore(destination, 2, "right")
            is_done = True
        is_served = (action == "restore") == is_done
        assert (2 in open_versions(destination).numbers()) == is_served
        assert content(destination if is_served else f"{destination}/withdrawn", 2) == b"two"
        assert content(f"{destination}/withdrawn" if is_served else destination, 2) is None
        if is_done:  # back to the start
            restore(destination, 2, "") if action == "withdraw" else withdraw(destination, 2, "")
    assert 3 < killed < 40


def test_the_link_and_the_manifests_follow(model, tmp_path):  # noqa: F811
    served = tmp_path / "served here"
    for text in ("one", "two"):
        add(Versions(str(served), "plain"), changed(model, text))
    withdraw(str(served), 2, "wrong")
    assert str((served / "latest").readlink()) == "1"
    assert entries(served) == ["1", "latest", "withdrawn"]
    for folder, manifest in ((served, "1"), (served / "withdrawn", "2")):
        check = ["sha256sum", "--check", "--strict", *(file.name for file in (folder / "versions").glob("*.sha256"))]
        assert check[3:] == [f"{manifest}.sha256"]
        subprocess.run([*check[:3], f"versions/{check[3]}"], cwd=folder, capture_output=True, check=True)
    verify_version(served / "withdrawn" / "2")
    restore(str(served), 2, "")
    assert str((served / "latest").readlink()) == "2"
    withdraw(str(served), 2, "")
    withdraw(str(served), 1, "")
    assert entries(served) == ["withdrawn"]


def test_the_link_leads_to_a_version_at_every_moment(model, tmp_path, monkeypatch):  # noqa: F811
    served, move, moves = tmp_path / "served", remote_files.move, []
    for text in ("one", "two"):
        add(Versions(str(served), "plain"), changed(model, text))

    def move_and_look(source: str, target: str) -> None:
        move(source, target)
        moves.append((served / "latest" / "model.tflite").is_file())

    monkeypatch.setattr(remote_files, "move", move_and_look)
    withdraw(str(served), 2, "wrong")
    restore(str(served), 2, "")
    assert len(moves) > 4
    assert all(moves)


def test_a_folder_that_was_moved_by_hand_was_withdrawn(model, tmp_path):  # noqa: F811
    served, second = tmp_path / "served", changed(model, "two")
    push(model, served)
    push(second, served)
    (served / "2").rename(tmp_path / "elsewhere")
    assert "version 2 was removed on" in push(second, served).read()["reason"]
    assert push(changed(model, "three"), served).read()["version"] == 3
    subprocess.run("sha256sum -c versions/*.sha256", shell=True, cwd=served, capture_output=True, check=True)
    with pytest.raises(ComponentError, match=r"its files are not there.*\n.*\n.*move its files back to"):
        restore(str(served), 2, "")
    (tmp_path / "elsewhere").rename(served / "2")
    push(changed(model, "four"), served)
    assert Versions(str(served), "tf_serving").numbers() == [1, 2, 3, 4]
    verify_version(served / "2")
    assert [change.action for change in read_changes(str(served))[2]] == ["removed", "restored"]


@pytest.mark.parametrize("destination", ["folder"], indirect=True)
def test_a_withdrawn_folder_that_was_copied_back_by_hand_is_named(two, tmp_path):
    served = tmp_path / "served here"
    withdraw(str(served), 2, "wrong")
    shutil.copytree(served / "withdrawn" / "2", served / "2")
    received = r"Directory not empty: .*/2 and .*/withdrawn/2\n.*\n.*remove one of them"
    with pytest.raises(ComponentError, match=received):
        push(changed(two[0], "three"), served)
    shutil.rmtree(served / "2")
    assert restore(str(served), 2, "").served == 2


@pytest.mark.parametrize("destination", ["folder"], indirect=True)
@pytest.mark.parametrize("name", ["2-change-1.json", "2.pushed.json"])
def test_a_damaged_record_is_to_be_removed(name, two, tmp_path):
    served = tmp_path / "served here"
    withdraw(str(served), 2, "wrong")
    (served / "versions" / name).write_text("{")
    with pytest.raises(ComponentError, match=rf"versions/{name}.*\n.*\n.*remove the file"):
        restore(str(served), 2, "")
    (served / "versions" / name).unlink()
    assert push(changed(two[0], "three"), served).read()["version"] == 3


def test_a_destination_that_was_emptied_by_hand_gets_the_model_again(model, tmp_path):  # noqa: F811
    push(model, tmp_path / "served")
    shutil.rmtree(tmp_path / "served" / "1")
    assert push(model, tmp_path / "served").read()["version"] == 2


def test_versions_without_records_can_be_withdrawn(two, destination):
    for number in (1, 2):
        remote_files.remove(f"{destination}/versions/{number}.pushed.json")
    assert withdraw(destination, 2, "an earlier release").served == 1
    assert not push(two[1], destination).read()["pushed"]


def test_an_old_signed_version_is_not_the_newest_one(model, keys, tmp_path):  # noqa: F811
    served = tmp_path / "served"
    for text in ("old", "new"):
        push(changed(model, text), served, signing_key=str(keys[0]))
        verify_version(served / ("1" if text == "old" else "2"), str(keys[1]))
    shutil.copytree(served / "1", served / "3")
    versions = served / "versions"
    for suffix in (".sig", ".signed.json", ".signed.sig"):
        shutil.copy(versions / f"1{suffix}", versions / f"3{suffix}")
    manifest = (versions / "1.sha256").read_text()
    (versions / "3.sha256").write_text(manifest.replace("  1/", "  3/"))
    with pytest.raises(ComponentError, match=r"version 3 is signed as 1 of 20"):
        verify_version(served / "3", str(keys[1]))
    statement = json.loads((versions / "1.signed.json").read_text()) | {"version": "3"}
    (versions / "3.signed.json").write_text(json.dumps(statement))
    with pytest.raises(ComponentError, match="signature does not fit"):
        verify_version(served / "3", str(keys[1]))
    (versions / "3.signed.json").unlink()
    with pytest.raises(ComponentError, match="signatures of earlier releases are of the files alone"):
        verify_version(served / "3", str(keys[1]))


def test_registrations_follow(push, tmp_path):
    manifest, served = tmp_path / "digits.yaml", str(push.destination)
    push(f"kserve={manifest}", destination_uri="s3://bucket/digits")
    assert withdraw(served, 1, "wrong labels").updates == {f"kserve={manifest}": f"removed {manifest}"}
    assert not manifest.exists()
    manifest.mkdir()
    with pytest.raises(ComponentError, match=r"version 1 is restored, but not at kserve.*\n.*\n.*repeat this command"):
        restore(served, 1, "")
    manifest.rmdir()
    assert restore(served, 1, "").updates == {f"kserve={manifest}": f"version 1 in {manifest}"}
    assert "tfopt/version: '1'" in manifest.read_text()


@pytest.mark.parametrize("destination", ["folder"], indirect=True)
def test_a_command_that_is_repeated_after_a_failure_changes_one_version(two, destination, tmp_path):
    manifest = tmp_path / "digits.yaml"
    third = changed(two[0], "three")
    push(third, destination, register=[f"kserve={manifest}"], destination_uri="s3://bucket/digits")
    withdraw(destination, 1, "before")
    for command, served in ((withdraw, 2), (restore, 3)):
        manifest.unlink()
        manifest.mkdir()
        with pytest.raises(ComponentError, match="repeat this command"):
            command(destination, None, "why")
        manifest.rmdir()
        result = command(destination, None, "why")
        assert (result.change.version, result.change.complete, result.served) == (3, True, served)
        assert (2 in open_versions(destination).numbers(), 1 in open_versions(destination).numbers()) == (True, False)
        spec = yaml.safe_load(manifest.read_text())  # version 2 was pushed without KServe
        assert spec["metadata"]["annotations"]["tfopt/version"] == str(served)
        assert spec["spec"]["predictor"]["model"]["storageUri"] == "s3://bucket/digits/"
    assert [change.action for change in read_changes(destination)[3]] == ["withdrawn", "restored"]

    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(ComponentError, match="repeat this command"):
        withdraw(destination, None, "why")
    push(changed(third, "four"), destination)
    assert withdraw(destination, None, "the newest one is meant").change.version == 4


def interrupt(monkeypatch, module, name: str, command: Callable[[], object]) -> None:
    """Run another command, whole, before the first call of a function."""
    original, commands = getattr(module, name), [command]

    def call(*arguments):
        if commands:
            with ThreadPoolExecutor(1) as pool:  # in another context: a component declares those that it runs itself
                pool.submit(commands.pop()).result()
        return original(*arguments)

    monkeypatch.setattr(module, name, call)


@pytest.mark.parametrize(
    ("first", "second", "served"),
    [("push", "withdraw", 2), ("withdraw", "push", 3), pytest.param("push", "push", 4, marks=pytest.mark.nightly)],
)
def test_registrations_are_those_of_the_newest_version_after_two_commands_at_once(
    first,
    second,
    served,
    model,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    manifest, folder = tmp_path / "digits.yaml", str(tmp_path / "served")
    models = [shutil.copytree(model, tmp_path / user / "model") for user in ("one", "two")]

    def run(command: str, user: int, text: str) -> None:
        if command == "withdraw":
            withdraw(folder, None, "wrong")
            return
        new = changed(models[user], text)
        push(new, folder, register=[f"kserve={manifest}"], destination_uri="s3://bucket/digits")

    for text in ("one", "two"):
        run("push", 0, text)
    interrupt(monkeypatch, registration, "_call_each", partial(run, second, 1, "of the second"))
    run(first, 0, "of the first")
    assert yaml.safe_load(manifest.read_text())["metadata"]["annotations"]["tfopt/version"] == str(served)


def test_kserve_has_no_file_of_a_version_that_it_cannot_serve(tmp_path):
    (target,) = parse_targets([f"kserve={tmp_path / 'digits.yaml'}"])
    eighth = version(number=8, format="saved_model", layout="tf_serving", destination="s3://bucket/digits")
    register_with(target, eighth)
    seventh = version(number=7, format="saved_model", layout="plain", destination="/served/digits")
    assert update_with(target, eighth, seventh, "wrong").endswith("format saved_model in the layout plain")
    assert not (tmp_path / "digits.yaml").exists()


def test_tensorboard_shows_no_withdrawn_version(tmp_path):
    (board,) = parse_targets([f"tensorboard={tmp_path}"])
    eighth, ninth = (version(number=number, metrics={"accuracy": 0.9}) for number in (8, 9))
    for each in (eighth, ninth):
        register_with(board, each)
    before = sorted(tmp_path.rglob("events*"))
    update_with(board, ninth, eighth, "wrong")
    assert sorted(tmp_path.rglob("events*")) == before[:1]
    update_with(board, ninth, ninth, None)
    assert sorted(tmp_path.rglob("events*")) == before


def test_the_model_registry_archives_a_withdrawn_version():
    with ModelRegistryServer() as server:
        (registry,) = parse_targets([f"model-registry={server.url}"])
        pushed = version(number=1)
        assert update_with(registry, pushed, None, "wrong") == "nothing: the version is not registered"
        register_with(registry, pushed)
        for withdrawn, state in (("wrong labels", "ARCHIVED"), (None, "LIVE")):
            update_with(registry, pushed, None, withdrawn)
            _, archived, _ = stored(server.url, "digits")
            assert archived.state.value == state
            assert archived.custom_properties["tfopt.withdrawn"] == (withdrawn or "")
            assert archived.custom_properties["tfopt.digest"] == pushed.digest


def test_the_next_training_does_not_start_from_a_withdrawn_model(digits_model, model, destination):  # noqa: F811
    push(model, destination)
    push(changed(model, "new"), destination, trained=KerasModel(digits_model))
    assert warm_start.load_model(destination) is not None
    withdraw(destination, 2, "wrong")
    assert warm_start.load_model(destination) is None


def test_the_model_of_a_version_that_is_withdrawn_during_its_push_is_not_stored(
    digits_model,
    model,  # noqa: F811
    destination,
    monkeypatch,
):
    push(model, destination)
    command = partial(withdraw, destination, 2, "wrong")
    interrupt(monkeypatch, warm_start, "store_model", command)
    push(changed(model, "new"), destination, trained=KerasModel(digits_model))
    assert warm_start.load_model(destination) is None


@pytest.mark.parametrize(
    ("command", "received"),
    [
        (lambda folder: withdraw(folder, 7, ""), "no version 7.*\n.*\n.*versions there: 1"),
        (
            lambda folder: withdraw(folder, None, ""),
            "only version 1.*\n.*\n.*tfopt withdraw ('.* .*'|s3://.*|memory:/.*) 1",
        ),
        (lambda folder: restore(folder, None, ""), "no version is withdrawn.*\n.*\n.*none"),
        (lambda folder: restore(folder, 1, ""), "version 1 is not withdrawn"),
        (lambda folder: withdraw(f"{folder}/nothing", 1, ""), "nothing is there"),
        (lambda _: withdraw("", 1, ""), "an empty path"),
        (lambda _: withdraw("s4://bucket/served", 1, ""), "s4://.*\n.*\n.*known: abfs"),
        (lambda _: main(["history", " ", "--debug"]), "an empty path"),
    ],
)
def test_refused(command, received, model, destination):  # noqa: F811
    push(model, destination)
    with pytest.raises(ComponentError, match=received):
        command(destination)
    assert open_versions(destination).numbers() == [1]


def test_history_names_who_and_why_and_later_runs_are_not_compared(three_runs, capsys):  # noqa: F811
    assert len(run_history.read_runs(three_runs, 9)) == 3
    assert main(["withdraw", str(three_runs), "--reason", "wrong labels"]) == 0
    printed = capsys.readouterr().out
    assert f": wrong labels\nthe newest version is 2, in {three_runs}\n" in printed
    assert [run.version for run in run_history.read_runs(three_runs, 9)] == [1, 2]
    main(["history", str(three_runs)])
    assert "version 3 was withdrawn by" in " ".join(capsys.readouterr().out.split())
    main(["history", str(three_runs), "--json"])
    (change,) = json.loads(capsys.readouterr().out)[2]["changes"]
    assert (change["action"], change["reason"]) == ("withdrawn", "wrong labels")
    assert main(["restore", str(three_runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["served"] == 3
    assert len(run_history.read_runs(three_runs, 9)) == 3


def test_a_withdrawal_has_a_reason(model, tmp_path, capsys):  # noqa: F811
    with pytest.raises(SystemExit):
        main(["withdraw", str(tmp_path)])
    assert "--reason" in capsys.readouterr().err
    assert main(["withdraw", str(tmp_path), "--reason", " "]) == 1
    assert "--reason without a text" in capsys.readouterr().err

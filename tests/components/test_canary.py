"""Test canaries: pushed next to the served version, promoted, withdrawn and restored, on folders and stores."""

import datetime
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.components.pushes import add
from tests.components.test_push_model import changed, model, push  # noqa: F401  (model is a fixture)
from tests.components.test_push_model_registrations import accepted, manifests  # noqa: F401  (a fixture)
from tests.components.test_select_model_history import earlier, three_runs  # noqa: F401  (fixtures)
from tests.components.test_validate_serving import product
from tests.components.test_withdraw import content, destination, fail_at, interrupt, two  # noqa: F401  (fixtures)
from tfopt import runtimes
from tfopt.artifacts import InfraBlessing, KerasModel, Model
from tfopt.cli.main import main
from tfopt.components.push_model import registration
from tfopt.components.push_model.versions import Versions
from tfopt.components.push_model.withdraw import open_versions, promote, restore, withdraw
from tfopt.errors import ComponentError
from tfopt.model_store import run_history, warm_start, withdrawals
from tfopt.model_store.withdrawals import canary_folder, is_canary, new_change, read_changes, write_change
from tfopt.reports.serving_report import ServedModel, ServingReport
from tfopt.serving.triton_config import HEADER
from tfopt.serving.triton_server import check_config
from tfopt.serving.version_manifest import verify_version
from tfopt.storage import remote_files

LOCAL = pytest.mark.parametrize("destination", ["folder", "memory"], indirect=True)
FOLDER = pytest.mark.parametrize("destination", ["folder"], indirect=True)


@pytest.fixture
def canary(two, destination) -> Path:  # noqa: F811
    """Push a canary as version 3, and return its model."""
    new = changed(two[0], "canary")
    push(new, destination, canary="10%")
    return new


@pytest.fixture
def trained(tmp_path) -> KerasModel:
    """Return a Keras model as a folder, which nothing loads."""
    file = tmp_path / "trained" / "Format-Keras" / "model.keras"
    file.parent.mkdir(parents=True)
    file.write_text("weights")
    return KerasModel(tmp_path / "trained")


@LOCAL
def test_a_canary_is_next_to_the_served_version_and_no_other_one_is_pushed(two, destination):  # noqa: F811
    new = changed(two[0], "canary")
    report = push(new, destination, canary="10%").load()
    home = canary_folder(destination)
    assert (report.version, report.previous, report.canary, report.path) == (3, 2, 10, f"{home}/3")
    assert open_versions(destination).numbers() == [1, 2]
    assert content(home, 3) == b"canary" and content(destination, 3) is None
    assert push(new, destination, canary="10%").load().reason == "the canary is this very model already"
    assert push(two[1], destination).load().reason == "the newest version is this very model already"
    refused = push(changed(two[0], "next"), destination).load()
    assert not refused.pushed
    assert "as a canary with 10% of the requests; promote it or take it back first: tfopt promote" in refused.reason


@LOCAL
def test_a_promoted_canary_is_the_served_version(canary, destination):  # noqa: F811
    assert str(promote(destination, None, share=50).change).endswith("as a canary with 50% of the requests")
    assert open_versions(destination).numbers() == [1, 2]
    result = promote(destination, None, "it works")
    assert (result.change.version, result.served, result.change.reason) == (3, 3, "it works")
    assert promote(destination, None).change == result.change  # nothing is changed twice
    assert content(destination, 3) == b"canary" and content(canary_folder(destination), 3) is None
    assert withdraw(destination, None, "wrong").served == 2
    assert restore(destination, None, "").served == 3
    assert push(changed(canary, "next"), destination).load().version == 4


@LOCAL
def test_a_withdrawn_canary_is_not_pushed_again_and_restored_as_a_canary(canary, destination):  # noqa: F811
    result = withdraw(destination, None, "too slow")
    assert (result.change.version, result.served) == (3, 2)
    assert content(f"{destination}/withdrawn", 3) == b"canary" and content(canary_folder(destination), 3) is None
    assert "too slow; to push it again: tfopt restore" in push(canary, destination, canary="10%").load().reason
    restored = restore(destination, None, "it was the network").change
    assert (restored.share, is_canary([restored]), open_versions(destination).newest()) == (10, True, 2)
    withdraw(destination, None, "")
    push(changed(canary, "next"), destination)
    with pytest.raises(ComponentError, match=r"a canary next to version 2; version 4 is served now"):
        restore(destination, 3, "")


def test_the_first_version_of_a_destination_is_no_canary(model, tmp_path):  # noqa: F811
    report = push(model, tmp_path / "served", canary="10%").load()
    assert (report.version, report.canary) == (1, None)


@FOLDER
@pytest.mark.parametrize(
    ("command", "received"),
    [
        (lambda folder: withdraw(folder, 2, ""), "version 2 answers the other requests; version 3 was pushed"),
        (lambda folder: promote(folder, 2), "version 2 is no canary.*\n.*\n.*the canary is version 3"),
        (lambda folder: promote(folder, 9), "version 9 is no canary"),
        (lambda folder: restore(folder, 3, ""), "version 3 is not withdrawn"),
        (lambda folder: (withdraw(folder, 3, ""), promote(folder, None)), "no version is a canary.*\n.*\n.*--canary"),
        (lambda folder: main(["promote", folder, "--to", "0%", "--debug"]), "a whole percentage from 1% to 100%"),
        (lambda folder: main(["promote", folder, "--or-withdraw", "--debug"]), "--or-withdraw without --verdict"),
    ],
)
def test_refused(command, received, canary, destination):  # noqa: F811
    with pytest.raises(ComponentError, match=received):
        command(destination)
    assert open_versions(destination).numbers() == [1, 2]


@pytest.mark.parametrize("share", ["100%", "0%", "a tenth", "10.5%"])
def test_a_share_is_a_whole_percentage(share, model, tmp_path):  # noqa: F811
    with pytest.raises(ComponentError, match=r"percentage|less than 100%"):
        push(model, tmp_path / "served", canary=share)


@pytest.mark.parametrize(
    ("action", "resume", "destination"),
    [
        *[("push", "command", "folder"), ("promote", "push", "memory")],
        *[
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                *[("promote", "command", "folder"), ("promote", "command", "memory")],
                *[("push", "command", "memory"), ("withdraw", "command", "folder"), ("withdraw", "command", "memory")],
                *[("promote", "push", "folder"), ("promote", "command", "bucket"), ("promote", "push", "bucket")],
            )
        ],
    ],
    indirect=["destination"],
)
def test_a_killed_command_is_completed_by_the_next_one(action, resume, two, destination, monkeypatch):  # noqa: F811
    monkeypatch.setattr(withdrawals, "IN_PROGRESS", datetime.timedelta(0))  # the commands have ended
    new, next_one, killed = changed(two[0], "canary"), changed(two[0], "next"), 0
    while killed < 60:
        killed += 1
        folder = f"{destination}/{killed}/served"
        for each in two:
            add(open_versions(folder), each)
        if action != "push":
            add(open_versions(folder), new, share=10)
        commands = {"promote": partial(promote, folder, None), "withdraw": partial(withdraw, folder, 3, "wrong")}
        command = commands.get(action) or partial(add, open_versions(folder), new, share=10)
        try:
            with monkeypatch.context() as patch:
                fail_at(patch, killed)
                command()
        except KeyboardInterrupt:
            assert 2 in open_versions(folder).numbers()
            is_decided = action != "promote" or not is_canary(read_changes(folder)[3])
            if resume == "push":  # which waits for the decision about a canary
                assert add(open_versions(folder), next_one).version == (4 if is_decided else None)
            if resume == "command" or not is_decided:
                command()
        else:
            break
        place = {"push": canary_folder(folder), "promote": folder, "withdraw": f"{folder}/withdrawn"}[action]
        versions = [number for number in (3, 4) if read_changes(folder).get(number)]
        assert [content(place, number) for number in versions] == [b"canary"]
        later = [4] if resume == "push" and is_decided else []
        assert open_versions(folder).numbers() == ([1, 2, 3, *later] if action == "promote" else [1, 2])
        assert not later or content(folder, 4) == b"next"
        in_canaries = remote_files.list_names(canary_folder(folder))
        assert (
            action != "push" or ":" in folder or in_canaries == [str(versions[0]), "versions"]
        )  # no other one is left
    assert 3 < killed < 60


def manifest_of(file: Path) -> tuple[str, str, int | None]:
    """Return the version, the address and the share of the requests of an InferenceService."""
    content = yaml.safe_load(file.read_text())
    predictor = content["spec"]["predictor"]
    share = predictor.get("canaryTrafficPercent")
    return content["metadata"]["annotations"]["tfopt/version"], predictor["model"]["storageUri"], share


@FOLDER
def test_kserve_gets_the_share_and_a_folder_with_the_canary_alone(
    two,  # noqa: F811
    destination,  # noqa: F811
    manifests,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    # Eleven processes less; tests of registrations have them.
    monkeypatch.setattr(registration, "run_in_child", lambda function, *arguments, **_: function(*arguments))
    file = tmp_path / "digits.yaml"
    options = {"register": [f"kserve={file}"], "destination_uri": "pvc://claim/digits"}
    push(two[1], destination, **options)
    canaries = "pvc://claim/digits/canary/served here/"
    new = changed(two[0], "canary")
    report = push(new, destination, canary="10%", **options).load()
    assert report.registrations == {f"kserve={file}": f"version 3 in {file}, with 10% of the requests"}
    assert manifest_of(file) == ("3", canaries, 10)
    manifest = yaml.safe_load(file.read_text())
    assert accepted(manifests, manifest) == manifest
    withdraw(destination, 1, "an old one")
    assert manifest_of(file) == ("3", canaries, 10)
    pods = yaml.safe_load(file.read_text())["spec"]["predictor"]["annotations"]
    promote(destination, None, share=50)
    assert manifest_of(file) == ("3", canaries, 50)
    assert yaml.safe_load(file.read_text())["spec"]["predictor"]["annotations"] == pods  # KServe starts no new ones
    # Without the 0, the withdrawn canary would get all requests until new pods of version 2 are ready.
    withdraw(destination, None, "wrong")
    assert manifest_of(file) == ("2", "pvc://claim/digits/", 0)
    restore(destination, None, "")
    assert manifest_of(file) == ("3", canaries, 50)
    promote(destination, None)
    assert manifest_of(file) == ("3", "pvc://claim/digits/", None)
    withdraw(destination, None, "wrong")
    assert manifest_of(file) == ("2", "pvc://claim/digits/", None)


@FOLDER
def test_triton_gets_a_repository_with_the_canary_alone(two, destination):  # noqa: F811
    folder = Path(destination)
    for text, share in (("three", None), ("four", 10)):
        add(
            Versions(destination, "tf_serving"),
            changed(two[0], text),
            lambda name, _, text=text: f"{HEADER}{name} {text}",
            share,
        )
    home = folder / "canary" / folder.name
    assert (folder / "config.pbtxt").read_text() == f"{HEADER}{folder.name} three"
    assert (home / "config.pbtxt").read_text() == f"{HEADER}{folder.name} four"
    assert sorted(path.name for path in home.parent.iterdir()) == [folder.name]
    promote(destination, None)
    assert (folder / "config.pbtxt").read_text() == f"{HEADER}{folder.name} four"


@FOLDER
def test_the_link_and_the_manifest_follow_a_canary(two, destination):  # noqa: F811
    folder = Path(destination)
    for text, share in (("three", None), ("four", 10)):
        add(Versions(destination, "plain"), changed(two[0], text), share=share)
    verify_version(Path(canary_folder(destination), "4"))
    assert str((folder / "latest").readlink()) == "3"
    promote(destination, None)
    verify_version(folder / "4")
    assert str((folder / "latest").readlink()) == "4"


@LOCAL
def test_the_next_training_starts_from_the_promoted_model(trained, two, destination):  # noqa: F811
    push(changed(two[0], "canary"), destination, canary="10%", trained=trained)
    assert warm_start.load_model(destination) is None
    promote(destination, None, share=50)
    assert warm_start.load_model(destination) is None
    promote(destination, None)
    assert warm_start.load_model(destination).digest == trained.digest
    assert warm_start.load_model(canary_folder(destination)) is None


@FOLDER
@pytest.mark.parametrize("command", [promote, lambda folder, _: withdraw(folder, 3, "wrong")])
def test_the_model_of_a_canary_that_is_decided_about_during_its_push(
    command,
    trained,
    two,  # noqa: F811
    destination,  # noqa: F811
    monkeypatch,
):
    interrupt(monkeypatch, warm_start, "store_model", partial(command, destination, None))
    push(changed(two[0], "canary"), destination, canary="10%", trained=trained)
    assert (warm_start.load_model(destination) is not None) == (command is promote)
    assert warm_start.load_model(canary_folder(destination)) is None


def write_verdict(folder: Path, model: Path, *, blessed: bool, replayed: bool = True) -> str:  # noqa: F811
    """Write an infra_blessing of `replay` about a model."""
    fields = {"name": "new", "format": "tflite", "layout": "tf_serving", "server": "", "latency": None, "sweep": None}
    reason = "the answers agree" if blessed else "5% of the answers disagree"
    digest = Model(model).digest
    row = ServedModel(**fields, digest=digest, blessed=blessed, reason=reason, replayed=replayed)
    InfraBlessing(folder).write(ServingReport(blessed, reason, [row]))
    return str(folder)


@FOLDER
def test_a_verdict_decides(canary, destination, tmp_path, capsys):  # noqa: F811
    path = Path(canary_folder(destination), "3")
    other = write_verdict(tmp_path / "other", path, blessed=True, replayed=False)
    assert main(["promote", destination, "--verdict", other]) == 1
    assert "not of a replay" in capsys.readouterr().err
    about_another = write_verdict(tmp_path / "another", Path(destination, "2"), blessed=True)
    assert main(["promote", destination, "--verdict", about_another]) == 1
    assert "about another model\nexpected: the infra_blessing of a replay of version 3" in capsys.readouterr().err
    verdict = write_verdict(tmp_path / "verdict", path, blessed=False)
    assert main(["promote", destination, "--verdict", verdict]) == 3
    assert "5% of the answers disagree" in (error := capsys.readouterr().err) and "3 --reason '5% of" in error
    assert is_canary(read_changes(destination)[3])
    assert main(["promote", destination, "--verdict", verdict, "--or-withdraw", "--json"]) == 3
    printed = json.loads(capsys.readouterr().out)
    assert (printed["change"]["action"], printed["change"]["reason"]) == (
        "withdrawn",
        "replay: 5% of the answers disagree",
    )
    restore(destination, None, "")
    good = write_verdict(tmp_path / "good", canary, blessed=True)
    assert main(["promote", destination, "--verdict", good, "--or-withdraw"]) == 0
    assert "version 3 was promoted by" in capsys.readouterr().out
    assert open_versions(destination).newest() == 3


def test_later_runs_are_not_compared_with_a_canary(three_runs, capsys):  # noqa: F811
    change = new_change(3, "pushed", "", "", share=10, served=2)
    write_change(str(three_runs), change, {})
    assert [run.version for run in run_history.read_runs(three_runs, 9)] == [1, 2]
    main(["history", str(three_runs)])
    assert "as a canary with 10% of the requests" in " ".join(capsys.readouterr().out.split())
    write_change(str(three_runs), new_change(3, "promoted", "", ""), read_changes(str(three_runs)))
    assert [run.version for run in run_history.read_runs(three_runs, 9)] == [1, 2, 3]


@pytest.mark.nightly
def test_replays_of_real_models_decide_about_their_canaries(tmp_path, capsys):
    served, recording = tmp_path / "digits", tmp_path / "requests.jsonl"
    factor = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)
    rows = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    recording.write_text(
        "\n".join(json.dumps({"time": n / 1000, "instances": [row]}) for n, row in enumerate(rows.tolist()))
    )
    models = {"served": factor, "close": factor + 1e-5, "other": -factor}
    for number, (name, each) in enumerate(models.items(), 1):
        folder = tmp_path / name
        folder.mkdir()
        new = product(folder, each)
        report = push(new, served, layout="triton", canary="10%").load()
        assert (report.version, report.canary) == (number, 10 if number > 1 else None)
        if number == 1:
            continue
        home = Path(canary_folder(str(served)))
        with runtimes.load(Model(new)) as runtime:
            assert check_config(home / "config.pbtxt", "onnx", runtime.inputs, runtime.outputs, 1, None) == []
        command = ["replay", "--model", str(home / str(number)), "--served", str(served / str(number - 1))]
        command += ["--recording", str(recording), "--goals", "disagreement max 2%", "--seconds", "0.3"]
        command += ["--replayed", str(folder / "replayed"), "--infra-blessing", str(folder / "verdict")]
        assert main(command) == 0
        promotion = ["promote", str(served), "--verdict", str(folder / "verdict"), "--or-withdraw"]
        assert main(promotion) == (0 if name == "close" else 3)
    assert Versions(str(served), "triton").numbers() == [1, 2]
    assert "of 400 answers disagree" in read_changes(str(served))[2][-1].reason
    assert "disagree" in read_changes(str(served))[3][-1].reason
    assert main(["history", str(served)]) == 0

"""Test the provenance of pushed versions, and ``tfopt verify``: each link that is removed or changed is named."""

import json
import shutil
from pathlib import Path

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

from tests.components.test_push_model import bless
from tests.components.test_push_model_manifest import write_keys
from tests.components.test_select_model_history import LITE
from tests.reports import TRAINED, make_models, write_reports
from tfopt.artifacts import Artifact, Examples, Model, PythonModule
from tfopt.cli.main import main
from tfopt.components.push_model.component import push_model
from tfopt.components.push_model.withdraw import restore, withdraw
from tfopt.components.select_model.component import select_model
from tfopt.declaration.library import find
from tfopt.execution.card_writer import write_step_card
from tfopt.serving.version_manifest import make_manifest

IMAGE = f"registry.example/tfopt-tf:1@sha256:{'1a' * 32}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A folder with data, module, decision, keys, and a signed version of a model that was made of them."""
    folder = tmp_path_factory.mktemp("whole")
    write_keys(folder / "keys")
    (folder / "examples").mkdir()
    (folder / "examples/data").write_text("rows")
    (folder / "model.py").write_text("def build_model(): ...\n")
    models = make_models([TRAINED, LITE], folder / "models")
    materials = {name: Artifact(str(folder / path)).digest for name, path in MATERIALS.items()}
    for model in models:
        card = json.loads((model / "model_card.json").read_text())
        train = {"name": "trained", "digest": "0" * 64, "component": "train", "parameters": {"epochs": 3}}
        train |= {"materials": materials, "inputs": list(materials), "image": IMAGE}
        step = {"materials": {"model": "0" * 64, **materials}} if card["lineage"] else train
        card |= {**step, "lineage": [train] if card["lineage"] else [], "inputs": list(materials)}
        (model / "model_card.json").write_text(json.dumps(card))
    evaluation, benchmark = write_reports([TRAINED, LITE], models, folder, samples=False)
    places = [folder / name for name in ("selected", "decision", "blessing")]
    select_model(models[0], models[1:], evaluation, benchmark, *places)
    push(folder, signing_key=str(folder / "keys/key.pem"))
    return folder


EXAMPLES = "examples of train"
MATERIALS = {"examples": "examples", "module": "model.py"}


def push(folder: Path, **parameters) -> None:
    decision = {} if parameters.pop("without_decision", False) else {"decision": folder / "decision"}
    target = folder / f"pushed {len(list(folder.glob('pushed*')))}"
    destination = str(folder / "served")
    push_model(folder / "selected", folder / "blessing", target, destination=destination, **decision, **parameters)


@pytest.fixture
def folder(whole, tmp_path) -> Path:
    return shutil.copytree(whole, tmp_path / "a copy")


def verify(capsys, version: Path, *words: str, code: int = 0) -> dict[str, str]:
    """Return the status of each link."""
    assert main(["verify", str(version), *words, "--json"]) == code
    return {link["name"]: link["status"] for link in json.loads(capsys.readouterr().out)["links"]}


def key(folder: Path) -> list[str]:
    return ["--public-key", str(folder / "keys/public.pem")]


def test_the_provenance_is_a_statement_of_in_toto_with_a_predicate_of_slsa(folder):
    content = json.loads((folder / "served/versions/1.provenance.json").read_text())
    statement = json_format.ParseDict(content, statement_pb2.Statement())  # raises for unknown keys
    Statement.copy_from_pb(statement).validate()
    provenance = json_format.ParseDict(content["predicate"], provenance_pb2.Provenance())
    assert [subject.name for subject in statement.subject] == ["1/assets.extra/model_card.json", "1/model.tflite"]
    named = {item.name: item for item in provenance.build_definition.resolved_dependencies if item.name}
    assert {"pushed_model", "model", "decision", "examples", "module", "image"} == named.keys()
    assert named["image"].digest == {"sha256": "1a" * 32}
    assert named["pushed_model"].digest == {"tfoptFolder": Model(folder / "selected").digest}
    assert "pkg:pypi/tensorflow@2.21.0" in [item.uri for item in provenance.build_definition.resolved_dependencies]
    assert provenance.run_details.metadata.finished_on.seconds > 1.7e9
    assert "epochs" in str(provenance.build_definition.external_parameters)


def test_a_whole_chain_has_no_missing_link(folder, capsys):
    statuses = verify(capsys, folder / "served/1")
    assert statuses.pop("signature") == "not checked"
    assert {name: status for name, status in statuses.items() if status == "verified"}.keys() == {
        "files", "provenance", "pushed_model", "decision",
    }  # fmt: skip
    words = [f"--material={name}={folder / path}" for name, path in MATERIALS.items()]
    words.append(f"--material=decision={folder / 'decision'}")
    statuses = verify(capsys, folder / "served/1", *key(folder), *words)
    others = [statuses.pop("image of train"), statuses.pop("model of export_tflite")]
    assert (others, set(statuses.values())) == (["recorded"] * 2, {"verified"})
    assert main(["verify", str(folder / "served/1")]) == 0
    assert "no link is missing" in capsys.readouterr().out


def edit_provenance(folder: Path, change) -> None:
    file = folder / "served/versions/1.provenance.json"
    content = json.loads(file.read_text())
    change(content["predicate"]["buildDefinition"]["resolvedDependencies"], content)
    file.write_text(json.dumps(content))


def only_history(folder: Path) -> Path:
    (file,) = (folder / "served/history").glob("*.json")
    return file


def edit_history(folder: Path, **values: object) -> None:
    content = json.loads(only_history(folder).read_text())
    only_history(folder).write_text(json.dumps(content | values))


@pytest.mark.parametrize(
    ("damage", "link", "status"),
    [
        (lambda folder: (folder / "served/1/model.tflite").write_text("x"), "files", "wrong"),
        (lambda folder: (folder / "served/versions/1.sha256").unlink(), "files", "missing"),
        (lambda folder: (folder / "served/versions/1.sig").unlink(), "signature", "missing"),
        (lambda folder: (folder / "served/versions/1.provenance.json").unlink(), "signature", "wrong"),
        (lambda folder: (folder / "served/versions/1.provenance.json").unlink(), "provenance", "missing"),
        (lambda folder: (folder / "served/versions/1.provenance.json").write_text("{}"), "provenance", "wrong"),
        (lambda folder: edit_provenance(folder, lambda items, _: items.clear()), "signature", "wrong"),
        (lambda folder: edit_provenance(folder, lambda items, _: items.clear()), "provenance", "wrong"),
        (lambda folder: edit_provenance(folder, lambda items, _: items.clear()), "decision", "missing"),
        (lambda folder: edit_provenance(folder, lambda items, _: items.clear()), "pushed_model", "missing"),
        (lambda folder: edit_provenance(folder, lambda _, all: all["subject"].pop()), "provenance", "wrong"),
        (lambda folder: edit_provenance(folder, lambda _, all: all.update(_type="x")), "provenance", "wrong"),
        (lambda folder: edit_provenance(folder, lambda items, _: items[2].pop("digest")), EXAMPLES, "missing"),
        (lambda folder: only_history(folder).unlink(), "decision", "missing"),
        (lambda folder: edit_history(folder, version=2), "decision", "wrong"),
        (lambda folder: edit_history(folder, decision="other"), "decision", "missing"),
    ],
)  # fmt: skip
def test_what_is_removed_or_changed_is_named(folder, damage, link, status, capsys):
    damage(folder)
    assert verify(capsys, folder / "served/1", *key(folder), code=5)[link] == status


def test_another_material_or_key_does_not_fit(folder, capsys):
    (folder / "model.py").write_text("def build_model(): 1\n")
    words = [f"--material=module={folder / 'model.py'}", f"--material=examples={folder / 'examples'}"]
    statuses = verify(capsys, folder / "served/1", *words, code=5)
    assert (statuses["module of train"], statuses["examples of train"]) == ("wrong", "verified")
    (folder / "decision/decision.json").write_text("{}")
    statuses = verify(capsys, folder / "served/1", f"--material=decision={folder / 'decision'}", code=5)
    assert statuses["decision"] == "wrong"
    other = str(write_keys(folder / "other keys")[1])
    assert verify(capsys, folder / "served/1", "--public-key", other, code=5)["signature"] == "wrong"


def test_a_signed_version_under_another_number_does_not_fit(folder, capsys):
    served = folder / "served"
    shutil.copytree(served / "1", served / "2")
    for file in list((served / "versions").glob("1.*")):
        text = file.read_bytes() if file.suffix == ".sig" else file.read_text().replace("1/", "2/").encode()
        file.with_name(f"2{file.name[1:]}").write_bytes(text)
    statuses = verify(capsys, served / "2", *key(folder), code=5)
    assert (statuses["files"], statuses["signature"]) == ("verified", "wrong")
    assert (statuses["provenance"], statuses["decision"]) == ("wrong", "wrong")


def test_a_changed_file_with_a_new_manifest_is_not_what_the_provenance_is_about(folder, capsys):
    (folder / "served/1/model.tflite").write_text("other")
    (folder / "served/versions/1.sha256").write_text(make_manifest(folder / "served/1"))
    statuses = verify(capsys, folder / "served/1", code=5)
    assert (statuses["files"], statuses["provenance"]) == ("verified", "wrong")


def test_a_version_without_decision_signature_and_materials_says_so(folder, capsys):
    (model,) = make_models([TRAINED], folder / "bare")
    bless(model, folder / "bare blessing")
    push_model(model, folder / "bare blessing", folder / "bare pushed", destination=str(folder / "served"))
    statuses = verify(capsys, folder / "served/2", code=5)
    assert (statuses["decision"], statuses["examples"], statuses["signature"]) == ("missing", "missing", "not checked")
    assert verify(capsys, folder / "served/2", *key(folder), code=5)["signature"] == "missing"


def test_the_chain_follows_a_withdrawn_version(folder, capsys):
    (model,) = make_models([TRAINED], folder / "bare")
    bless(model, folder / "bare blessing")
    push_model(model, folder / "bare blessing", folder / "bare pushed", destination=str(folder / "served"))
    withdraw(str(folder / "served"), 1, "wrong labels")
    assert (folder / "served/withdrawn/versions/1.provenance.json").is_file()
    restore(str(folder / "served"), 1, "")
    assert verify(capsys, folder / "served/1", *key(folder))["provenance"] == "verified"
    push(folder, signing_key=str(folder / "keys/key.pem"), keep=1)
    assert not (folder / "served/versions/1.provenance.json").exists()


def test_a_version_in_a_bucket_is_verified(folder, bucket, capsys):
    target = folder / "in a bucket"
    places = [folder / "selected", folder / "blessing", target]
    signing_key = str(folder / "keys/key.pem")
    push_model(*places, decision=folder / "decision", destination=f"{bucket}/served", signing_key=signing_key)
    statuses = verify(capsys, f"{bucket}/served/1", *key(folder))
    assert (statuses["signature"], statuses["provenance"], statuses["decision"]) == ("verified",) * 3


@pytest.mark.parametrize(
    ("words", "received"),
    [
        (["nowhere/1"], "nowhere/1: no such folder"),
        (["served"], "served with verify"),
        (["served/1", "--material", "module"], "--material module"),
        (["served/1", "--material", "modul=x"], "--material modul"),
    ],
)
def test_wrong_arguments_are_refused(folder, monkeypatch, capsys, words, received):
    monkeypatch.chdir(folder)
    assert main(["verify", *words]) == 1
    assert received in capsys.readouterr().err


def test_steps_record_what_they_got_and_in_which_image(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("TFOPT_IMAGE", IMAGE)
    made = make_models([TRAINED, LITE], tmp_path)
    for model in made:
        (model / "model_card.json").unlink()
    inputs = {"examples": Examples(str(whole / "examples")), "module": PythonModule(str(whole / "model.py"))}
    write_step_card(find("train"), Model(made[0]), inputs, {})
    card = Model(made[0]).card
    assert card.materials == {name: Artifact(str(whole / path)).digest for name, path in MATERIALS.items()}
    write_step_card(find("export_tflite"), Model(made[1]), {"model": Model(made[0]), **inputs}, {})
    exported = Model(made[1]).card
    assert exported.materials == {"model": Model(made[0]).digest, **card.materials}
    assert (exported.lineage[0].materials, exported.lineage[0].image) == (card.materials, IMAGE)

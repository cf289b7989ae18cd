"""Test the manifest and the signature next to a pushed version, and `validate_serving` with ``verify``."""

import hashlib
import json
import shutil
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import tests.object_store  # noqa: F401  (registers the schemes)
from tests.components.test_push_model import changed, model, push  # noqa: F401  (model is a fixture)
from tfopt.components.validate_serving.component import validate_serving
from tfopt.errors import ComponentError, MachineError
from tfopt.serving.version_manifest import PASSWORD, verify_version, write_description
from tfopt.storage import remote_files


def write_keys(folder: Path, curve=None, password: bytes | None = None) -> tuple[Path, Path]:
    """Write a private and a public key."""
    folder.mkdir(exist_ok=True)
    key = rsa.generate_private_key(65537, 2048) if curve == "rsa" else ec.generate_private_key(ec.SECP256R1())
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, encryption))
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "public.pem").write_bytes(public)
    return folder / "key.pem", folder / "public.pem"


@pytest.fixture
def keys(tmp_path) -> tuple[Path, Path]:
    return write_keys(tmp_path / "my keys")


@pytest.fixture
def served(model, keys, tmp_path) -> Path:  # noqa: F811
    push(model, tmp_path / "served here, größer", signing_key=str(keys[0]))
    return tmp_path / "served here, größer" / "1"


def test_sha256sum_reads_the_manifest(served):
    check = ["sha256sum", "--check", "--strict", "versions/1.sha256"]
    done = subprocess.run(check, cwd=served.parent, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["1/assets.extra/model_card.json: OK", "1/model.tflite: OK"]


def test_the_signature_is_that_of_openssf_model_signing(served, keys, tmp_path):
    words = ["verify", "key", str(served), "--signature", str(served.parent / "versions/1.sig")]
    verify = [sys.executable, "-m", "model_signing", *words, "--public_key"]
    assert subprocess.run([*verify, str(keys[1])], capture_output=True).returncode == 0
    assert subprocess.run([*verify, str(write_keys(tmp_path / "other")[1])], capture_output=True).returncode == 1
    bundle = json.loads((served.parent / "versions/1.sig").read_text())
    [subject] = json.loads(b64decode(bundle["dsseEnvelope"]["payload"]))["subject"]
    assert subject["name"] == "1"


def test_a_whole_version_is_verified_by_its_folder_a_file_in_it_or_a_link(served, keys, tmp_path):
    (tmp_path / "link").symlink_to(served)
    for path in (served, served / "model.tflite", tmp_path / "link"):
        verify_version(path, str(keys[1]))


@pytest.mark.parametrize(
    ("damage", "received"),
    [
        (lambda served: (served / "model.tflite").write_bytes(b"other"), "1/model.tflite was changed"),
        (lambda served: (served / "assets.extra/model_card.json").unlink(), "model_card.json is missing"),
        (lambda served: (served / ".gitignore").touch(), "1/.gitignore was added"),
        (lambda served: (served / "link").symlink_to("/etc/passwd"), "link is a link"),
        (lambda served: shutil.rmtree(served.parent / "versions"), "no versions/1.sha256"),
        (lambda served: (served.parent / "versions/1.sha256").write_text("x"), "the manifest of version 1: 'x'"),
        (lambda served: (served.parent / "versions/1.sig").unlink(), "1 is not signed"),
        (lambda served: (served.parent / "versions/1.sig").write_text("{"), "1: the signature does not fit"),
    ],
)
def test_a_version_that_is_not_what_was_pushed_is_refused(damage, received, served, keys, tmp_path):
    damage(served)
    with pytest.raises(ComponentError) as caught:
        validate_serving(served / "model.tflite", tmp_path / "result", public_key=str(keys[1]))
    assert received in caught.value.received
    assert not (tmp_path / "result").exists()


def test_a_signature_of_another_content_or_key_is_refused(served, keys, model, tmp_path):  # noqa: F811
    other = write_keys(tmp_path / "other")
    with pytest.raises(ComponentError, match=r"the signature does not fit: .*[kK]ey mismatch"):
        verify_version(served, str(other[1]))
    push(changed(model, "new"), served.parent, signing_key=str(keys[0]))
    shutil.copy(served.parent / "versions/1.sig", served.parent / "versions/2.sig")
    with pytest.raises(ComponentError, match=r"the signature does not fit: .*[mM]ismatch.*model\.tflite"):
        verify_version(served.with_name("2"), str(keys[1]))


def test_a_changed_manifest_does_not_hide_a_change_from_the_signature(served, keys):
    (served / "model.tflite").write_bytes(b"other")
    digests = subprocess.run(
        "sha256sum $(find 1 -type f | sort) > versions/1.sha256", shell=True, cwd=served.parent, check=True
    )
    assert digests.returncode == 0
    verify_version(served)
    with pytest.raises(ComponentError, match="the signature does not fit"):
        verify_version(served, str(keys[1]))


def test_validate_serving_verifies_a_version_and_then_loads_it(digits_lite, keys, tmp_path):
    path = push(digits_lite, tmp_path / "served", signing_key=str(keys[0])).read()["path"]
    result = validate_serving(path, tmp_path / "result", verify=True, public_key=str(keys[1]), requests=2, seconds=0.1)
    assert result["infra_blessing"].read()["blessed"]


def test_names_with_line_separators_are_verified(tmp_path):
    version = tmp_path / "1"
    version.mkdir()
    for name in ("a\u2028b", "a\nb", "a\\b", "a\x85b"):
        (version / name).write_text(name)
    write_description(version, str(tmp_path), None)
    verify_version(version)
    check = ["sha256sum", "--check", "--strict", "versions/1.sha256"]
    subprocess.run(check, cwd=tmp_path, capture_output=True, check=True)


def test_a_missing_extra_is_named_before_anything_is_pushed(model, keys, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "model_signing.signing", None)
    with pytest.raises(MachineError, match=r"pip install 'tfopt\[signing\]'"):
        push(model, tmp_path / "served", signing_key=str(keys[0]))
    assert not (tmp_path / "served").exists()


def test_verify_needs_a_pushed_version(digits_lite, tmp_path):
    with pytest.raises(ComponentError, match="a version that push_model wrote"):
        validate_serving(digits_lite, tmp_path / "result", verify=True)


def test_a_push_that_was_killed_before_its_manifest_is_completed(served, model, keys):  # noqa: F811
    shutil.rmtree(served.parent / "versions")
    again = push(model, served.parent, signing_key=str(keys[0])).read()
    assert again["reason"] == "the newest version is this very model already"
    verify_version(served, str(keys[1]))


def test_a_push_of_the_same_model_with_another_key_renews_the_signature(served, model, keys, tmp_path):  # noqa: F811
    signature = (served.parent / "versions" / "1.sig").read_bytes()
    push(model, served.parent)
    push(model, served.parent, signing_key=str(keys[0]))
    assert (served.parent / "versions" / "1.sig").read_bytes() == signature
    key, public = write_keys(tmp_path / "new keys")
    push(model, served.parent, signing_key=str(key))
    verify_version(served, str(public))
    with pytest.raises(ComponentError, match="the signature does not fit"):
        verify_version(served, str(keys[1]))


def test_a_version_that_was_changed_is_not_signed_again(served, model, keys, tmp_path):  # noqa: F811
    (served / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"added")  # not part of the model's digest
    with pytest.raises(ComponentError, match="tf_serving_warmup_requests was added"):
        push(model, served.parent, signing_key=str(write_keys(tmp_path / "new keys")[0]))
    with pytest.raises(ComponentError, match="was added"):
        verify_version(served, str(keys[1]))


@pytest.mark.parametrize("file", ["model_card.json", "tf_serving_warmup_requests"])
def test_a_version_without_a_manifest_that_somebody_changed_is_not_signed(served, model, keys, file):  # noqa: F811
    shutil.rmtree(served.parent / "versions")
    (served / "assets.extra" / file).write_text("changed")  # not part of the model's digest
    with pytest.raises(ComponentError, match=f"{file} was (changed|added)") as caught:
        push(model, served.parent, signing_key=str(keys[0]))
    assert "withdraw it" in caught.value.fix
    assert not (served.parent / "versions" / "1.sig").exists()


def test_a_version_of_another_destination_is_reported(served, keys, caplog):
    verify_version(served, str(keys[1]))
    assert "signed as a version of" not in caplog.text
    other = served.parent.with_name("other")
    shutil.copytree(served.parent, other)
    verify_version(other / "1", str(keys[1]))
    assert "is signed as a version of served here, größer" in caplog.text


def test_a_version_in_a_store_is_signed_later_and_with_another_key(model, keys, bucket, tmp_path):  # noqa: F811
    push(model, f"{bucket}/served")
    for key, public in (keys, write_keys(tmp_path / "new keys")):
        path = push(model, f"{bucket}/served", signing_key=str(key)).read()["path"]
        assert path.endswith("/1")
        verify_version(Path(remote_files.local_copy(path)), str(public))


def test_removed_versions_leave_no_manifest(served, model, keys):  # noqa: F811
    push(changed(model, "new"), served.parent, keep=1)
    assert sorted(path.name for path in (served.parent / "versions").iterdir()) == [
        "2.provenance.json",
        "2.pushed.json",
        "2.sha256",
    ]


def test_a_key_with_a_password_signs(model, tmp_path, monkeypatch):  # noqa: F811
    key, public = write_keys(tmp_path / "keys", password=b"secret")
    with pytest.raises(ComponentError, match=r"[pP]assword"):
        push(model, tmp_path / "served", signing_key=str(key))
    monkeypatch.setenv(PASSWORD, "secret")
    push(model, tmp_path / "served", signing_key=str(key))
    verify_version(tmp_path / "served/1", str(public))


@pytest.mark.parametrize("kind", ["missing", "rsa", "public", "text"])
def test_a_key_that_cannot_sign_is_refused_before_anything_is_pushed(kind, model, keys, tmp_path):  # noqa: F811
    key = {"missing": tmp_path / "no.pem", "public": keys[1], "text": Path(__file__)}.get(kind)
    key = key or write_keys(tmp_path / "rsa", "rsa")[0]
    with pytest.raises(ComponentError) as caught:
        push(model, tmp_path / "served", signing_key=str(key))
    assert caught.value.received.startswith(f"signing_key={key}: ")
    assert "a private key" in caught.value.expected
    assert not (tmp_path / "served").exists()


def test_a_version_in_a_store_is_signed_and_verified(model, keys, bucket, tmp_path):  # noqa: F811
    path = push(model, f"{bucket}/served", signing_key=str(keys[0])).read()["path"]
    verify_version(Path(remote_files.local_copy(path)), str(keys[1]))
    remote_files.write_file(f"{path}/model.tflite", b"other")
    with pytest.raises(ComponentError, match=r"served/1: 1/model.tflite was changed"):
        verify_version(Path(remote_files.local_copy(path)))


@pytest.mark.parametrize("name", [".git/config", ".gitignore", ".hidden/file", "assets/.new", ".gitattributes"])
def test_a_hidden_file_that_is_added_is_refused(name, served, keys):
    (served / name).parent.mkdir(exist_ok=True)
    (served / name).write_text("added")
    for public_key in (None, str(keys[1])):
        with pytest.raises(ComponentError, match=f"1/{name} was added"):
            verify_version(served, public_key)
    manifest = served.parent / "versions" / "1.sha256"
    digest = hashlib.sha256(b"added").hexdigest()
    manifest.write_text(manifest.read_text() + f"{digest}  1/{name}\n")
    with pytest.raises(ComponentError, match=r"another manifest|does not fit"):
        verify_version(served, str(keys[1]))


def test_a_manifest_with_a_file_twice_is_refused(served):
    manifest = served.parent / "versions" / "1.sha256"
    lines = manifest.read_text().splitlines(keepends=True)
    for repeated in (lines[0], "0" * 64 + lines[0][64:]):
        for content in ([*lines, repeated], [repeated, *lines]):
            manifest.write_text("".join(content))
            with pytest.raises(ComponentError, match="again") as error:
                verify_version(served)
            assert error.value.expected == "one line of sha256sum for each file of this version"

"""Manifests of pushed versions: the digests of their files, as sha256sum writes them, and OpenSSF signatures of them.

Next to version 8 of a destination are ``versions/8.sha256`` and, if a key was given, ``versions/8.sig``, which
``sha256sum --check versions/8.sha256`` and ``model_signing verify`` read too, and a statement of its number, time and
manifest, ``versions/8.signed.json``, with its signature. ``versions/8.provenance.json`` says what the version was made
of (`tfopt.serving.provenance`); the signed statement has its digest. No model server takes them for versions.
"""

import datetime
import hashlib
import importlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts.base import check_regular
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError, MachineError
from tfopt.serving.provenance import make_statement
from tfopt.storage import remote_files
from tfopt.value_types import JsonObject

FOLDER = "versions"
MANIFEST, SIGNATURE = ".sha256", ".sig"
STATEMENT, STATEMENT_SIGNATURE = ".signed.json", ".signed.sig"
PROVENANCE = ".provenance.json"
DESCRIPTIONS = (MANIFEST, SIGNATURE, STATEMENT, STATEMENT_SIGNATURE, PROVENANCE)
COVERED = "provenance_sha256"  # key of the statement; signatures of earlier releases have none
PASSWORD = "TFOPT_SIGNING_PASSWORD"  # the name of the environment variable with the password of a key

log = logging.getLogger(__name__)


def check_key(key: str | None) -> None:
    """Raise ComponentError if a private key cannot sign, or the package that signs is not installed."""
    if key:
        with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
            Path(folder, "1").mkdir()
            Path(folder, "1", "file").write_text("a test")
            _sign(Path(folder, "1"), key)


def write_description(
    version: Path,
    destination: str,
    signing_key: str | None,
    predicate: JsonObject | None = None,
    pushed: Path | None = None,
) -> None:
    """Write manifest, provenance and signature of a version into its destination, unless they are there, with this key.

    ``pushed`` is the folder with the files of this push, if the version is of an earlier one: somebody may have changed
    it since.

    Raises:
        ComponentError: If a version to sign is not what this push writes, or to sign again, what its manifest says.
    """
    name = remote_files.join(destination, f"{FOLDER}/{version.name}")
    if remote_files.read_file(f"{name}{MANIFEST}") is None:
        if predicate:
            statement = make_statement(digests_of(make_manifest(version), version.name), predicate)
            text = json.dumps(statement, indent=1, ensure_ascii=False) + "\n"
            remote_files.write_file(f"{name}{PROVENANCE}", text.encode())
        if signing_key:
            _check_pushed(version, destination, pushed)
            _write_signatures(version, name, signing_key)
        # The last one, so that all are there.
        remote_files.write_file(f"{name}{MANIFEST}", make_manifest(version).encode())
    elif signing_key:
        before, signature = remote_files.read_file(f"{name}{SIGNATURE}"), _sign(version, signing_key)
        is_signed = before and _key_of(before) == _key_of(signature)
        if not is_signed or remote_files.read_file(f"{name}{STATEMENT_SIGNATURE}") is None:
            verify_version(version)
            _check_pushed(version, destination, pushed)
            _write_signatures(version, name, signing_key)


def _check_pushed(version: Path, destination: str, pushed: Path | None) -> None:
    if pushed:
        expected = digests_of(make_manifest(pushed, version.name), version.name)
        fix = f"withdraw it, then push again: tfopt withdraw {destination} {version.name} --allow"
        named = remote_files.join(destination, version.name)
        received = digests_of(make_manifest(version), version.name)
        _compare(expected, received, named, "the files of this push, to sign them", fix)


def _write_signatures(version: Path, name: str, signing_key: str) -> None:
    """Sign the files, and a statement of number, time, manifest and provenance: they could be copied to another one."""
    manifest = hashlib.sha256(make_manifest(version).encode()).hexdigest()
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    facts = {"version": version.name, "model": _model_name(name), "time": time, "manifest_sha256": manifest}
    if (provenance := remote_files.read_file(f"{name}{PROVENANCE}")) is not None:
        facts[COVERED] = hashlib.sha256(provenance).hexdigest()
    statement = json.dumps(facts, indent=1) + "\n"
    signature = sign_text(statement, f"{version.name}{STATEMENT}", signing_key)
    remote_files.write_file(f"{name}{SIGNATURE}", _sign(version, signing_key))
    remote_files.write_file(f"{name}{STATEMENT}", statement.encode())
    remote_files.write_file(f"{name}{STATEMENT_SIGNATURE}", signature)


def verify_version(path: Path, public_key: str | None = None) -> None:
    """Compare a pushed version with its manifest, and with its signature if there is a file with a public key (PEM).

    The path is the folder of the version, a file or folder in it, or a link to it; also the local copy of an address.

    Raises:
        ComponentError: If a file is missing, changed or added, there is no manifest, or the signature is not of this
            key and content.
    """
    folder, version = locate(path)
    name = version.name
    manifest = remote_files.read_file(f"{folder}/{FOLDER}/{name}{MANIFEST}")
    if manifest is None:
        received = f"{folder}: no {FOLDER}/{name}{MANIFEST}"
        fix = "push the model again: versions of older releases, and pushes that were killed, have none"
        raise ComponentError(received, "the manifest that push_model writes next to each version", fix)
    _compare(
        digests_of(manifest.decode(errors="replace"), name),
        digests_of(make_manifest(version), name),
        f"{folder}/{name}",
    )
    signature = remote_files.read_file(f"{folder}/{FOLDER}/{name}{SIGNATURE}")
    if public_key:
        _verify_signature(version, f"{folder}/{name}", signature, public_key)
        _verify_statement(f"{folder}/{FOLDER}/{name}", name, manifest, public_key)
    elif signature:
        log.info("%s/%s is signed; pass public_key to check by whom", folder, name)


def make_manifest(version: Path, name: str = "") -> str:
    """Return a line for each file of a version, which may have another name: SHA-256 and path below the destination."""
    check_regular(version, "a version that contains its files")
    files = sorted(path for path in version.rglob("*") if path.is_symlink() or not path.is_dir())
    return "".join(_line(file, f"{name or version.name}/{file.relative_to(version).as_posix()}") for file in files)


def _line(file: Path, name: str) -> str:
    if file.is_symlink():
        raise ComponentError(f"{file} is a link", "a version that contains its files", "push the model again")
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")  # as sha256sum does
    mark = "\\" if escaped != name else ""
    return f"{mark}{digest}  {escaped}\n"


def digests_of(manifest: str, version: str) -> dict[str, str]:
    """Return the digest of each file by its name in the manifest; raise ComponentError for other lines."""
    digests = {}
    for line in manifest.removesuffix("\n").split("\n"):  # splitlines would cut names at U+2028 and others
        digest, separator, name = line.partition("  ")
        is_line = separator and len(digest.lstrip("\\")) == 64 and name.startswith(f"{version}/")
        if not is_line or name in digests:
            received = f"the manifest of version {version}: {line[:100]!r}{' again' if is_line else ''}"
            expected = "one line of sha256sum for each file of this version"
            raise ComponentError(received, expected, "push the model again")
        digests[name] = digest
    return digests


def _compare(
    expected: Mapping[str, str],
    received: Mapping[str, str],
    version: str,
    expectation: str = "the files that push_model wrote, as its manifest lists them",
    fix: str = "serve another version, and push the model again",
) -> None:
    differences = [f"{name} is missing" for name in expected.keys() - received.keys()]
    differences += [f"{name} was added" for name in received.keys() - expected.keys()]
    both = expected.keys() & received.keys()
    differences += [f"{name} was changed" for name in both if expected[name] != received[name]]
    if differences:
        raise ComponentError(f"{version}: {'; '.join(sorted(differences)[:5])}", expectation, fix)


def locate(path: Path) -> tuple[str, Path]:
    """Return the destination, or its address, and the local folder of the version that a path is, or is in."""
    local = Path(os.path.realpath(path))
    address = remote_files.address_of(str(path)) or str(local)
    for _ in range(3):
        folder, _, name = address.rstrip("/").rpartition("/")
        if name.isascii() and name.isdecimal():
            return folder, local
        address, local = folder, local.parent
    received = f"{path} with verify"
    expected = "a version that push_model wrote: DESTINATION/NUMBER, or a file in it"
    raise ComponentError(received, expected, "pass the version, or leave out verify for a model that was not pushed")


def _sign(version: Path, key: str) -> bytes:
    signing = _library("signing")
    password = os.environ.get(PASSWORD)
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        file = Path(folder, "signature")
        try:
            signer = signing.Config().use_elliptic_key_signer(
                private_key=Path(key), password=password.encode() if password else None
            )
        except (OSError, ValueError, TypeError, AttributeError) as error:
            received = f"signing_key={key}: {first_line(error)}"
            fix = f"make one: openssl ecparam -name prime256v1 -genkey -noout -out key.pem; {PASSWORD} has its password"
            raise ComponentError(received, "a private key on the curve P-256, P-384 or P-521, in PEM", fix) from error
        signer.sign(version, file)
        return file.read_bytes()


def sign_text(text: str, name: str, key: str) -> bytes:
    """Return a signature of a text, as that of a file with a name; raise ComponentError if the key cannot sign."""
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        file = Path(folder, name)
        file.write_text(text, encoding="utf-8")
        return _sign(file, key)


def verify_text(text: str, name: str, signature: bytes | None, public_key: str, source: str = "") -> None:
    """Raise ComponentError, which names the ``source``, unless a text is signed, as a file with a name, with a key."""
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        file = Path(folder, name)
        file.write_text(text, encoding="utf-8")
        _verify_signature(file, source or name, signature, public_key)


def _key_of(signature: bytes) -> Any:
    """Return what names the public key in a signature; None if it is damaged."""
    try:
        return json.loads(signature)["verificationMaterial"]["publicKey"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _verify_signature(version: Path, name: str, signature: bytes | None, public_key: str) -> None:
    if signature is None:
        expected = f"a signature for the key {public_key}"
        raise ComponentError(f"{name} is not signed", expected, "push it with signing_key, or leave out public_key")
    verifying = _library("verifying")
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        file = Path(folder, "signature")
        file.write_bytes(signature)
        try:
            verifier = verifying.Config().use_elliptic_key_verifier(public_key=Path(public_key))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            expected = "a public key on the curve P-256, P-384 or P-521, in PEM"
            fix = "write it: openssl ec -in key.pem -pubout -out public.pem"
            raise ComponentError(f"public_key={public_key}: {first_line(error)}", expected, fix) from error
        try:
            verifier.verify(version, file)
        except Exception as error:  # the library raises errors of its own, of its parsers, and of cryptography
            received = f"{name}: the signature does not fit: {first_line(error)[:300]}"
            fix = "check the key; if it is right, serve another version: this one is not what was signed"
            raise ComponentError(received, f"a signature of these files for the key {public_key}", fix) from error


def _verify_statement(description: str, name: str, manifest: bytes, public_key: str) -> None:
    """Check that the key signed this manifest as that of this version of this model."""
    content = remote_files.read_file(f"{description}{STATEMENT}")
    if content is None:
        received = f"{description}{STATEMENT}: no such file"
        fix = "push the model again with signing_key: signatures of earlier releases are of the files alone"
        raise ComponentError(received, "a signed statement of number, time and manifest", fix)
    signature = remote_files.read_file(f"{description}{STATEMENT_SIGNATURE}")
    text = content.decode(errors="replace")
    verify_text(text, f"{name}{STATEMENT}", signature, public_key, f"{description}{STATEMENT}")
    statement = json.loads(content)
    if (statement["version"], statement["manifest_sha256"]) != (name, hashlib.sha256(manifest).hexdigest()):
        received = f"version {name} is signed as {statement['version']} of {statement['time']}, or has another manifest"
        raise ComponentError(received, "the version that was signed", "serve another version: somebody copied this one")
    provenance = remote_files.read_file(f"{description}{PROVENANCE}") or b""
    if statement.get(COVERED, "") not in ("", hashlib.sha256(provenance).hexdigest()):
        received = f"{description}{PROVENANCE}: not the one that was signed"
        raise ComponentError(received, "the signed provenance", "restore the file, or push the model again")
    model = statement.get("model", "")  # earlier releases did not sign it
    if model not in ("", _model_name(description)):  # no error: a volume can be mounted under another name
        log.warning("%s is signed as a version of %s: check that it is a copy of that", description, model)


def _model_name(description: str) -> str:
    """Return the name of the destination, from the path of a description of a version: servers name models by it."""
    folder = description.rpartition("/")[0].rpartition("/")[0]
    return (folder if remote_files.is_remote(folder) else os.path.realpath(folder)).rpartition("/")[2]


def _library(module: str) -> Any:
    try:
        return importlib.import_module(f"model_signing.{module}")
    except ModuleNotFoundError as error:
        raise MachineError(first_line(error), "the package that signs", "pip install 'tfopt[signing]'") from error

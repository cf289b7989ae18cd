"""Walk the chain from a pushed version to what it was made of, and report what is missing or does not fit."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from tfopt.artifacts import CARD, Artifact
from tfopt.artifacts.model_card import ModelCard
from tfopt.errors import ComponentError
from tfopt.model_store.run_history import read_all_runs
from tfopt.model_store.withdrawals import destination_of
from tfopt.serving.provenance import DECISION, FOLDER_DIGEST, MODEL, Dependency, Provenance, read_statement
from tfopt.serving.version_manifest import (
    COVERED,
    FOLDER,
    MANIFEST,
    PROVENANCE,
    SIGNATURE,
    STATEMENT,
    digests_of,
    locate,
    make_manifest,
    verify_version,
)
from tfopt.storage import remote_files

Status = Literal["verified", "recorded", "not checked", "missing", "wrong"]
EXAMPLES = "examples"  # in the names of inputs with data


@dataclass(frozen=True)
class Link:
    """One link of the chain."""

    name: str
    status: Status  # ``recorded`` if its digest is known, and there is nothing to compare it with
    text: str


@dataclass(frozen=True)
class VersionChain:
    """The content of ``tfopt verify --json``."""

    schema_version: ClassVar[int] = 1
    version: str  # its folder or address
    links: list[Link]

    @property
    def broken(self) -> list[Link]:
        """Return the links that are missing or wrong."""
        return [link for link in self.links if link.status in ("missing", "wrong")]


def verify_chain(version: str, public_key: str | None, materials: Mapping[str, str]) -> VersionChain:
    """Check each link of a version, which is a folder ``DESTINATION/NUMBER`` or its address.

    Args:
        version: The version.
        public_key: A file with the public key that it must be signed with.
        materials: Paths of what it was made of, by name: their digests are compared with those of the provenance.

    Raises:
        ComponentError: If there is no such version, or its provenance has no material of a name.
    """
    local = Path(remote_files.local_copy(version))
    if not local.is_dir():
        raise ComponentError(f"{version}: no such folder", "DESTINATION/NUMBER of a pushed version", "check the path")
    destination, folder = locate(local)
    described = remote_files.join(destination, f"{FOLDER}/{folder.name}")
    links = [_files(folder, described), _signature(folder, described, public_key)]
    provenance, link = _read_provenance(described, folder)
    links.append(link)
    named = [item for item in provenance.dependencies if item.name] if provenance else []
    if unknown := sorted(materials.keys() - {item.name for item in named}):
        names = ", ".join(dict.fromkeys(item.name for item in named)) or "none: it has no provenance"
        raise ComponentError(f"--material {unknown[0]}", f"one of {names}", "pass what this version was made of")
    if provenance:
        links += _model_links(named, folder)
        links += _decision_links(named, destination_of(destination), int(folder.name), materials)
        if not any(EXAMPLES in item.name for item in named):
            links.append(Link(EXAMPLES, "missing", "no step of the model has data"))
        links += [_material(item, materials) for item in named if item.name not in (MODEL, DECISION)]
    return VersionChain(version, links)


def _check(name: str, check: Callable[[], None], text: str) -> Link:
    try:
        check()
    except ComponentError as error:
        return Link(name, "wrong", error.received)
    return Link(name, "verified", text)


def _files(folder: Path, described: str) -> Link:
    if remote_files.read_file(f"{described}{MANIFEST}") is None:
        return Link("files", "missing", f"no {FOLDER}/{folder.name}{MANIFEST}")
    return _check("files", lambda: verify_version(folder), f"as in {FOLDER}/{folder.name}{MANIFEST}")


def _signature(folder: Path, described: str, public_key: str | None) -> Link:
    if remote_files.read_file(f"{described}{SIGNATURE}") is None:
        return Link("signature", "missing" if public_key else "not checked", "it is not signed")
    if not public_key:
        return Link("signature", "not checked", "pass --public-key")
    return _check("signature", lambda: verify_version(folder, public_key), f"of the key {public_key}")


def _read_provenance(described: str, folder: Path) -> tuple[Provenance | None, Link]:
    """Return the provenance, and whether it is about the files of the version and covered by the signature."""
    content = remote_files.read_file(f"{described}{PROVENANCE}")
    if content is None:
        text = f"no {FOLDER}/{folder.name}{PROVENANCE}: an earlier release pushed it, or somebody removed the file"
        return None, Link("provenance", "missing", text)
    try:
        provenance = read_statement(content, f"{FOLDER}/{folder.name}{PROVENANCE}")
        digests = digests_of(make_manifest(folder), folder.name)
    except ComponentError as error:
        return None, Link("provenance", "wrong", error.received)
    digests = {file: digest.removeprefix("\\") for file, digest in digests.items()}
    if provenance.subjects != digests:
        return provenance, Link("provenance", "wrong", "it is about other files")
    signed = remote_files.read_file(f"{described}{STATEMENT}")
    if signed is not None and json.loads(signed).get(COVERED) != hashlib.sha256(content).hexdigest():
        return provenance, Link("provenance", "wrong", "the signed statement is not about it")
    return provenance, Link("provenance", "verified", f"of {len(digests)} files")


def _model_links(named: Sequence[Dependency], folder: Path) -> Iterator[Link]:
    """Yield the link to the model, whose digest is also in the model card among the files."""
    digest = next((item.digest.get(FOLDER_DIGEST) for item in named if item.name == MODEL), None)
    cards = sorted(folder.rglob(CARD))
    if digest is None:
        yield Link(MODEL, "missing", "the provenance names no model")
    elif not cards:
        yield Link(MODEL, "recorded", digest)
    else:
        card = ModelCard.read(cards[0].parent)
        is_equal = card.digest in (None, digest)
        yield Link(MODEL, "verified" if is_equal else "wrong", digest if is_equal else f"the card is of {card.digest}")


def _decision_links(
    named: Sequence[Dependency], destination: str, version: int, materials: Mapping[str, str]
) -> Iterator[Link]:
    """Yield the link to the decision, which the run history has, too, and that it selected this model."""
    decision = next((item for item in named if item.name == DECISION), None)
    if decision is None:
        yield Link(DECISION, "missing", "it was pushed without one")
        return
    digest, notes = decision.digest.get("sha256", ""), decision.annotations
    model = next((item.digest.get(FOLDER_DIGEST) for item in named if item.name == MODEL), None)
    if model not in notes.values():
        yield Link(DECISION, "wrong", f"{digest} is not about the model {model}")
    elif DECISION in materials:
        file = Path(remote_files.local_copy(materials[DECISION]))
        file = file / "decision.json" if file.is_dir() else file
        is_equal = file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest
        yield Link(DECISION, "verified" if is_equal else "wrong", digest if is_equal else f"{file} is another one")
    else:
        run = next((run for run in read_all_runs(destination) if run.decision == digest), None)
        if run is None:
            yield Link(DECISION, "missing", f"{digest} is not in the run history")
        elif run.version != version or run.winner.digest != notes.get("winner"):
            yield Link(DECISION, "wrong", f"the run history has {digest} with version {run.version} and another model")
        else:
            yield Link(DECISION, "verified", f"{digest}, run of {run.time[:10]}: {run.reason}")


def _material(item: Dependency, materials: Mapping[str, str]) -> Link:
    """Return the link to something that a step got, compared with a path if one is given."""
    step = f" of {item.annotations['step']}" if item.annotations.get("step") else ""
    digest = item.digest.get(FOLDER_DIGEST) or item.digest.get("sha256") or ""
    name = f"{item.name}{step}"
    if not digest:
        return Link(name, "missing", f"{item.uri} without a digest" if item.uri else "its digest was not recorded")
    if item.name not in materials or FOLDER_DIGEST not in item.digest:
        return Link(name, "recorded", f"{item.uri} {digest}".lstrip())
    path = materials[item.name]
    is_equal = Artifact(remote_files.local_copy(path)).digest == digest
    return Link(
        name, "verified" if is_equal else "wrong", f"{path}: {digest}" if is_equal else f"{path} is another one"
    )

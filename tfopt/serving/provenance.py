"""Provenance of a pushed version, ``versions/8.provenance.json``: an in-toto statement with a predicate of SLSA.

https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1. Its subjects are the files of the manifest. What it
was made of is listed by digest: SHA-256 of files, and for artifacts of several files tfopt's digest of a folder.
"""

import datetime
import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import tfopt
from tfopt.artifacts import Decision, Model, Recipe
from tfopt.artifacts.model_card import LineageStep
from tfopt.errors import ComponentError
from tfopt.reports import report_schema
from tfopt.value_types import JsonObject

STATEMENT_TYPE, PREDICATE_TYPE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
BUILD_TYPE, BUILDER = "urn:tfopt:push_model:1", "urn:tfopt"
FOLDER_DIGEST = "tfoptFolder"  # SHA-256 of the lines NAME NUL SHA-256 of all files
MODEL, DECISION = "pushed_model", "decision"  # names of dependencies; inputs of steps have other ones


def describe_push(model: Model, decision: Decision | None, recipe: Recipe | None) -> JsonObject:
    """Return the predicate about the push of a model."""
    steps = [*model.card.lineage, model.card.step]
    dependencies = [_material(MODEL, model.digest, name=model.name, format=model.format)]
    if decision:
        content, file = decision.load(), (decision.path / Decision.file).read_bytes()
        notes = {"selected": content.selected_digest, "winner": content.chosen.digest, "parent": content.parent.digest}
        digest = {"sha256": hashlib.sha256(file).hexdigest()}
        dependencies.append({"name": DECISION, "digest": digest, "annotations": notes})
    if recipe:
        dependencies.append(_material("recipe", recipe.digest))
    dependencies += _step_materials(steps)
    versions = model.card.versions
    dependencies += [{"uri": f"pkg:pypi/{package}@{version}"} for package, version in sorted(versions.items())]
    made = [
        {"component": step.component, "model": step.name, "parameters": step.parameters, "inputs": step.inputs}
        for step in steps
        if step.component
    ]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"steps": made},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": BUILDER, "version": {"tfopt": tfopt.__version__, "python": platform.python_version()}},
            "metadata": {"finishedOn": now},
        },
    }


def make_statement(digests: Mapping[str, str], predicate: JsonObject) -> JsonObject:
    """Return the statement about files with these SHA-256 digests."""
    subjects = [{"name": name, "digest": {"sha256": digest.removeprefix("\\")}} for name, digest in digests.items()]
    return {"_type": STATEMENT_TYPE, "subject": subjects, "predicateType": PREDICATE_TYPE, "predicate": predicate}


@dataclass(frozen=True)
class Dependency:
    """An entry of ``resolvedDependencies``."""

    schema_version: ClassVar[int] = 1
    name: str = ""  # empty for packages
    uri: str = ""
    digest: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """The content of a statement."""

    subjects: dict[str, str]  # SHA-256 of each file
    dependencies: list[Dependency]


def read_statement(content: bytes, source: str) -> Provenance:
    """Read a statement; raise ComponentError, which names the ``source``, if it is damaged, or of another kind."""
    statement: Any = report_schema.decode(content, source)
    try:
        kinds = statement["_type"], statement["predicateType"]
        subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
        items = list(statement["predicate"]["buildDefinition"]["resolvedDependencies"])
    except (KeyError, TypeError) as error:
        raise ComponentError(f"{source}: no {error}", "a provenance that push_model wrote", "push again") from error
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise ComponentError(f"{source}: {kinds}", f"{STATEMENT_TYPE} with {PREDICATE_TYPE}", "push the model again")
    return Provenance(subjects, [report_schema.parse(Dependency, item, source) for item in items])


def _step_materials(steps: Sequence[LineageStep]) -> Iterator[JsonObject]:
    """Yield what the steps got, each content once: data, modules, models, images; and inputs without a digest."""
    seen: set[tuple[str, str]] = set()
    for step in steps:
        for name, digest in step.materials.items():
            if (name, digest) not in seen:
                seen.add((name, digest))
                yield _material(name, digest, step=step.component)
        for name in (step.inputs or []) if step.component else []:
            if name not in step.materials and (name, "") not in seen:
                seen.add((name, ""))
                yield {"name": name, "annotations": {"step": step.component, "digest": "not recorded"}}
        if step.image and ("image", step.image) not in seen:
            seen.add(("image", step.image))
            reference, _, digest = step.image.partition("@sha256:")
            uri = f"docker://{reference}"
            image: JsonObject = {"name": "image", "uri": uri, "annotations": {"step": step.component}}
            yield image | ({"digest": {"sha256": digest}} if digest else {})


def _material(name: str, digest: str, /, **notes: str | None) -> JsonObject:
    material: JsonObject = {"name": name, "digest": {FOLDER_DIGEST: digest}}
    return material | ({"annotations": notes} if notes else {})

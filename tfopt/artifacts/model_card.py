"""The model card, ``model_card.json`` in a model artifact: how a component made the model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypedDict

from tfopt.artifacts.base import CARD
from tfopt.reports import report_schema
from tfopt.reports.report_schema import VERSION_KEY, parse
from tfopt.value_types import JsonObject


@dataclass(frozen=True)
class LineageStep:
    """A step that made a model."""

    name: str | None = None
    digest: str | None = None
    component: str | None = None  # name of the component; None if no component made it
    parameters: JsonObject | None = None
    recovery: dict[str, Any] | None = None  # the second round of fine-tuning, if there was one
    # names of the inputs that the component got; None if the card is older than this key
    inputs: list[str] | None = None
    # what it left in the weights that a later step could undo; None if there is none, or the card is older
    effect: str | None = None
    materials: dict[str, str] = field(default_factory=dict)  # digests of the files of each input
    image: str | None = None  # the container image that it ran in; None outside of Kubeflow


@dataclass(frozen=True)
class CalibrationExamples:
    """The examples that a model was calibrated on."""

    split: str | None = None
    records: list[str] | None = None  # their identifiers


@dataclass(frozen=True)
class LearnedNames:
    """Names in the examples that a model was trained on; a model made from another has those of the other."""

    label: str | None = None
    classes: list[str] | None = None  # names of the classes, by index
    packed: dict[str, list[str]] | None = None  # for each packed feature, the names of its columns


@dataclass(frozen=True)
class TrainedOn:
    """A sample of the training records of a model, and of the models that it was made from or learned from."""

    label: str | None = None
    level: int = 0  # number of bits that are 0 in each hash: one of ``2 ** level`` records is in the sample
    features: str | None = None  # hashes of the records without their labels: 64-bit little-endian integers in Base64


@dataclass(frozen=True)
class Origin:
    """Examples or a model that a model was made with, by the digest of its files."""

    digest: str | None = None


@dataclass(frozen=True)
class FineTuned:
    """Fine-tuning, with its second round if there was one."""

    recovery: dict[str, Any] | None = None


IMAGE = "TFOPT_IMAGE"  # the environment variable with the container image of a step on Kubeflow
TRAINED_ON = "trained_on"  # the key of `TrainedOn` in the card

ParityFacts = dict[str, float | None]  # the fields of `tfopt.measurement.parity.Parity`, and ``relative_error``


class Verification(TypedDict, total=False):
    """The entry ``verified``: how a model was compared with its parent, and the parity of its outputs."""

    run: bool
    reason: str
    inputs: str
    records: int
    also_calibrated_on: int
    tolerance: float | None
    not_compared: Mapping[str, str]
    outputs: Mapping[str, ParityFacts]
    warnings: list[str]
    surgery: Mapping[str, float]


@dataclass(frozen=True)
class ModelCard:
    """The content of ``model_card.json``; empty if tfopt did not make the model."""

    schema_version: ClassVar[int] = 1
    name: str | None = None  # name of the model in tables
    format: str | None = None
    digest: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)  # bytes of the deployed files: ``raw`` and ``gzipped``
    component: str | None = None  # name of the component that made it
    parameters: JsonObject | None = None
    inputs: list[str] | None = None  # names of the inputs that it got; None if the card is older than this key
    effect: str | None = None  # what that component left in the weights that a later step could undo, or None
    materials: dict[str, str] = field(default_factory=dict)  # digests of the files of each input
    image: str | None = None  # the container image that it ran in; None outside of Kubeflow
    lineage: list[LineageStep] = field(default_factory=list)  # the steps that made its ancestors, first to last
    data: Origin | None = None  # the examples that the component read
    learned: LearnedNames | None = None  # names of classes and of packed columns that the model learned to number
    trained_on: TrainedOn | None = None
    # versions of tfopt and of the libraries that affect the model
    versions: dict[str, str] = field(default_factory=dict)
    # what limited the processes that ran models in the step: ``landlock`` and its version, or ``none`` if the system
    # cannot; None if the models were trusted, or a module of the user ran
    isolation: str | None = None
    calibration: CalibrationExamples | None = None  # the examples that the model was calibrated on
    fine_tuned: FineTuned | None = None
    teacher: Origin | None = None  # the model that it was trained with
    metrics: JsonObject | None = None  # the metrics of its training
    # ``estimate`` if `select_model` compared measured values with its goals, so that nothing is proven; else None
    confidence: str | None = None
    # the whole content, with what the component reported: ``report``, ``verified``, ``metrics`` and others
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the card of an artifact folder; an empty one if there is none.

        Raises:
            ComponentError: If the card has another version, or its content has wrong types.
        """
        file = folder / CARD
        if not file.is_file():
            return cls()
        content = report_schema.read(file)
        lineage = content.get("lineage") or []
        if isinstance(lineage, list):
            content["lineage"] = [step for step in lineage if step]  # older cards have null in it
        card = parse(cls, content, str(file))
        content.pop(VERSION_KEY, None)
        return replace(card, facts=content)

    @property
    def step(self) -> LineageStep:
        """Return the step that made the model, as an entry of a lineage."""
        recovery = self.fine_tuned.recovery if self.fine_tuned else None
        return LineageStep(
            *(self.name, self.digest, self.component, self.parameters, recovery, self.inputs, self.effect),
            materials=self.materials,
            image=self.image,
        )


def write_card(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the card of an artifact folder."""
    versioned = {VERSION_KEY: ModelCard.schema_version, **content}
    (folder / CARD).write_text(json.dumps(versioned, indent=1, ensure_ascii=False, allow_nan=False) + "\n")

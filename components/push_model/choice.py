"""Choose what to push: the model, its fallback, or nothing."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from tfopt.artifacts import CARD, Blessing, InfraBlessing, Model
from tfopt.errors import ComponentError
from tfopt.reports.serving_report import ServedModel
from tfopt.serving.layouts import version_files


@dataclass(frozen=True)
class Choice:
    """The model to push, and the reason.

    Attributes:
        model: The model; None to push nothing.
        reason: The reason of the blessing; for the fallback or None, why the requested model is not pushed.
        fallback: True if it is the fallback.
    """

    model: Model | None
    reason: str
    fallback: bool = False


def choose(model: Model, blessing: Blessing, infra: InfraBlessing | None, fallback: Model | None) -> Choice:
    """Choose by the blessing and the serving test of these models.

    Raises:
        ComponentError: If they are about other models.
    """
    permission = blessing.load()
    blessed_digest = permission.model_digest
    if blessed_digest not in (None, model.digest):
        raise ComponentError(
            f"{blessing.uri} blesses the model {str(blessed_digest)[:12]}, but {model.uri} is {model.digest[:12]}",
            "the blessing of this very model",
            "pass selected and blessing of the same select_model step",
        )
    tests = {row.digest: row for row in infra.load().models} if infra else {}
    if infra and model.digest not in tests:
        digests = ", ".join(digest[:12] for digest in tests)
        raise ComponentError(
            f"{infra.uri} is about {digests}, but {model.uri} is {model.digest[:12]}",
            "the infra_blessing of this very model",
            "pass the model to validate_serving that is passed here",
        )
    test = tests.get(model.digest)
    if permission.blessed and (test is None or test.blessed):
        return Choice(model, permission.reason)
    refusal = f"it cannot be served: {test.reason}" if permission.blessed and test else permission.reason
    choice = _choose_fallback(model, fallback, tests, f"not blessed: {refusal}")
    if choice.fallback and permission.parent_blessed is False:
        return Choice(None, f"not blessed: {refusal}; its parent does not meet the thresholds either")
    return choice


def _choose_fallback(model: Model, fallback: Model | None, tests: Mapping[str, ServedModel], refusal: str) -> Choice:
    if fallback is None or _deployed_files(fallback) == _deployed_files(model):  # the refused model is the parent
        return Choice(None, refusal)
    if tests:
        test = tests.get(fallback.digest)
        if test is None:
            return Choice(None, f"{refusal}; {fallback.name} has no serving test")
        if not test.blessed:
            return Choice(None, f"{refusal}; {fallback.name} cannot be served either: {test.reason}")
    return Choice(fallback, f"{fallback.name} instead of {model.name}, which is {refusal}", fallback=True)


def _deployed_files(model: Model) -> dict[str, str]:
    """Return the digests of the deployed files: equal for a bare model and the artifact made from it."""
    files = version_files(model, "plain")
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if name != CARD}

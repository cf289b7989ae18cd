"""What is pushed: the model, its parent in its place, or nothing."""

import hashlib
from dataclasses import dataclass

from tfopt.artifacts import CARD, Blessing, InfraBlessing, Model
from tfopt.errors import ComponentError
from tfopt.serving.layouts import version_files


@dataclass(frozen=True)
class Choice:
    """What is pushed, and why.

    Attributes:
        model: None when nothing is.
        reason: What the blessing says of it; where it is not the model that was asked for, why not that one.
        fallback: Whether it is the parent in place of a model that is not blessed.
    """

    model: Model | None
    reason: str
    fallback: bool = False


def choose(model: Model, blessing: Blessing, infra: InfraBlessing | None, fallback: Model | None) -> Choice:
    """Judge by what was said of these very models.

    Raises:
        ComponentError: When it was said of others.
    """
    said = blessing.read()
    if said["model_digest"] != model.digest:
        raise ComponentError(
            f"{blessing.uri} blesses the model {said['model_digest'][:12]}, but {model.uri} is {model.digest[:12]}",
            "the blessing of this very model",
            "pass selected and blessing of the same select_model step",
        )
    tried = {row["digest"]: row for row in infra.read()["models"]} if infra else None
    if infra and tried is not None and model.digest not in tried:
        about = ", ".join(digest[:12] for digest in tried)
        raise ComponentError(
            f"{infra.uri} is about {about}, but {model.uri} is {model.digest[:12]}",
            "the infra_blessing of this very model",
            "pass the model to validate_serving that is passed here",
        )
    served = tried[model.digest] if tried else {"blessed": True}
    if said["blessed"] and served["blessed"]:
        return Choice(model, said["reason"])
    refused = said["reason"] if not said["blessed"] else f"it cannot be served: {served['reason']}"
    choice = _instead(model, fallback, tried, f"not blessed: {refused}")
    if choice.fallback and not said.get("parent_blessed", True):
        return Choice(None, f"not blessed: {refused}; nor does its parent meet the thresholds")
    return choice


def _instead(model: Model, fallback: Model | None, tried: dict[str, dict[str, str]] | None, refused: str) -> Choice:
    if fallback is None or _content(fallback) == _content(model):  # the parent itself is what is not blessed
        return Choice(None, refused)
    row = tried.get(fallback.digest) if tried is not None else {"blessed": True}
    if not row:
        return Choice(None, f"{refused}; whether {fallback.name} can be served was not tried")
    if not row["blessed"]:
        return Choice(None, f"{refused}; nor can {fallback.name} be served: {row['reason']}")
    return Choice(fallback, f"{fallback.name} in place of {model.name}, which is {refused}", fallback=True)


def _content(model: Model) -> dict[str, str]:
    """What is deployed, wherever the files lie: a bare model and the artifact made of it are the same."""
    files = version_files(model, "plain")
    return {place: hashlib.sha256(file.read_bytes()).hexdigest() for place, file in files.items() if place != CARD}

"""Put the chosen model where it is served from, whole or not at all, and only when it is blessed."""

import logging
from typing import Annotated, Literal

from tfopt.artifacts import Blessing, Model, Pushed
from tfopt.component import Between, Input, Output, component
from tfopt.errors import ComponentError
from tfopt.remote import is_remote


@component(image="tf", cached=False)
def push_model(
    model: Input[Model],
    blessing: Input[Blessing],
    pushed: Output[Pushed],
    *,
    destination: str,
    layout: Literal["tf_serving", "triton", "plain"] = "tf_serving",
    keep: Annotated[int, Between(1)] | None = None,
    max_batch_size: Annotated[int, Between(1)] = 64,
) -> None:
    """Push a blessed model as the next numbered version of a folder.

    The version appears whole, by one rename, under the next free number; what was pushed before stays. Several pushes
    at once get a number each. A model that is already the newest version is not pushed again, and one that is not
    blessed is not pushed at all: the step then succeeds and says so, as TFX's Pusher does.

    Args:
        model: What is pushed: its deployed files only, in the format that was measured.
        blessing: The blessing of this very model.
        pushed: ``pushed.json``: whether it was pushed, where to, as which version, and why not.
        destination: The folder that holds the versions; made when it does not exist.
        layout: With ``tf_serving`` a version folder is what TensorFlow Serving loads: a SavedModel, or
            ``model.tflite``. With ``triton`` the destination is a model in a Triton repository: a version folder holds
            ``model.savedmodel/`` or ``model.onnx``, and ``config.pbtxt`` beside the versions is written from the
            signature unless there is one that somebody else wrote. With ``plain`` a version folder holds
            ``saved_model/``, ``model.tflite``, ``model.onnx`` or ``model.keras`` beside the model card, and the link
            ``latest`` leads to the newest version.
        keep: How many of the newest versions stay; all of them when not given.
        max_batch_size: For ``triton``: up to how many requests are run at once, where the batch is open.

    Raises:
        ComponentError: When the blessing is for another model, the layout cannot hold the format, or the destination
            cannot be written. What is served is then as it was.
    """
    from tfopt.components.push_model.versions import Versions

    if is_remote(destination):
        raise ComponentError(
            f"push_model: destination={destination}",
            "a folder on this machine, mounted if need be: an object store has no rename that shows a version whole",
            "mount the store or volume and pass its path",
        )
    said = blessing.read()
    if said["model_digest"] != model.digest:
        raise ComponentError(
            f"{blessing.uri} blesses the model {said['model_digest'][:12]}, but {model.uri} is {model.digest[:12]}",
            "the blessing of this very model",
            "pass selected and blessing of the same select_model step",
        )
    versions = Versions(destination, layout)
    facts = versions.unpushed(said["reason"]) if not said["blessed"] else versions.push(model, keep, max_batch_size)
    pushed.write(facts | {"digest": model.digest})
    logging.getLogger("tfopt").info("%s: %s", facts["path"] or "not pushed", facts["reason"])
    pushed.metadata |= {
        "pushed": int(facts["pushed"]),
        "pushed_destination": facts["path"] or "",
        "pushed_version": str(facts["version"] or ""),
        "reason": facts["reason"],
    }

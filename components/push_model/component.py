"""Put the chosen model where it is served from, whole or not at all, and only when it is blessed."""

import logging
from typing import Annotated, Literal

from tfopt.artifacts import Blessing, Decision, Examples, InfraBlessing, KerasModel, Model, Pushed, Recipe
from tfopt.artifacts.storage import is_remote
from tfopt.component import Between, Input, Output, component
from tfopt.errors import ComponentError


@component(image="tf", cache="never")
def push_model(
    model: Input[Model],
    blessing: Input[Blessing],
    pushed: Output[Pushed],
    infra_blessing: Input[InfraBlessing] | None = None,
    fallback: Input[Model] | None = None,
    examples: Input[Examples] | None = None,
    decision: Input[Decision] | None = None,
    trained: Input[KerasModel] | None = None,
    recipe: Input[Recipe] | None = None,
    *,
    destination: str,
    layout: Literal["auto", "tf_serving", "triton", "plain"] = "auto",
    keep: Annotated[int, Between(1)] | None = None,
    warm_up_requests: Annotated[int, Between(0, 1000)] = 16,
    max_batch_size: Annotated[int, Between(1)] = 64,
    instances: Annotated[int, Between(1)] = 1,
    device: Literal["auto", "cpu", "gpu"] = "auto",
    queue_delay_us: Annotated[int, Between(0)] = 0,
) -> None:
    """Push a blessed model as the next numbered version of a folder.

    The version appears whole, by one rename, under the next free number; what was pushed before stays. Several pushes
    at once get a number each. A model that is already the newest version is not pushed again, and one that is not
    blessed is not pushed at all: the step then succeeds and says so, as TFX's Pusher does. With a ``fallback``, the
    parent is pushed in its place, by the same rules, and so once only.

    Args:
        model: What is pushed: its deployed files only, in the format that was measured.
        blessing: The blessing of this very model.
        pushed: ``pushed.json``: whether it was pushed, where to, as which version, and why, or why not; and the
            variables that its server must have in its environment, where `configure_runtime` gave it such.
        infra_blessing: What `validate_serving` said of this very model, and of the fallback.
        fallback: The parent, pushed when the model is not blessed and is not the parent itself.
        examples: Where warm-up requests for a SavedModel in TensorFlow Serving are recorded from, and the labels of a
            plain LiteRT file are known from.
        decision: Of this run. Its numbers are kept in ``history/`` beside the versions, pushed or not, and once each,
            for `select_model` to hold later runs against.
        trained: What this run trained. When it, or what was made of it, is served, it is kept whole in ``trained/``
            beside the versions, in the place of the one before: where `train` finds a start (``last``).
        recipe: What `tune_recipe` found in this run. It is kept in ``recipe/`` beside the versions, in the place of the
            one before, with whether its choice is what is served: where `tune_recipe` finds it next time (``last``).
        destination: The folder that holds the versions; made when it does not exist.
        layout: With ``auto`` each format goes where its usual server finds it: a SavedModel and LiteRT as
            ``tf_serving``, a TensorRT engine as ``triton``, the others as ``plain``, which is also what OpenVINO Model
            Server and, without a configuration, Triton load. With ``tf_serving`` a version folder is what TensorFlow
            Serving loads: a SavedModel, or ``model.tflite``. With ``triton`` the destination is a model in a Triton
            repository: a version folder holds ``model.savedmodel/``, ``model.onnx``, ``model.xml`` with ``model.bin``,
            or ``model.plan``, and ``config.pbtxt`` beside the versions is written from the signature unless there is
            one that somebody else wrote; the server needs the backend of the format, which images of Triton differ in
            (newer ones lack TensorFlow's). With ``plain`` a version folder holds ``saved_model/`` or the model's file
            beside the model card, and the link ``latest`` leads to the newest version. Beside ``model.tflite`` lie
            ``metadata.json`` (names, types, shapes, scales) and, when the examples name their classes, ``labels.txt``.
        keep: How many of the newest versions stay; all of them when not given.
        warm_up_requests: How many requests of one example each are recorded at most, where examples are given.
        max_batch_size: For ``triton``: up to how many requests are run at once, where the batch is open; never more
            than a TensorRT engine was built for.
        instances: For ``triton``: how many copies of the model run side by side, on each device.
        device: For ``triton``: where they run; ``auto`` is a GPU where there is one.
        queue_delay_us: For ``triton``: how long a request may wait for others to be batched with, in microseconds.

    Raises:
        ComponentError: When a blessing is for another model, the layout cannot hold the format, the examples do not fit
            the model, or the destination cannot be written. What is served is then as it was.
    """
    from tfopt.components.push_model.choice import choose
    from tfopt.components.push_model.push import check_places, keep_recipe, keep_start, kept, push
    from tfopt.runtimes import environment
    from tfopt.serving.triton_config import Scheduling

    if is_remote(destination):
        raise ComponentError(
            f"push_model: destination={destination}",
            "a folder on this machine, mounted if need be: an object store has no rename that shows a version whole",
            "mount the store or volume and pass its path",
        )
    choice = choose(model, blessing, infra_blessing, fallback)
    scheduling = Scheduling(max_batch_size, instances, device, queue_delay_us)
    check_places(destination, history=bool(decision), trained=bool(trained and choice.model), recipe=bool(recipe))
    facts = push(choice, model, destination, layout, keep, examples, warm_up_requests, scheduling)
    if decision:
        facts["history"] = kept(decision, facts)
    if trained and facts["path"]:
        facts["trained"] = keep_start(trained, facts)
    if recipe:
        facts["recipe"] = keep_recipe(recipe, facts)
    pushed.write(facts)
    log = logging.getLogger("tfopt")
    log.info("%s: %s", facts["path"] or "not pushed", facts["reason"])
    variables = environment.format_variables(facts["environment"])
    if facts["path"] and variables:
        log.info("it was measured with %s: start its server so", variables)
        pushed.metadata["environment"] = variables
    pushed.metadata |= {
        "pushed": int(facts["pushed"]),
        "pushed_destination": facts["path"] or "",
        "pushed_version": str(facts["version"] or ""),
        "fallback": int(facts["fallback"]),
        "reason": facts["reason"],
        "blessing": facts["blessing"],
    }

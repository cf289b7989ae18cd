"""The door of `validate_serving`: what it promises."""

import logging
from typing import Annotated, Literal

from tfopt.artifacts import Examples, InfraBlessing, Model
from tfopt.component import Between, Input, Output, component


@component(image="tf", cache="local", cpu=2)
def validate_serving(
    model: Input[Model],
    infra_blessing: Output[InfraBlessing],
    examples: Input[Examples] | None = None,
    fallback: Input[Model] | None = None,
    *,
    layout: Literal["auto", "tf_serving", "triton", "plain"] = "auto",
    destination: str | None = None,
    requests: Annotated[int, Between(1, 1000)] = 16,
    batch_size: Annotated[int, Between(1)] = 1,
    concurrency: Annotated[int, Between(1)] = 4,
    sweep: Annotated[int, Between(2)] | None = None,
    seconds: Annotated[float, Between(0)] = 1.0,
    max_p99_ms: Annotated[float, Between(0)] | None = None,
    max_seconds: Annotated[float, Between(1)] = 300.0,
    tolerance: Annotated[float, Between(0, 1)] = 1e-4,
    max_batch_size: Annotated[int, Between(1)] = 64,
) -> None:
    """Load a model as its server will, ask it, and say whether it may be pushed.

    The model is laid out as `push_model` would push it, loaded in a process of its own by what its server loads it
    with, and asked: TensorFlow Serving's model server where the machine has `tensorflow_model_server`, Triton where it
    has `tritonserver` with the backend of the format (each with its client, ``tensorflow-serving-api`` or
    ``tritonclient[grpc]``), else the same loader through official APIs: for a SavedModel a session with the tag serve,
    as both run it, for other formats LiteRT, ONNX Runtime, OpenVINO or TensorRT. Names, types and shapes must be those
    of the signature, values finite and those that the model gives outside of the layout; warm-up requests are replayed
    and a Triton configuration is held against the signature.

    A model that fails is not blessed, with the reason; the step then succeeds. TFX's Pusher takes the blessing too.

    Args:
        model: What is to be pushed, in any format.
        infra_blessing: ``infra_blessing.json``: the verdict on each model, with what was checked and measured.
        examples: Where the requests come from, warm-up requests among them; random values without them.
        fallback: The parent that would be pushed in the model's place; judged as well, for itself.
        layout: As in `push_model`.
        destination: As in `push_model`: a config.pbtxt there that somebody else wrote is the one that is checked.
        requests: How many different requests are asked.
        batch_size: Examples in each, where the model leaves the batch open.
        concurrency: How many clients ask at once while latency is measured.
        sweep: Also ask with 1, 2, 4, … clients, up to so many, and say from how many on there are no more answers a
            second: 5 % more at least, with 99 % intervals.
        seconds: How long latency is measured; with a sweep, for each number of clients as well.
        max_p99_ms: The largest 99th percentile of latency with that many clients, in milliseconds; any when not given.
        max_seconds: A model that is not done by then, loading included, is not blessed.
        tolerance: The largest difference in an answer, as a fraction of the output's range.
        max_batch_size: As in `push_model`, which is to be given the same.

    Raises:
        ComponentError: When the layout cannot hold the format, the examples do not fit the model, or the disk is full.
    """
    from tfopt.components.validate_serving.validate import Trial, validate

    trial = Trial(
        layout, destination, requests, batch_size, concurrency, sweep or 0, seconds, max_p99_ms, max_seconds, tolerance,
        max_batch_size,
    )  # fmt: skip
    tried = [validate(model, examples, trial)]
    if fallback is not None:
        tried.append(validate(fallback, examples, trial, spare=True))
    for row in tried:
        logging.getLogger("tfopt").info("%s: %s", row["name"], row["reason"])
    said = tried[0]
    infra_blessing.write({"blessed": said["blessed"], "reason": said["reason"], "models": tried})
    (infra_blessing.path / ("INFRA_BLESSED" if said["blessed"] else "INFRA_NOT_BLESSED")).touch()
    infra_blessing.metadata |= {"blessed": int(said["blessed"]), "reason": said["reason"], "server": said["server"]}
    if said["latency"]:
        infra_blessing.metadata |= {key: said["latency"][key] for key in ("p50_ms", "p99_ms", "concurrency")}

"""The door of `compare_backbones`: what it promises, and what it refuses in the first second."""

import logging
from typing import Annotated, Literal

from tfopt.artifacts import Comparison, Examples, PythonModule
from tfopt.component import Between, Input, Output, Reads, component
from tfopt.components.compare_backbones.backbones import read_backbones
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.reading import LIGHT, RUNTIMES, read_formats, read_size
from tfopt.components.compare_backbones.request import Question
from tfopt.measurement.goals import read_goals


@component(
    image="beam",
    cache="local",
    runs=("export_tflite", "export_onnx", "export_openvino", "train", "evaluate"),
    cpu=2,
    memory="8Gi",
)
def compare_backbones(
    comparison: Output[Comparison],
    chosen: Output[PythonModule],
    examples: Input[Examples] | None = None,
    *,
    backbones: Annotated[list[str], Reads(read_backbones, ("MobileNetV2 0.35", "ResNet50"))] = LIGHT,
    task: Literal["classification", "regression"] = "classification",
    classes: Annotated[int, Between(1)] | None = None,
    input_size: Annotated[str, Reads(read_size, "96x96x3")] | None = None,
    image: str = "image",
    label: str = "label",
    formats: Annotated[list[str], Reads(read_formats, ("tflite", "onnx"))] = list(RUNTIMES),  # noqa: B006  (a declared default, never changed)
    goals: Annotated[list[str], Reads(read_goals, ("latency threshold 5",))] = ["quality max_degradation 1%"],  # noqa: B006  (a declared default, never changed)
    objective: Literal["latency", "size", "size_gzipped", "memory", "quality"] = "latency",
    confidence: Literal["interval", "point"] = "interval",
    epochs: Annotated[int, Between(1)] = 3,
    records: Annotated[int, Between(1)] = 10_000,
    batch_size: Annotated[int, Between(1)] = 64,
    minutes: Annotated[float, Between(0.1)] = 120.0,
    seconds: Annotated[float, Between(0.1)] = 6.0,
    threads: Annotated[int, Between(1)] = 1,
    seed: int = 0,
) -> None:
    """Measure what light backbones cost on this machine before they are trained, and what they learn in a short time.

    Each backbone gets the head that the task needs and is saved untrained, with biases and statistics drawn such as
    training would leave them: what a call takes then does not hang on what is learnt. `inspect_model` counts it, the
    exporters write it for each runtime, and `benchmark` has those of one runtime take turns, one example at a time.
    Backbones that miss a goal on speed or size are not trained. The others learn the same examples for as many epochs,
    from random weights, by `train`, and `evaluate` compares them on the split ``eval``, with intervals.

    A backbone is as fast as in the runtime where it is fastest. Of those that meet the goals the best at the objective
    is chosen; ``max_degradation`` and ``min_improvement`` compare with the backbone that learnt best. Without examples
    nobody knows the accuracy: goals on it wait, and the choice is among costs. A module for `train` is written for the
    chosen one and for every other, so that another choice is at hand.

    A backbone that cannot be built, exported, trained or measured is a row with the reason. What the minutes do not
    suffice for is too. A short training says which backbone learns fast, not how good each becomes in the end, nor
    what pretrained weights would give: no weights are fetched.

    Args:
        comparison: ``comparison.json``, ``report.html`` with the Pareto picture, and ``modules/``, a Python file for
            each backbone.
        chosen: The module of the chosen backbone, ``module.py``, as `train` takes it.
        examples: With the splits ``train`` and ``eval``. Without them nothing is trained.
        backbones: Names of ``keras.applications``, each with a width multiplier where it has one: MobileNetV2 0.35.
        task: What the head gives: the probabilities of classes, or numbers.
        classes: How many classes, or numbers. As the examples say when not given.
        input_size: What the backbone takes: HEIGHTxWIDTHxCHANNELS. Images of another size are resized within the model.
            As the examples have them when not given, 224x224x3 without examples.
        image: The feature with the pixels, from 0 to 255, and the name of the model's input.
        label: The feature to learn.
        formats: The runtimes, of saved_model, tflite, onnx, openvino and tensorrt; what is not installed is left out.
        goals: What a backbone must satisfy, in the words of `select_model`: "latency threshold 5" is at most 5 ms.
        objective: What the chosen one is best at among those that satisfy the goals.
        confidence: What a goal is held against: the bad end of the interval, or the measured point alone.
        epochs: How often each backbone sees the examples.
        records: How many examples of the split ``train`` are learnt at most, drawn evenly.
        batch_size: How many examples a step learns from.
        minutes: How long all of it may take.
        seconds: How long each backbone is measured in each runtime. Loading and warm-up come on top.
        threads: Threads, and cores, of each model whose speed is measured.
        seed: Of the weights, of the examples that are drawn, and of the order of turns.

    Raises:
        ComponentError: When the images are too small for a backbone, the examples lack the image or the label, nobody
            says how many classes there are, a goal cannot be judged, or no backbone could be measured.
    """
    question = Question(
        backbones=read_backbones(backbones),
        task=task,
        image=image,
        label=label,
        formats=formats,
        goals=read_goals(goals),
        objective=objective,
        proven=confidence == "interval",
        epochs=epochs,
        records=records,
        batch_size=batch_size,
        seconds=seconds,
        threads=threads,
        seed=seed,
    ).settled(examples, classes, input_size)
    from tfopt.components.compare_backbones.compare import compare
    from tfopt.components.compare_backbones.report import page

    content = compare(question, examples, Budget(minutes), comparison.path, chosen.path / PythonModule.file)
    comparison.write(content)
    (comparison.path / Comparison.page).write_text(page(content), encoding="utf-8")
    logging.getLogger("tfopt").info("%s", content["reason"])
    comparison.metadata |= {"chosen": content["chosen"], "reason": content["reason"]}
    chosen.metadata |= {"backbone": content["chosen"]}

"""What the teacher answers to every example: asked once, before the first epoch, in whatever format it is."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import fixed_batch
from tfopt.components.train.subjects import Subject
from tfopt.data.batches import read_batches, read_records
from tfopt.data.sample_inputs import count
from tfopt.errors import ComponentError, nearest
from tfopt.runtimes import Arrays, Runtime
from tfopt.training.teacher_outputs import Answers

BATCH = 256
LOGITS, PROBABILITIES = "logits", "probabilities"
NEAR = 1e-3  # how far rounding may take a probability out of its range

log = logging.getLogger("tfopt")


def ask(
    teacher: Model, subjects: Sequence[Subject], files: Sequence[Path], count: int, folder: Path
) -> tuple[Answers, dict[str, str]]:
    """Return the answers to all records, and what those about classes and chances are: logits or probabilities.

    Nothing in a model says which. Values that all lie between 0 and 1 are taken for probabilities.

    Args:
        teacher: Any model, which takes features of the examples.
        subjects: What the student learns.
        files: The records it learns from.
        count: How many those are.
        folder: Where the answers are kept.

    Raises:
        ComponentError: When the teacher's outputs are not the student's, it does not take these examples, or an answer
            is no number.
    """
    folder.mkdir()
    forms = {subject.output: PROBABILITIES for subject in subjects if subject.kind != "values"}
    kept = [folder / str(place) for place in range(len(files))]
    told = 0
    with runtimes.load(teacher) as runtime:
        wires = matched(subjects, runtime)
        log.info("asking the teacher %s about %d examples", teacher.name, count)
        for records, rows in zip(files, kept, strict=True):
            with rows.open("wb") as file:
                for batch in _batches(records, runtime):
                    answers = [_checked(subject, batch[wires[subject.output]], told) for subject in subjects]
                    for subject, answer in zip(subjects, answers, strict=True):
                        if answer.min() < -NEAR or answer.max() > 1 + NEAR:
                            forms |= {subject.output: LOGITS} if subject.output in forms else {}
                    told += len(answers[0])
                    file.write(np.concatenate([each.reshape(len(each), -1) for each in answers], 1).tobytes())
    if told != count:
        raise ComponentError(
            f"the teacher's answers to {told} records of {count}", "one to each", "let nobody write to the examples"
        )
    return Answers(kept, {subject.output: subject.shape for subject in subjects}), forms


def matched(subjects: Sequence[Subject], runtime: Runtime) -> Mapping[str, str]:
    """Return the teacher's output for each of the student's: of the same name, or the only one for the only one.

    Raises:
        ComponentError: When there is none, or one of another shape or of text.
    """
    have = ", ".join(f"{name}: {spec}" for name, spec in runtime.outputs.items())
    alone = len(subjects) == len(runtime.outputs) == 1
    wires = {}
    for subject in subjects:
        name = next(iter(runtime.outputs)) if alone else subject.output
        if name not in runtime.outputs:
            raise ComponentError(
                f"teacher: outputs {have}",
                f"one named {subject.output}, as the student's",
                f"{nearest(subject.output, runtime.outputs)}: name the module's outputs as the teacher's",
            )
        spec = runtime.outputs[name]
        sizes = spec.shape[1:]
        same = len(sizes) == len(subject.shape) and all(
            size in (None, want) for size, want in zip(sizes, subject.shape, strict=True)
        )
        if spec.dtype == "string" or (spec.ranked and not same):
            raise _misshapen(subject, f"{name}: {spec}")
        wires[subject.output] = name
    return wires


def _batches(file: Path, runtime: Runtime) -> Any:
    """The answers to a file of records, in their order; one without records, which a split may have, has none."""
    if next(read_records([file]), None) is None:
        return
    fixed = fixed_batch(runtime.inputs)
    for batch in read_batches([file], runtime.inputs, batch_size=fixed or BATCH):
        size = count(batch, runtime.inputs)
        answers = runtime.run(_filled(batch, fixed) if fixed else batch)
        yield {name: answer[:size] if fixed else answer for name, answer in answers.items()}


def _filled(batch: Arrays, size: int) -> Arrays:
    return {name: np.resize(array, (size, *array.shape[1:])) if array.ndim else array for name, array in batch.items()}


def _checked(subject: Subject, answer: NDArray[Any], before: int) -> NDArray[np.float32]:
    if answer.shape[1:] != subject.shape:
        raise _misshapen(subject, f"{list(answer.shape[1:])} for a record")
    answer = answer.astype(np.float32)
    broken = ~np.isfinite(answer).reshape(len(answer), -1).all(1)
    if broken.any():
        raise ComponentError(
            f"teacher: output {subject.output!r} is NaN or infinite for record {before + int(broken.argmax())}",
            "finite answers",
            "give another teacher, or leave such records out of the split train",
        )
    return answer


def _misshapen(subject: Subject, received: str) -> ComponentError:
    return ComponentError(
        f"teacher: {received}",
        f"{list(subject.shape)} numbers for a record, as the student's output {subject.output!r}",
        "give a teacher with the same classes or values, or change the module's output",
    )

"""Run the teacher, in any format, on every training example once before the first epoch, and store its outputs."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec, fixed_batch, same_shape
from tfopt.data.batches import read_batches, resize_batch
from tfopt.data.sample_inputs import count_records
from tfopt.data.tfrecords import read_records
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.runtimes import Runtime
from tfopt.training import distillation
from tfopt.training.datasets.dataset import HOLD_OUT_EVERY, Source, TeacherOutputs
from tfopt.value_types import JsonObject

BATCH = 256
ROUNDING = 1e-3  # a probability may exceed its range by this much


def prepare_distillation(
    teacher: Model,
    model: Any,
    source: Source,
    folder: Path,
    module: Path,
    *,
    temperature: float,
    alpha: float,
    class_weight: Mapping[int, float] | None = None,
) -> tuple[Source, Callable[[Any], AbstractContextManager[None]], JsonObject]:
    """Return the source with the teacher's outputs, the context to train a student in, and facts for the model card.

    The model is compiled by the module, as the student is. The teacher's outputs are stored in the folder during
    training. Raise ComponentError if teacher and student do not fit, or the student cannot be trained by distillation.
    """
    outputs = distillation.distilled_outputs(model, module)
    predictions, formats = predict(teacher, outputs, source, folder)
    parameters = {"temperature": temperature, "alpha": alpha}
    facts = {"name": teacher.name, "format": teacher.format, "digest": teacher.digest, **parameters, "answers": formats}
    facts |= {"component": teacher.card.component} if teacher.card.component else {}

    def distill(student: Any) -> AbstractContextManager[None]:
        return distillation.distillation_loss(student, outputs, formats, **parameters, class_weight=class_weight)

    return replace(source, teacher=predictions), distill, {"teacher": facts}


def predict(
    teacher: Model, outputs: Sequence[distillation.DistilledOutput], source: Source, folder: Path
) -> tuple[TeacherOutputs, dict[str, str]]:
    """Return the teacher's outputs for all records, and the format of each: logits or probabilities.

    A model does not declare the format. Values that are all between 0 and 1 are treated as probabilities. Outputs of
    the kind ``values`` have no format. The outputs are stored in the folder. Raise ComponentError if the teacher lacks
    an output of the student, does not take these examples, or an output is not finite.
    """
    folder.mkdir()
    formats = {each.output: distillation.PROBABILITIES for each in outputs if each.kind != "values"}
    row_files = [folder / str(number) for number in range(len(source.files))]
    done = 0
    with runtimes.load(teacher) as runtime:
        names = match_outputs(outputs, runtime)
        logging.getLogger(__name__).info("running the teacher %s on %d examples", teacher.name, source.count)
        for records, rows in zip(source.files, row_files, strict=True):
            with rows.open("wb") as file:
                for batch in _run_batches(records, runtime):
                    arrays = [_check_array(each, batch[names[each.output]], done) for each in outputs]
                    for each, array in zip(outputs, arrays, strict=True):
                        if array.min() < -ROUNDING or array.max() > 1 + ROUNDING:
                            formats |= {each.output: distillation.LOGITS} if each.output in formats else {}
                    done += len(arrays[0])
                    file.write(np.concatenate([array.reshape(len(array), -1) for array in arrays], 1).tobytes())
    held_out = -(-done // HOLD_OUT_EVERY) if source.part == "rest" else 0
    if done - held_out != source.count:
        received = f"the teacher's outputs for {done - held_out} records of {source.count}"
        raise ComponentError(received, "one for each", "do not write to the examples")
    return TeacherOutputs(row_files, {each.output: each.shape for each in outputs}), formats


def match_outputs(outputs: Sequence[distillation.DistilledOutput], runtime: Runtime) -> Mapping[str, str]:
    """Return the teacher's output name for each of the student's: the same, or the only one if both have one output.

    Raises:
        ComponentError: If there is none, or it is text or of another shape.
    """
    text = ", ".join(f"{name}: {spec}" for name, spec in runtime.outputs.items())
    is_single = len(outputs) == len(runtime.outputs) == 1
    names = {}
    for each in outputs:
        name = next(iter(runtime.outputs)) if is_single else each.output
        if name not in runtime.outputs:
            fix = f"{nearest(each.output, runtime.outputs)}: name the module's outputs as the teacher's"
            raise ComponentError(f"teacher: outputs {text}", f"one named {each.output}, as the student's", fix)
        spec = runtime.outputs[name]
        if spec.dtype == "string" or not same_shape(spec, TensorSpec(spec.dtype, (None, *each.shape))):
            raise _shape_error(each, f"{name}: {spec}")
        names[each.output] = name
    return names


def _run_batches(file: Path, runtime: Runtime) -> Any:
    """Yield the teacher's outputs for a file of records, in their order; a file may have no records."""
    if next(read_records([file]), None) is None:
        return
    fixed = fixed_batch(runtime.inputs)
    for batch in read_batches([file], runtime.inputs, batch_size=fixed or BATCH):
        size = count_records(batch, runtime.inputs)
        results = runtime.run(resize_batch(batch, fixed) if fixed else batch)
        yield {name: result[:size] if fixed else result for name, result in results.items()}


def _check_array(output: distillation.DistilledOutput, array: NDArray[Any], first_record: int) -> NDArray[np.float32]:
    if array.shape[1:] != output.shape:
        raise _shape_error(output, f"{list(array.shape[1:])} for a record")
    array = array.astype(np.float32)
    not_finite = ~np.isfinite(array).reshape(len(array), -1).all(1)
    if not_finite.any():
        record = first_record + int(not_finite.argmax())
        received = f"teacher: output {output.output!r} is NaN or infinite for record {record}"
        fix = "pass another teacher, or leave such records out of the split train"
        raise ComponentError(received, "finite outputs", fix)
    return array


def _shape_error(output: distillation.DistilledOutput, received: str) -> ComponentError:
    expected = f"{list(output.shape)} numbers for a record, as the student's output {output.output!r}"
    fix = "pass a teacher with the same classes or values, or change the module's output"
    return ComponentError(f"teacher: {received}", expected, fix)

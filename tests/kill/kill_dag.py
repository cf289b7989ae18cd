"""A DAG of quick steps: a model, two outputs of one step, a push."""

import time

from tfopt.artifacts import Blessing, Files, Report, SavedModel
from tfopt.component import Input, Output, component


@component(image="tf")
def split(data: Input[Files], first: Output[Report], second: Output[Report]) -> None:
    """Write two reports.

    Args:
        data: A file.
        first: A report.
        second: Another one.
    """
    size = len(data.path.read_bytes())
    time.sleep(0.05)
    first.write({"half": size // 2})
    second.write({"half": size - size // 2})


def kill_dag(
    steps, data: Input[Files], model: Input[SavedModel], blessing: Input[Blessing], *, destination: str
) -> None:
    """Split, fold, inspect, push."""
    steps(split, data=data)
    folded = steps.fold_batch_norm(model=model)
    steps.inspect_model(model=folded.outputs["folded"])
    steps.push_model(model=folded.outputs["folded"], blessing=blessing, destination=destination, layout="plain")

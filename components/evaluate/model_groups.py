"""Models that are too large to be loaded together: they run group by group, and their predictions are stored."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.examples.prefetch import PREFETCHED, prefetch
from tfopt.components.evaluate.examples.records import Decoder
from tfopt.components.evaluate.loaded_models import MODEL_POOL, LoadedModel, required_inputs
from tfopt.components.evaluate.metrics.accumulators import Position
from tfopt.components.evaluate.worker_plan import Plan

GROUP_BYTES = 384 << 20  # files of the models that are loaded together; in memory, a model takes several times as much
STORED_BYTES = 512 << 20  # stored predictions of all models
FEWEST_RECORDS = 1024  # with fewer records between two loads of a model, loading would take most of the time


def split_models(sizes: Sequence[int], record_bytes: int) -> tuple[tuple[range, ...], int]:
    """Split models into groups of consecutive ones that are loaded together.

    Args:
        sizes: Bytes of the files of each model.
        record_bytes: Bytes of the predictions of all models for a record.

    Returns:
        The numbers of the models of each group, and the number of records whose predictions can be stored. All models
        are in one group if they are small, or if their predictions are too large to be stored.

    >>> split_models([300 << 20, 100 << 20, 20 << 20], record_bytes=4096)
    ((range(0, 1), range(1, 3)), 131072)
    """
    records = STORED_BYTES // record_bytes
    if records < FEWEST_RECORDS:
        return (range(len(sizes)),), records
    starts, total = [0], 0
    for number, size in enumerate(sizes):
        total += size
        if total > GROUP_BYTES and number > starts[-1]:
            starts.append(number)
            total = size
    return tuple(map(range, starts, [*starts[1:], len(sizes)])), records


def predict_in_groups(plan: Plan, read: Callable[[], Iterable[tuple[Position, Any]]]) -> list[LoadedModel]:
    """Load one group of models after the other, run it on all batches, and release it.

    A record is usable if it has the inputs of all models. If a later group has further inputs, all groups run again.
    The released models, which are returned, have stored their predictions.
    """
    inputs: dict[str, TensorSpec] = {}
    while True:
        models: list[LoadedModel] = []
        has_all_inputs = True
        for group in plan.groups:
            with MODEL_POOL.borrow_group(plan, group) as loaded:
                required = required_inputs(loaded)
                has_all_inputs &= not models or required.keys() <= inputs.keys()
                inputs |= required
                decoder = Decoder(plan.features, plan.settings.label, plan.settings.slices, inputs)
                batches = ((position, *decoder.decode(records)) for position, records in read())
                for position, usable, columns, _ in prefetch(batches, PREFETCHED):
                    for model in loaded if len(usable) else ():
                        model.store(position, columns)
            models += loaded
        if has_all_inputs:
            return models

"""Inputs to run models on: examples where there are some, else random values that fit the signature."""

from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec, batched, fixed_batch
from tfopt.data.batches import Batch, parse_records, sample_records
from tfopt.data.feature_schema import stored_features
from tfopt.errors import ComponentError

OPEN_SIZE = 64  # of a dimension which the signature leaves open

Specs = Mapping[str, TensorSpec]


def probe(
    examples: Examples | None, specs: Specs, *, records: int, seed: int = 0, seen: str = "train"
) -> tuple[Batch, str]:
    """Return inputs by name, and where they come from.

    Args:
        examples: Real inputs.
        specs: What the model takes.
        records: At most how many; more where the model takes a larger batch and no other.
        seed: Draws the examples or the random values.
        seen: The split that the model was made with; another one is taken where there is one, and ``test``, which is
            kept for judging, only where there is no third.

    Raises:
        ComponentError: When the examples do not fit, or only examples would do.
    """
    whole = max((spec.shape[0] or 1 for spec in specs.values() if spec.shape), default=1)
    if examples is None:
        return random_batch(specs, records=records, seed=seed), "random inputs"
    split = min(examples.splits, key=lambda name: (name == seen, name == "test"), default=seen)
    where = f"split {split!r}"
    files = examples.split(split)
    drawn = sample_records(files, count=max(records, whole), seed=seed)
    if not drawn:
        raise ComponentError(f"{where}: no examples", "at least one to compare on", "prepare the examples again")
    if len(drawn) < whole:
        raise ComponentError(
            f"{where}: {len(drawn)} examples, and a model that takes {whole} at once",
            "at least one whole batch",
            "prepare more examples, or export the model with an open batch",
        )
    return parse_records(drawn, specs, where=where, stored=stored_features(files)), f"examples, {where}"


def cut(batch: Batch, specs: Specs, *sizes: int) -> Iterator[Batch]:
    """Cut into batches of these sizes, the last one again and again.

    Where the model fixes the size they are all of that, and a smaller rest is left out. What is not `batched` is in
    each of them.
    """
    fixed, total, start = fixed_batch(specs), count(batch, specs), 0
    rows = {name: batch[name] for name in batched(specs)}
    shared = {name: batch[name][: spec.shape[0]] if spec.shape else batch[name] for name, spec in specs.items()}
    for size in chain(sizes, repeat(sizes[-1])):
        end = start + (fixed or size)
        if start >= total or (fixed and end > total):
            return
        yield shared | {name: array[start:end] for name, array in rows.items()}
        start = end


def count(batch: Batch, specs: Specs) -> int:
    """How many records are in a batch; 1 where no input has one for each."""
    return max((len(batch[name]) for name in batched(specs)), default=1)


def random_batch(specs: Specs, *, records: int, seed: int) -> Batch:
    """Return random values; an input of some name and type is the same for every model.

    Raises:
        ComponentError: When an input takes text, of which nothing sensible can be made up.
    """
    rows = max(records, fixed_batch(specs) or 0)
    sizes = {name: spec.shape[:1] for name, spec in specs.items()} | dict.fromkeys(batched(specs), (rows,))
    return {name: _random(name, spec, (*sizes[name], *spec.shape[1:]), seed) for name, spec in specs.items()}


def _random(name: str, spec: TensorSpec, sizes: tuple[int | None, ...], seed: int) -> NDArray[Any]:
    shape = [size or OPEN_SIZE for size in sizes]
    draw = np.random.default_rng([seed, *name.encode()])
    if "float" in spec.dtype:
        return np.asarray(draw.random(shape)).astype(spec.dtype)
    if spec.dtype in ("int8", "uint8"):  # pixels, or quantized values
        limits = np.iinfo(spec.dtype)
        return np.asarray(draw.integers(limits.min, limits.max, shape, endpoint=True), spec.dtype)
    if spec.dtype == "bool" or "int" in spec.dtype:  # a 0 or 1 is in every vocabulary, mask and choice
        return np.asarray(draw.integers(0, 2, shape)).astype(spec.dtype)
    raise ComponentError(
        f"input {name!r} takes {spec.dtype}, and there are no examples",
        "examples with such values",
        f"pass examples=PATH, with a feature {name!r}",
    )

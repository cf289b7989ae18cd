"""Draw inputs for running models: examples if there are any, else random values that fit the signature."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import RecordSpec, TensorSpec, batched_tensors, fixed_batch
from tfopt.data.batches import Batch, parse_records, sample_records, serialize_records
from tfopt.data.feature_schema import stored_features
from tfopt.errors import ComponentError

MAX_WORDS_OF_TEXT = 8
WORDS = (b"a", b"the", b"cat", b"Dog", b"runs", b"over", b"1", b"2.5")  # of any text
COMPARED_VALUES, FEWEST_COMPARED = 4 << 20, 32  # numbers in the inputs, and records, of a comparison of two models
MOST_VALUES = 1 << 36  # of one input: half a terabyte, and more than any machine draws in hours
QUANTIZED = ("qint8", "quint8", "qint16", "quint16", "qint32")
OPEN_SIZE = 64  # size of dimensions that are dynamic in the signature
OPEN_TEXTS = 2  # the same of texts, since a model may cut each into hundreds of tokens
OPEN_VALUES = 4096  # about the values of a record in its dynamic dimensions; 64 each if there are two

Specs = Mapping[str, TensorSpec]


def draw_inputs(
    examples: Examples | None, specs: Specs, *, records: int, seed: int = 0, seen: str = "train"
) -> tuple[Batch, str]:
    """Return inputs by name, drawn from examples if there are any, and a description of their source.

    There are at most ``records``, or more if the model has a larger fixed batch size. The model was trained on the
    split ``seen``: another one is used if there is one; ``test``, which is reserved for evaluation, only if there is no
    third.

    Raises:
        ComponentError: If the examples do not fit the model, or the model needs examples.
    """
    whole = max((spec.shape[0] or 1 for spec in specs.values() if spec.shape), default=1)
    if examples is None:
        return random_batch(specs, records=records, seed=seed), "random inputs"
    split = min(examples.splits, key=lambda name: (name == seen, name == "test"), default=seen)
    where = f"split {split!r}"
    files = examples.split(split)
    drawn = sample_records(files, count=max(records, whole), seed=seed)
    if not drawn:
        raise ComponentError(f"{where}: no examples", "at least one", "prepare the examples again")
    if len(drawn) < whole:
        received = f"{where}: {len(drawn)} examples, and a model with batch size {whole}"
        fix = "prepare more examples, or export the model with a dynamic batch size"
        raise ComponentError(received, "at least one whole batch", fix)
    return parse_records(drawn, specs, where=where, files=files), f"examples, {where}"


def compared_records(specs: Specs, most: int, examples: Examples | None = None) -> int:
    """Return the number of records to compare two models on: fewer if they are large, such as images of 224x224 pixels.

    Dynamic dimensions have the sizes of the examples if there are any. The time of a comparison grows with the inputs,
    and a model that computes something else differs in most records.

    >>> compared_records({"image": TensorSpec("float32", (None, 224, 224, 3))}, 512)
    32
    >>> compared_records({"image": TensorSpec("float32", (None, 28, 28, 1))}, 512)
    512
    """
    stored: Mapping[str, TensorSpec] = {}
    if examples is not None:
        stored = stored_features(list(chain.from_iterable(examples.splits.values())))
    values = sum(
        max(_count_values(spec), math.prod(size or 0 for size in stored[name].shape[1:]) if name in stored else 0)
        for name, spec in specs.items()
    )
    return min(most, max(FEWEST_COMPARED, COMPARED_VALUES // max(values, 1)))


def _count_values(spec: TensorSpec) -> int:
    if isinstance(spec, RecordSpec):
        return sum(map(_count_values, spec.features.values()))
    return math.prod(size or OPEN_SIZE for size in spec.shape[1:])


def open_size(specs: Specs) -> int:
    """Return the size of the dynamic dimensions of random inputs, which several inputs may share.

    >>> open_size({"image": TensorSpec("float32", (None, None, None, 3))})
    64
    >>> open_size({"video": TensorSpec("float32", (None, None, None, None, 3))})
    16
    >>> open_size({"texts": TensorSpec("string", (None, None))})
    2
    """
    axes = {name: spec.shape[1:].count(None) for name, spec in specs.items()}
    if any(axes[name] and specs[name].dtype == "string" for name in specs):
        return OPEN_TEXTS
    return min(OPEN_SIZE, int(OPEN_VALUES ** (1 / max([2, *axes.values()])) + 1e-9))


def with_sizes_of(specs: Specs, batch: Mapping[str, NDArray[Any]]) -> Specs:
    """Return specifications whose dynamic dimensions, but for the batch, have the sizes of inputs of the same name."""
    filled = dict(specs)
    for name, spec in specs.items():
        if name in batch and len(spec.shape) == batch[name].ndim:
            sizes = zip(spec.shape[1:], batch[name].shape[1:], strict=True)
            filled[name] = replace(spec, shape=(*spec.shape[:1], *(own or size for own, size in sizes)))
    return filled


def split_batches(batch: Batch, specs: Specs, *sizes: int) -> Iterator[Batch]:
    """Split into batches of these sizes; the last size is repeated.

    If the model has a fixed batch size, all batches have that size and the rest is dropped. Inputs without a batch
    dimension (see `batched_tensors`) are repeated in each batch.
    """
    fixed, total, start = fixed_batch(specs), count_records(batch, specs), 0
    rows = {name: batch[name] for name in batched_tensors(specs)}
    shared = {name: batch[name][: spec.shape[0]] if spec.shape else batch[name] for name, spec in specs.items()}
    for size in chain(sizes, repeat(sizes[-1])):
        end = start + (fixed or size)
        if start >= total or (fixed and end > total):
            return
        yield shared | {name: array[start:end] for name, array in rows.items()}
        start = end


def count_records(batch: Batch, specs: Specs) -> int:
    """Return the number of records in a batch; 1 if no input has a batch dimension."""
    return max((len(batch[name]) for name in batched_tensors(specs)), default=1)


def random_batch(specs: Specs, *, records: int, seed: int) -> Batch:
    """Return random values; inputs of the same name and type get the same values for every model.

    A `RecordSpec` gets serialized records of such features.

    Raises:
        ComponentError: If an input is text, and the model has no vocabulary from which it can be drawn.
    """
    rows = max(records, fixed_batch(specs) or 0)
    sizes = {name: spec.shape[:1] for name, spec in specs.items()} | dict.fromkeys(batched_tensors(specs), (rows,))
    size = open_size(specs)
    return {
        name: _random(name, spec, (*sizes[name], *(own or size for own in spec.shape[1:])), seed)
        for name, spec in specs.items()
    }


def with_words(specs: Specs) -> dict[str, TensorSpec]:
    """Return specifications whose texts have a vocabulary: `WORDS` where the model has none."""
    named = dict(specs)
    for name, spec in specs.items():
        if isinstance(spec, RecordSpec):
            texts = {key: one for key, one in spec.features.items() if one.dtype == "string" and not one.vocabulary}
            words = {key: replace(one, vocabulary=WORDS) for key, one in texts.items()}
            named[name] = replace(spec, features={**spec.features, **words})
        elif spec.dtype == "string" and not spec.vocabulary:
            named[name] = replace(spec, vocabulary=WORDS)
    return named


def formatted_texts(specs: Specs, batch: Batch) -> Iterator[Batch]:
    """Yield the batch with numbers, images, base64 and JSON as texts, for models that decode them."""
    names = [name for name, spec in specs.items() if spec.dtype == "string" and not isinstance(spec, RecordSpec)]
    if not names:
        return
    import tensorflow as tf

    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    image = tf.io.encode_png(pixels).numpy()
    for form in (b"%d", b"%d.25", image, b"YWJj", b'{"a": %d}', b"2020-01-%02d"):
        has_number = form is not image and b"%" in form
        rows = range(max(batch[name].size for name in names))
        texts = [form % (row % 28 + 1) if has_number else form for row in rows]
        yield batch | {name: np.array(texts[: batch[name].size], object).reshape(batch[name].shape) for name in names}


def _random(name: str, spec: TensorSpec, sizes: tuple[int | None, ...], seed: int) -> NDArray[Any]:
    if isinstance(spec, RecordSpec):
        return _random_records(spec, sizes[0] or 1 if sizes else 1, seed).reshape([size or 1 for size in sizes])
    shape = [size or OPEN_SIZE for size in sizes]
    if math.prod(shape) > MOST_VALUES:
        received = f"input {name!r} of shape {shape}: {math.prod(shape)} values"
        raise ComponentError(received, "an input that fits into memory", "export the model again with its real sizes")
    draw = np.random.default_rng([seed, *name.encode()])
    with contextlib.suppress(ImportError):
        import ml_dtypes  # noqa: F401  # numpy then has TensorFlow's other types: integers of 4 bits, floats of 8
    if "float" in spec.dtype:
        return np.asarray(draw.random(shape)).astype(spec.dtype)
    if spec.dtype in ("int8", "uint8", *QUANTIZED):  # pixels or quantized values
        plain = np.dtype(spec.dtype.removeprefix("q"))
        limits = np.iinfo(plain)
        values = np.asarray(draw.integers(limits.min, limits.max, shape, endpoint=True), plain)
        return values.view([(spec.dtype, plain)]) if spec.dtype in QUANTIZED else values  # as numpy has TensorFlow's
    if "complex" in spec.dtype:
        return np.asarray(draw.random(shape) + 1j * draw.random(shape)).astype(spec.dtype)
    if spec.dtype == "bool" or "int" in spec.dtype:  # 0 and 1 are valid in every vocabulary and mask
        return np.asarray(draw.integers(0, 2, shape)).astype(spec.dtype)
    if spec.vocabulary:
        return _random_text(spec.vocabulary, shape, draw)
    received = f"input {name!r} takes {spec.dtype}, and there are no examples"
    raise ComponentError(received, "examples with such values", f"pass examples=PATH, with a feature {name!r}")


def _random_text(vocabulary: tuple[bytes, ...], shape: list[int], draw: np.random.Generator) -> NDArray[Any]:
    """Return texts of words from a vocabulary: one word in every other text, up to eight in the rest."""
    counts = [1 if index % 2 else int(draw.integers(1, MAX_WORDS_OF_TEXT + 1)) for index in range(math.prod(shape))]
    texts = [b" ".join(vocabulary[word] for word in draw.integers(0, len(vocabulary), count)) for count in counts]
    return np.array(texts, object).reshape(shape)


def _random_records(spec: RecordSpec, rows: int, seed: int) -> NDArray[Any]:
    """Return serialized tf.Example records; sparse and ragged features have one value."""
    columns = {
        name: _random(name, feature, (rows, *(feature.shape[1:] if feature.kind == "dense" else (1,))), seed)
        for name, feature in spec.features.items()
        if feature.default is None
    }
    return np.array(serialize_records(columns), object)

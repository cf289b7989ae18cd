from typing import Annotated, Literal

from tfopt.artifacts import Examples, Files
from tfopt.component import Between, Input, Output, Reads, component
from tfopt.components.prepare_examples.request import Pack, Request, Sparse, Splits


@component(image="beam", beam=True, cpu=2, memory="8Gi")
def prepare_examples(
    data: Input[Files],
    examples: Output[Examples],
    *,
    label: str = "label",
    label_at: Literal["last", "first"] = "last",
    splits: Annotated[list[str], Reads(Splits.parse, ("train:8", "eval:2"))] = ["train:8", "eval:2"],  # noqa: B006  (read, never changed)
    pack: Annotated[str, Reads(Pack.parse, "image=28x28x1")] | None = None,
    format: Literal["auto", "csv", "npz", "images", "tfrecord"] = "auto",
    header: Literal["auto", "yes", "no"] = "auto",
    max_rejected: Annotated[float, Between(0, 1)] = 0.01,
    seed: int = 0,
    sparse: Annotated[list[str], Reads(Sparse.parse, ("words=word_ids:counts:5000",))] = [],  # noqa: B006  (read, never changed)
) -> None:
    """Turn data files into split TFRecords of tf.Example, with counts and a summary of every feature.

    A row's split is drawn from a hash of its content and the seed. So it does not depend on the order of the rows, on
    the number of files or workers, or on the Beam runner; duplicates of a row share a split, and rows added later move
    no others. Every row that was read is written or counted as rejected, which is checked at the end.

    Column types are found by reading all the data: ``int64``, ``float32``, or ``string`` where more than a tenth of the
    values are words. An empty CSV cell is a missing value, and its example lacks that feature. A label of words becomes
    the index of the word in sorted order. ``examples.json`` holds those words as ``classes``, the counts, a summary of
    each feature, and the rejected rows. It says of which features the number of values varies, and which are sparse:
    `train` gives these to a model as ragged and sparse tensors (docs/training.md).

    Args:
        data: A CSV (plain or ``.gz``), NPZ or TFRecord file, a folder of such files, or a folder with one subfolder of
            images per class. May be an address such as ``gs://…``.
        examples: TFX Examples, ``Split-NAME/data_tfrecord-*.gz``, and ``examples.json``.
        label: The column, array or feature to predict, and the name it is stored under.
        label_at: Where the label is in a CSV without a header; the other columns are called ``c0``, ``c1``, ….
        splits: Names with integer weights, ``NAME:WEIGHT``.
        pack: Everything but the label as one float feature, in the columns' order: ``NAME=SIZExSIZE…``, such as
            ``image=28x28x1``. For images it is the feature's name and the size they are resized to, and must be given.
        format: What the files are; ``auto`` goes by their names.
        header: Whether a CSV starts with column names; ``auto`` takes its first row for names when the label is among
            them or none is a number.
        max_rejected: The fraction of unusable rows (wrong column count, unparsable number, NaN, undecodable image,
            no label) that is still acceptable.
        seed: Changes which rows fall into which split.
        sparse: Of TFRecords: features of which only some values are stored, ``NAME=POSITIONS:VALUES:SIZE``, each from a
            feature with positions from 0 to SIZE - 1 and one with as many values.

    Raises:
        ComponentError: When a file is damaged, the label or a column is not what was promised, too many rows are
            unusable, or a split would be empty.
    """
    request = Request(
        label,
        label_at,
        Splits.parse(splits),
        Pack.parse(pack) if pack else None,
        format,
        header,
        max_rejected,
        seed,
        Sparse.parse(sparse),
    )

    from tfopt.components.prepare_examples.prepare import prepare

    prepare(data.uri, examples, request)

from tfopt.artifacts import Examples, Files
from tfopt.component import Group, Input, Output, component
from tfopt.components.prepare_examples.parameters import Settings


@component(image="beam", purpose="data", beam=True, cpu=2, memory="8Gi")
def prepare_examples(data: Input[Files], examples: Output[Examples], *, settings: Group[Settings]) -> None:
    """Turn data files into split TFRecords of tf.Example, with counts and a summary of every feature.

    The split of a row is drawn from a hash of its content and the seed. It does not depend on the order of the rows, on
    the number of files or workers, or on the Beam runner. Duplicates of a row are in the same split, and rows that are
    added later move no others. Every row is written or counted as rejected or dropped, which is checked at the end.

    The columns of a table are the same in all its files. The types of CSV and TSV columns are determined from all data:
    ``int64``, ``float32``, or ``string`` if more than a tenth of the values are words. Parquet files contain the types;
    their dates become texts, as ``2025-03-01``. JSON lines have the keys of the first object as columns, and their
    values have the types of JSON. Booleans become 0 and 1, a list becomes a feature with several values. ``columns``
    declares types instead. The same table gives the same examples in the same splits in all four formats, if its
    numbers are written alike.

    ``missing`` is the policy for missing values, by default examples without the feature. In CSV and TSV the words that
    pandas reads as missing, such as ``NA`` and ``NaN``, are missing values too. Other formats have nulls; their NaN
    makes a row unusable. A label of words becomes the index of the word in sorted order. ``examples.json`` contains
    these words as ``classes``, the counts, a summary of each feature, and the rejected rows. It also marks features
    with a varying number of values and sparse features, which `train` passes to a model as ragged and sparse tensors
    (docs/training.md).

    The classes of a label of words have the numbers of their sorted names, or of ``classes``: declare them where data
    of another day must have the same numbers. ``examples.json`` and the log have notes, with numbers, on columns that
    equal the label, whole numbers that float32 rounds, and data or splits of one class.

    Args:
        data: A CSV, TSV, JSON lines (``.jsonl``, ``.ndjson``; all three plain or ``.gz``), Parquet, NPZ or TFRecord
            file, a folder of such files, or a folder with one subfolder of images per class. May be an address such as
            ``gs://…``.
        examples: TFX Examples, ``Split-NAME/data_tfrecord-*.gz``, and ``examples.json``.
        settings: Parameters of the preparation.

    Raises:
        ComponentError: If a file is damaged, the label or a column is not as declared, too many rows are unusable, a
            split would be empty, or two classes differ only in case or spaces and are not declared.
    """
    from tfopt.components.prepare_examples.prepare import prepare  # more than a declaration needs

    prepare(data.uri, examples, settings)

"""Metadata for apps next to a LiteRT file: ``metadata.json``, and ``labels.txt`` if the class names are known.

LiteRT could hold such metadata inside the file, but tflite-support, the library for it, is no longer maintained. With
separate files the pushed model is identical, bit by bit, to the measured one.
"""

import json
from pathlib import Path

from tfopt.artifacts import Examples, Model
from tfopt.data.feature_schema import read_manifest
from tfopt.runtimes.tflite import stored_tensors

METADATA, LABELS = "metadata.json", "labels.txt"


def write_metadata(model: Model, folder: Path, examples: Examples | None) -> str:
    """Write both files into a version folder; return the source of the labels, or why there are none.

    They depend on the LiteRT file and the class names only, so that one model is one version under every name.

    Raises:
        ComponentError: If LiteRT cannot load the file.
    """
    signature, inputs, outputs = stored_tensors(model)
    classes = read_manifest(examples.path).classes or [] if examples else []
    labelled = [name for name, facts in outputs.items() if classes and facts["shape"][-1:] == [len(classes)]]
    if labelled:
        (folder / LABELS).write_text("".join(f"{name}\n" for name in classes))
    metadata = {
        "signature": signature,
        "inputs": inputs,
        "outputs": {name: facts | {"labels": LABELS if name in labelled else None} for name, facts in outputs.items()},
    }
    (folder / METADATA).write_text(json.dumps(metadata, indent=1, ensure_ascii=False) + "\n")
    if labelled:
        return f"{len(classes)} classes of the examples, for {', '.join(labelled)}"
    return f"none: no output has {len(classes)} values" if classes else "none: no examples that name their classes"

"""What an app needs to know of a LiteRT file, beside it: ``metadata.json``, and ``labels.txt`` where classes are named.

LiteRT can carry such facts inside the file, but the library that wrote them (tflite-support) is no longer kept, and
whoever reads a flatbuffer of its schema can read two plain files. The file stays the one that was measured, bit by bit.
"""

import json
from pathlib import Path

from tfopt.artifacts import Examples, Model
from tfopt.data.feature_schema import manifest

METADATA, LABELS = "metadata.json", "labels.txt"


def describe(model: Model, folder: Path, examples: Examples | None) -> str:
    """Write both files into a version folder; return where the labels come from, or why there are none.

    They say what is in the file and no more: under whichever name it is pushed, it is the same version.

    Raises:
        ComponentError: When LiteRT cannot load the file.
    """
    from tfopt.runtimes.tflite import stored_tensors

    signature, inputs, outputs = stored_tensors(model)
    classes = _classes(examples)
    labelled = [name for name, facts in outputs.items() if classes and facts["shape"][-1:] == [len(classes)]]
    if labelled:
        (folder / LABELS).write_text("".join(f"{name}\n" for name in classes))
    facts = {
        "signature": signature,
        "inputs": inputs,
        "outputs": {name: found | {"labels": LABELS if name in labelled else None} for name, found in outputs.items()},
    }
    (folder / METADATA).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    if labelled:
        return f"{len(classes)} classes of the examples, for {', '.join(labelled)}"
    return f"none: no output has {len(classes)} values" if classes else "none: no examples that name their classes"


def _classes(examples: Examples | None) -> list[str]:
    known = manifest(examples.path) if examples else {}
    return [str(name) for name in known.get("classes") or []]

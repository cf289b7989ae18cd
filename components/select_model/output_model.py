"""Write the selected model as an artifact, in the layout that TFX and `push_model` read."""

from pathlib import Path

from tfopt.artifacts import CARD, Model
from tfopt.artifacts.model_card import ModelCard, write_card
from tfopt.measurement.evidence import ESTIMATE
from tfopt.serving.layouts import file_name
from tfopt.storage.staging import copy_tree, link_tree

CONFIDENCE, INTERVAL = "confidence", "interval"


def write_selected(model: Model, name: str, selected: Model, confidence: str = INTERVAL) -> None:
    """Write a model's files into ``selected``.

    ``Format-Serving`` gets the deployed files and nothing else, because TFX's Pusher copies that folder.

    The files of an artifact are linked, with the model card: an artifact does not change. A file or a SavedModel
    outside of an artifact may change: it is copied into the artifact layout, with a card of its name, format, digest,
    sizes and source. The card states if the model was selected by measured values, which prove nothing.
    """
    is_artifact = model.path.is_dir() and model.saved_model != model.path
    files = model.payload()
    for file in files:
        # TFMA, as TFX's own Rewriter, calls a LiteRT file ``tflite``.
        served = "tflite" if file == model.tflite else file_name(model, file, "tf_serving")
        (link_tree if is_artifact else copy_tree)(file, selected.path / "Format-Serving" / served)
    if is_artifact:
        for entry in model.path.iterdir():  # the model card, the Keras form
            if not any(file.is_relative_to(entry) for file in files):
                link_tree(entry, selected.path / entry.name)
    if not (selected.path / CARD).exists():
        written = Model(selected.path)
        facts = {"name": name, "format": written.format, "digest": written.digest, "sizes": written.sizes()}
        write_card(selected.path, facts | {"came_as": model.uri})
    _state_confidence(selected.path, confidence)


def _state_confidence(folder: Path, confidence: str) -> None:
    """Write into a card that the model was selected by measured values; remove what an earlier selection wrote."""
    facts = dict(ModelCard.read(folder).facts)
    stated = {} if confidence == INTERVAL else {CONFIDENCE: ESTIMATE}
    if facts.pop(CONFIDENCE, None) == stated.get(CONFIDENCE):
        return
    (folder / CARD).unlink()  # a link to the card of the candidate, which does not change
    write_card(folder, facts | stated)

"""Training records that a model learned from: a sample of the hashes of their features.

It is in the card of a trained model and of the models made from it, so that `evaluate` finds evaluated records which a
model has learned from in other examples.
"""

import base64
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tfopt.artifacts.model_card import TRAINED_ON, ModelCard, TrainedOn
from tfopt.data.record_hashes import BATCH, MOST_FILES, Hashes, RecordHashes, first_blocks, hash_records
from tfopt.data.tfrecords import read_blocks
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject

MOST = 4096  # different records; each takes 11 bytes of a card


def trained_on_facts(files: list[Path], label: str, cards: Iterable[ModelCard]) -> JsonObject:
    """Return the entry of a model card for a model that is trained on the first `MOST_FILES` of the training split.

    What the models were trained on that it learned from is added, from their cards.
    """
    learned = RecordHashes(most=MOST)
    for file in files[:MOST_FILES]:
        for block in first_blocks(read_blocks([file], BATCH)):
            _add_features(learned, hash_records(block, label)[:, 1])
    for card in cards:
        if earlier := read_trained_on(card, label):
            learned.merge(earlier)
    learned.compact()
    return {
        "label": label,
        "level": learned.level,
        "features": base64.b64encode(learned.features.astype("<u8").tobytes()).decode(),
    }


def read_trained_on(card: ModelCard, label: str) -> RecordHashes | None:
    """Return the sample of a model card; None if there is none, or the model has learned another label.

    Raises:
        ComponentError: If the hashes are not whole.
    """
    trained_on = card.trained_on or TrainedOn()
    if not trained_on.features or trained_on.label != label:
        return None
    learned = RecordHashes(level=trained_on.level, most=MOST)
    try:
        features = np.frombuffer(base64.b64decode(trained_on.features, validate=True), "<u8")
    except ValueError as error:
        raise ComponentError(
            f"model card of {card.name}: {TRAINED_ON}.features: {error}",
            "hashes of 8 bytes in Base64, as tfopt writes them",
            f"restore the card, or remove {TRAINED_ON} from it",
        ) from error
    _add_features(learned, features.astype(np.uint64))
    learned.compact()
    return learned


def _add_features(records: RecordHashes, features: Hashes) -> None:
    records.add(np.stack([features, features], axis=1))

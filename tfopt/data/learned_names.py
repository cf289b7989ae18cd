"""Names that a model learned to number: classes by their number, and the order of packed columns.

They are in ``examples.json``, in the card of a model that was trained on the examples, and in the cards of the models
made from it.
"""

import re
from collections.abc import Sequence

from tfopt.artifacts.model_card import LearnedNames, ModelCard
from tfopt.errors import ComponentError
from tfopt.reports.examples_manifest import ExamplesManifest
from tfopt.value_types import JsonObject

UNNAMED = re.compile(r"c[0-9]+")  # columns of a table without a header


def learned_facts(manifest: ExamplesManifest, label: str) -> JsonObject:
    """Return the entry of a model card for a model trained on examples; empty if they have no names."""
    classes = manifest.classes if manifest.label == label else None
    facts: JsonObject = {"label": label, "classes": classes or None, "packed": manifest.packed}
    return facts if facts["classes"] or facts["packed"] else {}


def find_conflict(card: ModelCard, manifest: ExamplesManifest, label: str | None) -> str | None:
    """Describe the first name with another number in the examples than in the model; None if there is none.

    Names that only one of both has at its end are no conflict: the others have the same numbers. Without a label, only
    the packed columns are compared.
    """
    learned = card.learned or LearnedNames()
    if label is not None and learned.label == label == manifest.label:
        position = _first_difference(learned.classes or (), manifest.classes or ())
        if position is not None:
            names = (learned.classes or [])[position], (manifest.classes or [])[position]
            return f"it learned class {position} as {names[0]!r}; in the examples it is {names[1]!r}"
    packed, shown = learned.packed or {}, manifest.packed or {}
    for feature in sorted(packed.keys() & shown.keys()):
        if any(all(map(UNNAMED.fullmatch, names)) for names in (packed[feature], shown[feature])):
            continue
        position = _first_difference(packed[feature], shown[feature])
        if position is not None:
            names = packed[feature][position], shown[feature][position]
            differing = sum(one != other for one, other in zip(packed[feature], shown[feature], strict=False))
            return (
                f"it learned value {position} of {feature!r} from column {names[0]!r}; in the examples it is column "
                f"{names[1]!r} ({differing} values come from other columns)"
            )
    return None


def check_names(card: ModelCard, manifest: ExamplesManifest, label: str | None, model: str) -> None:
    """Raise ComponentError if there is a conflict, see `find_conflict`; the error names the model."""
    if conflict := find_conflict(card, manifest, label):
        learned = card.learned or LearnedNames()
        fixes = [f"prepare the examples with classes={learned.classes}"] if learned.classes else []
        fixes += ["keep the order of the packed columns"] if learned.packed else []
        raise ComponentError(f"{model}: {conflict}", "the numbers that the model learned", "; ".join(fixes))


def _first_difference(one: Sequence[str], other: Sequence[str]) -> int | None:
    pairs = enumerate(zip(one, other, strict=False))
    return next((position for position, (own, their) in pairs if own != their), None)

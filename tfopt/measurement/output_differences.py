"""What a step that changes weights costs in answers."""

from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.data.sample_inputs import cut, probe
from tfopt.errors import ComponentError
from tfopt.measurement import parity

RECORDS, BATCH = 512, 64


def cost(parent: runtimes.Runtime, child: SavedModel, examples: Examples | None, *, fix: str) -> dict[str, Any]:
    """Return how far the answers moved, for the model card; on examples that were not learnt where there are some.

    Args:
        parent: The model before.
        child: The model that was written.
        examples: Real inputs; random ones when None.
        fix: How to fix a model that no longer tells its inputs apart.

    Raises:
        ComponentError: When the signature changed, or the child gives every input the same answer.
    """
    inputs, source = probe(examples, parent.inputs, records=RECORDS)
    with runtimes.load(child) as loaded:
        found = parity.compare(parent, loaded, cut(inputs, parent.inputs, BATCH))
    for name, differences in found.items():
        if differences.constant:
            raise ComponentError(
                f"output {name!r}: the same answer for every input", "answers that vary as the parent's do", fix
            )
    return {"inputs": source, "outputs": {name: differences.facts() for name, differences in found.items()}}

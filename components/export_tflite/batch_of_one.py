"""SavedModels with a batch size of 1, for LiteRT, which must know the sizes of the elements of a loop's lists.

LiteRT's own LSTM, which its converter makes of layers of Keras 2 with a known batch size, is no replacement: it begins
a call with the state that the last call left, and servers do not reset it.
"""

from dataclasses import replace
from pathlib import Path

from tfopt.artifacts import SavedModel
from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.graph import law_runner
from tfopt.graph.report import Report
from tfopt.saved_models.list_sizes import fix_list_sizes
from tfopt.saved_models.saved_model import opened, write

# The state of a loop begins with zeros for each record of the batch, whose number becomes a constant.
PASSES = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants")


def is_open(specs: dict[str, TensorSpec]) -> bool:
    """Return whether all inputs have an open batch size."""
    return all(spec.shape[:1] == (None,) for spec in specs.values())


def write_with_batch_of_one(model: SavedModel, folder: Path) -> None:
    """Write ``serving_default`` of a model with an open batch size as a frozen SavedModel with a batch size of 1."""
    with opened(model) as frozen:
        signature = frozen.signatures[SERVING_DEFAULT]
        inputs = {name: replace(end, shape=(1, *(end.shape or ())[1:])) for name, end in signature.inputs.items()}
        fixed = replace(frozen, signatures={SERVING_DEFAULT: replace(signature, inputs=inputs)})
        placeholders = {end.node for end in inputs.values()}
        for node in fixed.graph.node:
            if node.name in placeholders:
                node.attr["shape"].shape.dim[0].size = 1
        fixed = law_runner.optimize(fixed, PASSES, Report())
        fix_list_sizes(fixed.graph)
        write(fixed, folder)

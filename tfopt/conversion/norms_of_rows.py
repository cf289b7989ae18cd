"""Layer normalizations that are written as batch norms of rows, as Keras 2 does: plain operations for converters.

LiteRT's converter writes the scale and the offset of these batch norms as tensors of ones and zeros. In 16 bits their
ranges have no width, and the interpreter aborts. OpenVINO and ONNX Runtime recognize the plain operations, and are
faster with them.
"""

from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_runner import optimize
from tfopt.graph.report import Report
from tfopt.graph_def import GraphDef, nodes

# The first three compute the shapes that the last one requires.
LAWS = ("fold_static_shapes", "fold_constants", "fold_reshape_sizes", "cancel_reshapes_around_norms")


def has_norms_of_rows(graph: GraphDef) -> bool:
    """Return True if a batch norm computes the statistics of its own inputs, with channels before rows."""
    norms = (node.attr for node in nodes(graph) if node.op == "FusedBatchNormV3")
    # SavedModels have no attributes with default values.
    return any("is_training" not in norm or norm["is_training"].b for norm in norms if norm["data_format"].s == b"NCHW")


def replace_norms_of_rows(frozen: Frozen) -> Frozen:
    """Return a model whose layer normalizations are means, squares and products."""
    return optimize(frozen, LAWS, Report())

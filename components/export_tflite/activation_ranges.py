"""The ranges of the activations of a float LiteRT file, found as LiteRT's converter finds them."""

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.conversion import calibration
from tfopt.data.batches import Batch
from tfopt.value_types import JsonObject


def measure_stability(content: bytes, feed: list[Batch]) -> JsonObject:
    """Compare the ranges of a float32 flatbuffer's activations on two disjoint halves of the calibration data."""
    tensors = _activations(content)
    interpreter = Interpreter(
        model_content=content,
        num_threads=1,
        # Of the ops that a delegate computes, only the outputs of the last one would be readable.
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    halves = calibration.split_halves(feed)
    return calibration.compare_ranges(*(_ranges(interpreter, tensors, half) for half in halves))


def _ranges(interpreter: Interpreter, tensors: dict[int, str], feed: list[Batch]) -> calibration.Ranges:
    """Return the smallest and the largest value of each tensor in all batches."""
    call = interpreter.get_signature_runner(SERVING_DEFAULT)
    lows, highs = np.full(len(tensors), np.inf), np.full(len(tensors), -np.inf)
    for batch in feed:
        call(**batch)
        arrays = [interpreter.get_tensor(index) for index in tensors]
        lows = np.fmin(lows, [array.min() for array in arrays])
        highs = np.fmax(highs, [array.max() for array in arrays])
    ends = zip(lows.tolist(), highs.tolist(), strict=True)
    return dict(zip(tensors.values(), ends, strict=True))


def _activations(content: bytes) -> dict[int, str]:
    """Return the names of the float tensors that are inputs or results of operations, by index."""
    graph = schema.ModelT.InitFromPackedBuf(content, 0).subgraphs[0]
    indices = [*graph.inputs, *(index for op in graph.operators for index in op.outputs)]
    tensors = {int(index): graph.tensors[index] for index in indices}
    return {
        index: tensor.name.decode() for index, tensor in tensors.items() if tensor.type == schema.TensorType.FLOAT32
    }

"""The operations of a LiteRT file that 8 bits break."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from tfopt.components.export_tflite import flatbuffer
from tfopt.conversion.activation_ranges import Range
from tfopt.conversion.exact_values import (
    FloatPart,
    Operation,
    Role,
    find_float_part,
    is_mask,
    with_few_levels,
    with_masks,
)

PRODUCTS = {"FULLY_CONNECTED", "BATCH_MATMUL", "CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "SVDF"}
RECURRENT = {"LSTM", "RNN", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"}
LAYERS = PRODUCTS | RECURRENT | {"BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "WHILE", "IF"}
LOOKUPS = ("GATHER", "GATHER_ND", "EMBEDDING_LOOKUP")  # in stored weights they are layers; their indices are integers
SHAPES = {"SHAPE", "RANK"}
COMPARISONS = {"EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "SIGN"}
ROUNDINGS = {"FLOOR", "CEIL", "ROUND", "FLOOR_DIV", "FLOOR_MOD"}
EXACT = COMPARISONS | ROUNDINGS | {"ONE_HOT", "ARG_MAX", "ARG_MIN", "TOPK_V2", "UNIQUE", "WHERE"}
EXACT |= {"RANGE", "SIN", "COS"}
SCALING = ("ADD", "SUB", "MUL", "DIV")
FIXED = {"SOFTMAX", "LOGISTIC", "TANH", "L2_NORMALIZATION"}  # LiteRT's 8-bit kernels have a range up to 1 for results
SELECTIONS = {"SELECT", "SELECT_V2", "MAXIMUM", "MINIMUM", "CONCATENATION"}
SUMS = SELECTIONS | {"ADD", "SUB", "ADD_N"}
DEVIATIONS, SQUARES = {"SQRT", "RSQRT"}, {"SQUARED_DIFFERENCE", "SQUARE"}
MOVES = {"RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "SLICE", "STRIDED_SLICE", "SPLIT", "GATHER", "TILE"}
SCALES_APART = 100  # of weights, from which on 8 bits of a common scale lose the smaller inputs
FLOATS = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16, schema.TensorType.FLOAT64)


def find(content: bytes) -> FloatPart:
    """Return the ops of a float file to leave in float, each by the name of its first output."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    operations = _operations(file)
    names = [tensor.name.decode() for tensor in file.subgraphs[0].tensors]
    floating = find_float_part(operations, {names[index] for index in file.subgraphs[0].inputs})
    return _with_one_hots(floating, operations)


def _operations(file: Any) -> list[Operation]:
    """Return the ops of a file, each by the name of its first output."""
    graph = file.subgraphs[0]
    kinds = [flatbuffer.op_name(code) for code in file.operatorCodes]
    names = [tensor.name.decode() for tensor in graph.tensors]
    operations: list[Operation] = []
    scaled: set[str] = set()
    for op in graph.operators:
        if not _count(op.outputs) or not _count(op.inputs):
            continue
        kind, writes = kinds[op.opcodeIndex], tuple(names[index] for index in op.outputs)
        indices = [index for index in op.inputs if index >= 0]
        reads = tuple(names[index] for index in indices if _stored(file, index) is None)
        role = _role(file, op, kind)
        # The converter multiplies weights by the scales of a normalization where it can.
        if kind == "FULLY_CONNECTED" and scaled.intersection(reads) and _are_columns_scaled(file, op.inputs[1]):
            role = "scaling"
        if role == "scaling":
            scaled |= set(writes)
        stored = [number for index in indices if (number := _numbers(file, index)) is not None]
        operations.append(Operation(writes[0], kind, role, reads, writes, any(map(is_mask, stored))))
    return operations


def add_few_levels(part: FloatPart, content: bytes, ranges: Mapping[str, Range]) -> FloatPart:
    """Add the ops whose results take few levels in 8 bits, and what reads them: LiteRT has no other range for them."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    names = [tensor.name.decode() for tensor in file.subgraphs[0].tensors]
    kinds = [flatbuffer.op_name(code) for code in file.operatorCodes]
    operators = [op for op in file.subgraphs[0].operators if _count(op.outputs)]
    results = {names[op.outputs[0]]: (names[op.outputs[0]], kinds[op.opcodeIndex]) for op in operators}
    part = with_few_levels(part, results, ranges, FIXED)
    read, readers = set(part.fixed), []
    for op in operators:
        if _count(op.inputs) and read.intersection(names[index] for index in op.inputs if index >= 0):
            readers.append(names[op.outputs[0]])
            read |= {names[index] for index in op.outputs} if kinds[op.opcodeIndex] in MOVES else set()
    return replace(part, operations=list(dict.fromkeys([*part.operations, *readers])))


def add_masks(
    part: FloatPart, content: bytes, ranges: Mapping[str, Range], bits: int, infinite: Collection[str]
) -> FloatPart:
    """Add the ops that mask values, and those that follow; see `with_masks`.

    LiteRT's quantizer gives the operands of a selection the scale of its result also if the selection stays in float.
    """
    operations = _operations(schema.ModelT.InitFromPackedBuf(content, 0))
    part = with_masks(part, operations, ranges, sums=SUMS, bounded=FIXED, levels=2**bits - 1, infinite=infinite)
    return replace(part, shared=part.shared or not SELECTIONS.isdisjoint(part.masks.values()))


def find_last_activations(content: bytes) -> list[str]:
    """Return the ops whose results are outputs and have a fixed range in 8 bits, and what reads or moves these results.

    In steps of 1/256, small probabilities are zeros, although outputs are floats in the end.
    """
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = file.subgraphs[0]
    kinds = [flatbuffer.op_name(code) for code in file.operatorCodes]
    producers = {index: op for op in graph.operators if _count(op.outputs) for index in op.outputs}
    results: set[int] = set()
    for index in graph.outputs:
        moved = [index]
        while (op := producers.get(moved[-1])) is not None and kinds[op.opcodeIndex] in MOVES:
            moved.append(op.inputs[0])
        if op is not None and kinds[op.opcodeIndex] in FIXED:
            results |= {*moved}
    readers = [op for op in producers.values() if kinds[op.opcodeIndex] == "SHAPE" and op.inputs[0] in results]
    outputs = [*results, *(op.outputs[0] for op in readers)]
    return sorted({graph.tensors[index].name.decode() for index in outputs})


def find_normalizations(content: bytes) -> list[str]:
    """Return the ops that divide values by their own deviation, and those that scale and shift the results.

    The variance is a mean of squares, whose range is the square of that of the values: in 8 bits most are zeros.
    """
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    graph, kinds = file.subgraphs[0], [flatbuffer.op_name(code) for code in file.operatorCodes]
    operators = [op for op in graph.operators if _count(op.outputs) and _count(op.inputs)]
    producers = {index: op for op in operators for index in op.outputs}
    operations: dict[int, Any] = {}
    normalized = {op.outputs[0] for op in operators if kinds[op.opcodeIndex] == "FILL"}
    for root in (op for op in operators if kinds[op.opcodeIndex] in DEVIATIONS):
        chain, op = [root], producers.get(root.inputs[0])
        while op is not None and kinds[op.opcodeIndex] in (*SCALING, "MEAN") and not _is_square(op, kinds):
            chain.append(op)  # the sum with epsilon, and the mean of squares
            op = next((producers[index] for index in op.inputs if index in producers), None)
        if op is None or not _is_square(op, kinds) or all(kinds[other.opcodeIndex] != "MEAN" for other in chain):
            continue
        means = [producers[index] for index in op.inputs if index in producers]
        means += [producers[index] for other in means for index in other.inputs if index in producers]
        chain += [op, *(other for other in means if kinds[other.opcodeIndex] in ("MEAN", "SUB"))]
        operations |= {other.outputs[0]: other for other in chain}
        normalized.update(index for other in chain for index in other.inputs)
    for op in operators:  # in the order of the computation
        others = [index for index in op.inputs if index not in operations and _stored(file, index) is None]
        is_linear = kinds[op.opcodeIndex] in (*SCALING, "NEG")
        if is_linear and operations.keys() & set(op.inputs) and normalized.issuperset(others):
            operations[op.outputs[0]] = op
    return [graph.tensors[index].name.decode() for index in operations]


def _is_square(op: Any, kinds: list[str]) -> bool:
    kind = kinds[op.opcodeIndex]
    return kind in SQUARES or (kind == "MUL" and op.inputs[0] == op.inputs[1])


def _with_one_hots(floating: FloatPart, operations: list[Operation]) -> FloatPart:
    """Return the part with all one-hot encodings, also behind layers.

    In 8 bits LiteRT writes the code 0 for "not this class", which is the value 0.5 on the scale of the result.
    """
    one_hots = {op.name: op.kind for op in operations if op.kind == "ONE_HOT" and op.name not in floating.operations}
    return replace(floating, operations=[*floating.operations, *one_hots], exact=floating.exact | one_hots)


def _role(file: Any, op: Any, kind: str) -> Role:
    tensors = file.subgraphs[0].tensors
    indices = [index for index in op.inputs if index >= 0]
    floats = [index for index in indices if tensors[index].type in FLOATS]
    if kind in LAYERS or (kind in LOOKUPS and any(_stored(file, index) is not None for index in floats)):
        return "layer"
    if kind in SHAPES:
        return "shape"
    reads_floats = any(_stored(file, index) is None for index in floats)
    if kind == "CAST":
        return "exact" if reads_floats and tensors[op.outputs[0]].type not in FLOATS else "plain"
    if kind in EXACT and reads_floats:
        return "exact"
    if kind in SCALING and reads_floats and any(_has_columns(file, index) for index in indices):
        return "scaling"
    return "plain"


def _has_columns(file: Any, index: int) -> bool:
    """Return True if a tensor is a constant of different numbers."""
    numbers = _numbers(file, index)
    return numbers is not None and np.unique(numbers).size > 1


def _are_columns_scaled(file: Any, index: int) -> bool:
    """Return True if the weights of most inputs differ from each other by orders of magnitude."""
    numbers = _numbers(file, index)
    if numbers is None:
        return False
    largest = np.abs(numbers.reshape(-1, file.subgraphs[0].tensors[index].shape[-1])).max(axis=0)
    low, high = np.quantile(largest[largest > 0], (0.1, 0.9)) if largest.any() else (1.0, 1.0)
    return bool(high > SCALES_APART * low)


def _numbers(file: Any, index: int) -> NDArray[np.float32] | None:
    stored = _stored(file, index)
    if stored is None or file.subgraphs[0].tensors[index].type != schema.TensorType.FLOAT32:
        return None
    return np.frombuffer(np.asarray(stored, np.uint8).tobytes(), np.float32)


def _count(indices: Any) -> int:
    """Return the number of tensors of an op; empty lists are None in some files."""
    return 0 if indices is None else len(indices)


def _stored(file: Any, index: int) -> Any:
    data = file.buffers[file.subgraphs[0].tensors[index].buffer].data
    return None if data is None or not len(data) else data

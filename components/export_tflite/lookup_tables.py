"""Lookups in tables of float weights, such as those of embeddings, as an op that ai-edge-quantizer quantizes.

LiteRT's converter writes them as GATHER, whose table stays in float32. The table of EMBEDDING_LOOKUP can have 4 or 8
bits with a scale for each row. It takes indices in one axis, so that others are reshaped before and after.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from tensorflow.lite.tools.flatbuffer_utils import convert_object_to_bytearray

from tfopt.components.export_tflite.flatbuffer import op_name

Op = schema.BuiltinOperator
INT32, INT64, FLOAT32 = schema.TensorType.INT32, schema.TensorType.INT64, schema.TensorType.FLOAT32


def replace_gathers(content: bytes) -> bytes:
    """Return a float file with EMBEDDING_LOOKUP in place of each GATHER of rows of a stored table.

    The outputs do not change. Indices of more than one unknown size stay as they are.
    """
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    codes = [op_name(code) for code in file.operatorCodes]
    replaced = False
    for graph in file.subgraphs:
        operators: list[schema.OperatorT] = []
        for op in graph.operators or []:
            is_lookup = codes[op.opcodeIndex] == "GATHER" and _is_lookup(file, graph, op)
            operators += _look_up(file, graph, op) if is_lookup else [op]
            replaced |= is_lookup
        graph.operators = operators
    return bytes(convert_object_to_bytearray(file)) if replaced else content


def _is_lookup(file: schema.ModelT, graph: schema.SubGraphT, op: schema.OperatorT) -> bool:
    table, indices = (graph.tensors[index] for index in op.inputs)
    options = op.builtinOptions
    return (
        (options is None or options.axis == options.batchDims == 0)
        and table.type == FLOAT32
        and len(table.shape) == 2
        and file.buffers[table.buffer].data is not None
        and indices.type in (INT32, INT64)
        and len(_sizes(indices)) > 0
        and sum(size < 0 for size in _sizes(indices)) <= 1
    )


def _look_up(file: schema.ModelT, graph: schema.SubGraphT, gather: schema.OperatorT) -> Iterator[schema.OperatorT]:
    """Yield the operators that replace a GATHER; the last one has its output."""
    (table, indices), (output,) = gather.inputs, gather.outputs
    name, sizes = graph.tensors[output].name.decode(), _sizes(graph.tensors[indices])
    is_flat, columns = len(sizes) == 1, int(graph.tensors[table].shape[1])
    count = -1 if min(sizes) < 0 else int(np.prod(sizes))

    def add(suffix: str, kind: int, sizes: Sequence[int]) -> int:
        return _add_tensor(graph, f"{name}/{suffix}", kind, sizes)

    if graph.tensors[indices].type == INT64:
        cast = add("indices", INT32, sizes)
        yield _operator(file, Op.CAST, [indices], cast)
        indices = cast
    if not is_flat:
        flat = add("flat_indices", INT32, [count])
        yield _operator(file, Op.RESHAPE, [indices, _add_constant(file, graph, f"{name}/flat", [count])], flat)
        indices = flat
    rows = output if is_flat else add("rows", FLOAT32, [count, columns])
    yield _operator(file, Op.EMBEDDING_LOOKUP, [indices, table], rows)
    if not is_flat:
        shape = _add_constant(file, graph, f"{name}/shape", [*sizes, columns])
        yield _operator(file, Op.RESHAPE, [rows, shape], output)


def _sizes(tensor: schema.TensorT) -> list[int]:
    """Return the sizes of a tensor, -1 for an unknown one."""
    sizes = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
    return [] if sizes is None else [int(size) for size in sizes]


def _add_tensor(graph: schema.SubGraphT, name: str, kind: int, sizes: Sequence[int], buffer: int = 0) -> int:
    tensor = schema.TensorT()
    tensor.name, tensor.type, tensor.buffer = name.encode(), kind, buffer
    tensor.shape = np.array([max(size, 1) for size in sizes], np.int32)
    tensor.shapeSignature = np.array(sizes, np.int32) if min(sizes) < 0 else None
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def _add_constant(file: schema.ModelT, graph: schema.SubGraphT, name: str, values: Sequence[int]) -> int:
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.array(values, np.int32).tobytes(), np.uint8)
    file.buffers.append(buffer)
    return _add_tensor(graph, name, INT32, [len(values)], len(file.buffers) - 1)


def _operator(file: schema.ModelT, kind: int, inputs: Sequence[int], output: int) -> schema.OperatorT:
    op: Any = schema.OperatorT()
    op.opcodeIndex = _code_index(file, kind)
    op.inputs, op.outputs = np.array(inputs, np.int32), np.array([output], np.int32)
    return op


def _code_index(file: schema.ModelT, kind: int) -> int:
    """Return the index of an operator code, which is added if the file does not have it."""
    kinds = [max(code.builtinCode, code.deprecatedBuiltinCode) for code in file.operatorCodes]
    if kind not in kinds:
        code = schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = kind
        code.version = 1
        file.operatorCodes.append(code)
        return len(kinds)
    return kinds.index(kind)

"""What is in a LiteRT file: its ops, in which arithmetic, and whether the weights are there."""

from collections import Counter
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from tfopt.errors import ComponentError

OPS = {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
TYPES = {code: name for name, code in vars(schema.TensorType).items() if isinstance(code, int)}
INTEGERS = (schema.TensorType.INT8, schema.TensorType.UINT8, schema.TensorType.INT16)
FLOATS = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)
CASTS = ("QUANTIZE", "DEQUANTIZE")
SCALE_BYTES = 4 + 8  # a float, and a zero point


def describe(content: bytes) -> dict[str, Any]:
    """Return how many ops compute in integers, which in floats, the Flex ops, the dtypes of the signature, and more.

    Raises:
        ComponentError: When the file reads variables that nothing ever writes: its weights were left behind.
    """
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    codes = [_name(code) for code in file.operatorCodes]
    found = [(codes[op.opcodeIndex], op, graph) for graph in file.subgraphs for op in graph.operators or []]
    names = {name for name, _, _ in found}
    if "READ_VARIABLE" in names and "ASSIGN_VARIABLE" not in names:
        raise ComponentError(
            "a converted file without weights: it reads variables that nothing writes",
            "weights stored as constants",
            "export the SavedModel again with its variables tracked",
        )
    kinds = [
        (name, graph.tensors[op.outputs[0]].type) for name, op, graph in found if len(op.outputs) and name not in CASTS
    ]
    return {
        "integer": sum(kind in INTEGERS for _, kind in kinds),
        "float": dict(sorted(Counter(name for name, kind in kinds if kind in FLOATS).items())),
        "flex": sorted(name.removeprefix("Flex") for name in names if name.startswith("Flex")),
        "io": _signature_types(file),
        "sparse": sum(tensor.sparsity is not None for graph in file.subgraphs for tensor in graph.tensors),
        "constant_bytes": sum(len(buffer.data) for buffer in file.buffers if buffer.data is not None),
    }


def dense_scale_bytes(content: bytes) -> int:
    """What the scales and zero points of single channels take in the weights and biases of dense layers."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    codes = [_name(code) for code in file.operatorCodes]
    dense = [
        (graph, index)
        for graph in file.subgraphs
        for op in graph.operators or []
        if codes[op.opcodeIndex] == "FULLY_CONNECTED"
        for index in op.inputs[1:]
        if index >= 0
    ]
    found = {(id(graph), index): graph.tensors[index].quantization for graph, index in dense}
    counts = [len(one.scale) for one in found.values() if one is not None and one.scale is not None]
    return sum(SCALE_BYTES * count for count in counts if count > 1)


def _signature_types(file: Any) -> dict[str, str]:
    ends = [(graph, end) for graph in file.signatureDefs or [] for end in (*graph.inputs, *graph.outputs)]
    return {
        end.name.decode(): TYPES[file.subgraphs[signature.subgraphIndex].tensors[end.tensorIndex].type]
        for signature, end in ends
    }


def _name(code: Any) -> str:
    custom: bytes | None = code.customCode
    return custom.decode() if custom else OPS[max(code.builtinCode, code.deprecatedBuiltinCode)]

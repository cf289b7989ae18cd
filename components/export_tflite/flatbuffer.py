"""Contents of a LiteRT file: ops, arithmetic, signature, weights."""

import hashlib
from collections import Counter
from typing import Any, TypedDict

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

OPS = {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
TYPES = {code: name for name, code in vars(schema.TensorType).items() if isinstance(code, int)}
INTEGERS = (schema.TensorType.INT8, schema.TensorType.UINT8, schema.TensorType.INT16)
FLOATS = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)
CASTS = ("QUANTIZE", "DEQUANTIZE")
SCALE_BYTES = 4  # of a float32 scale; the zero points are those of other channels, which are all 0 (`share_vectors`)
ALIGNMENT = 16  # bytes, of constants, as LiteRT's converter writes them
MAX_BYTES = 1 << 30  # of a file that is written again; those of over 2 GB have constants outside of the flatbuffer


class FlatbufferFacts(TypedDict):
    """Integer, float and Flex ops, dtypes of the signature, sparse tensors, and bytes of constants."""

    integer: int
    float: dict[str, int]
    flex: list[str]
    io: dict[str, str]
    sparse: int
    constant_bytes: int


def describe(content: bytes) -> FlatbufferFacts:
    """Return the number of integer ops, the float ops, the Flex ops, the dtypes of the signature, and sizes."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    codes = [op_name(code) for code in file.operatorCodes]
    ops = [(codes[op.opcodeIndex], op, graph) for graph in file.subgraphs for op in graph.operators or []]
    names = {name for name, _, _ in ops}
    made = [(name, op.outputs, graph) for name, op, graph in ops if op.outputs is not None and len(op.outputs)]
    kinds = [(name, graph.tensors[outputs[0]].type) for name, outputs, graph in made if name not in CASTS]
    return {
        "integer": sum(kind in INTEGERS for _, kind in kinds),
        "float": dict(sorted(Counter(name for name, kind in kinds if kind in FLOATS).items())),
        "flex": sorted(name.removeprefix("Flex") for name in names if name.startswith("Flex")),
        "io": {
            end.name.decode(): TYPES[file.subgraphs[signature.subgraphIndex].tensors[end.tensorIndex].type]
            for signature in file.signatureDefs or []
            for end in (*signature.inputs, *signature.outputs)
        },
        "sparse": sum(tensor.sparsity is not None for graph in file.subgraphs for tensor in graph.tensors),
        "constant_bytes": sum(len(buffer.data) for buffer in file.buffers if buffer.data is not None),
    }


def share_vectors(content: bytes) -> bytes:
    """Return the same file with each vector stored once, and all constants inside, if that is smaller.

    Every channel of a kernel and of a bias has a zero point of 8 bytes, which is 0: all kernels of as many channels can
    refer to the same ones.
    """
    if len(content) > MAX_BYTES:
        return content
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    outside = [buffer for buffer in file.buffers if buffer.offset > 1]
    for buffer in outside:  # as ai-edge-quantizer writes constants of over 256 kB
        buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
        buffer.offset = buffer.size = 0
    builder = _SharingBuilder(len(content))
    builder.Finish(file.Pack(builder), file_identifier=b"TFL3")
    shared = bytes(builder.Output())
    return shared if outside or len(shared) < len(content) else content


class _SharingBuilder(schema.flatbuffers.Builder):  # type: ignore[misc]  # the package that LiteRT installs
    """Writes a flatbuffer in which equal vectors are one."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._written: dict[tuple[str, bytes], int] = {}

    def CreateNumpyVector(self, x: NDArray[Any]) -> int:  # noqa: N802  (the name of the base class)
        """Write a vector, or return the place of an equal one."""
        key = x.dtype.str, hashlib.sha256(x.tobytes()).digest()
        if key not in self._written:
            if x.dtype == np.uint8:  # the content of a constant
                self.Prep(ALIGNMENT, x.nbytes)
            self._written[key] = super().CreateNumpyVector(x)
        return self._written[key]


def has_lost_weights(content: bytes) -> bool:
    """Return whether the file reads variables that nothing writes."""
    file = schema.Model.GetRootAs(content)
    codes = {file.OperatorCodes(index).BuiltinCode() for index in range(file.OperatorCodesLength())}
    return schema.BuiltinOperator.READ_VARIABLE in codes and schema.BuiltinOperator.ASSIGN_VARIABLE not in codes


def dense_scale_bytes(content: bytes) -> int:
    """Return the size of the scales and zero points of single channels in dense layers, of weights and biases."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    codes = [op_name(code) for code in file.operatorCodes]
    dense = [
        (graph, index)
        for graph in file.subgraphs
        for op in graph.operators or []
        if codes[op.opcodeIndex] == "FULLY_CONNECTED"
        for index in op.inputs[1:]
        if index >= 0
    ]
    quantization = {(id(graph), index): graph.tensors[index].quantization for graph, index in dense}
    counts = [len(entry.scale) for entry in quantization.values() if entry is not None and entry.scale is not None]
    return sum(SCALE_BYTES * count for count in counts if count > 1)


def op_name(code: Any) -> str:
    """Return the name of an operator code, also of a custom one."""
    custom: bytes | None = code.customCode
    return custom.decode() if custom else OPS[max(code.builtinCode, code.deprecatedBuiltinCode)]

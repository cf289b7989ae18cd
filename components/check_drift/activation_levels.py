"""Count the values of activations at the ends of their 8-bit range, in LiteRT and ONNX files."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model, OnnxModel
from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.components.check_drift.graph_levels import open_openvino, open_saved_model
from tfopt.components.check_drift.levels import FIXED, Levels, Shares
from tfopt.data.batches import Batch
from tfopt.runtimes.onnx import OnnxRuntime


@contextmanager
def open_levels(model: Model) -> Iterator[Callable[[Batch], Shares] | None]:
    """Yield a function that returns the share of each activation for a record; None if the file has no 8-bit levels."""
    counters = {
        "tflite": _open_tflite,
        "onnx": _open_onnx,
        "openvino": open_openvino,
        "saved_model": open_saved_model,
    }
    if model.format not in counters:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        yield counters[model.format](model, Path(folder))


def _open_tflite(model: Model, folder: Path) -> Callable[[Batch], Shares] | None:
    from ai_edge_litert import schema_py_generated as schema  # only files of this format need LiteRT
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    assert model.tflite
    content = model.tflite.read_bytes()
    levels = _tflite_levels(schema.ModelT.InitFromPackedBuf(content, 0), schema)
    if not levels:
        return None
    interpreter = Interpreter(
        model_content=content,
        num_threads=1,
        # Of the operations that a delegate computes, only the outputs of the last one would be readable.
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    names = interpreter.get_signature_list()
    call = interpreter.get_signature_runner(SERVING_DEFAULT if SERVING_DEFAULT in names else next(iter(names)))

    def count(batch: Batch) -> Shares:
        call(**batch)
        return {one.name: one.share(interpreter.get_tensor(index)) for index, one in levels.items()}

    return count


def _tflite_levels(model: Any, schema: Any) -> dict[int, Levels]:
    graph = model.subgraphs[0]
    kinds = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    integers = {schema.TensorType.INT8: np.int8, schema.TensorType.INT16: np.int16}
    levels: dict[int, Levels] = {}
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        kind = kinds.get(max(code.builtinCode, code.deprecatedBuiltinCode), "")
        for index in () if operator.outputs is None or kind in FIXED else operator.outputs:
            tensor = graph.tensors[index]
            facts = tensor.quantization
            if tensor.type not in integers or facts is None or facts.scale is None or len(facts.scale) != 1:
                continue
            if any(_same_range(graph.tensors[one], tensor) for one in operator.inputs if one >= 0):
                continue  # it only moves values, as a Reshape does
            named = graph.tensors[operator.inputs[0]] if kind == "QUANTIZE" else tensor
            name = named.name.decode().removeprefix(f"{SERVING_DEFAULT}_").removesuffix(":0")
            levels[int(index)] = Levels.of(name, integers[tensor.type], int(facts.zeroPoint[0]))
    return levels


def _same_range(one: Any, other: Any) -> bool:
    facts = one.quantization, other.quantization
    if one.type != other.type or any(each is None or each.scale is None for each in facts):
        return False
    return all(np.array_equal(getattr(facts[0], name), getattr(facts[1], name)) for name in ("scale", "zeroPoint"))


def _open_onnx(model: Model, folder: Path) -> Callable[[Batch], Shares] | None:
    import onnx  # only files of this format need these packages
    from onnx import numpy_helper

    proto = onnx.load(str(model.onnx))
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    producers = {name: node for node in proto.graph.node for name in node.output}
    levels: dict[str, Levels] = {}
    ranges = set()  # tensors that only move values, as a Reshape makes, have the same one
    for node in proto.graph.node:
        if node.op_type != "QuantizeLinear" or len(node.input) < 3 or node.input[2] not in constants:
            continue
        producer, zero = producers.get(node.input[0]), numpy_helper.to_array(constants[node.input[2]])
        if zero.size != 1 or (producer is not None and producer.op_type in FIXED):
            continue
        scale = constants.get(node.input[1])
        if scale is None or (facts := (scale.raw_data or tuple(scale.float_data), int(zero.reshape(())))) in ranges:
            continue
        ranges.add(facts)
        name = producer.name or node.input[0] if producer is not None else node.input[0]
        levels[node.output[0]] = Levels.of(name, zero.dtype, int(zero.reshape(())))
    if not levels:
        return None
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in levels)
    onnx.save(proto, folder / "levels.onnx")
    # Fused kernels would compute some of these tensors no more.
    runtime = OnnxRuntime(OnnxModel(folder / "levels.onnx"), 1, unfused=True)

    def count(batch: Mapping[str, NDArray[Any]]) -> Shares:
        results = runtime.run_without_limit(batch)
        return {one.name: one.share(results[name]) for name, one in levels.items()}

    return count

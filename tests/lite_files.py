"""Read kernels and scales of a .tflite file."""

from pathlib import Path

import numpy as np

WITH_KERNEL = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def kernels(file: Path) -> list[np.ndarray]:
    """Return the kernels in the order of their ops, output channels first (last for depthwise ones)."""
    interpreter = _interpreter(file)
    ops = [op for op in interpreter._get_ops_details() if op["op_name"] in WITH_KERNEL]
    return [interpreter.get_tensor(op["inputs"][1]) for op in ops]


def scales(file: Path) -> dict[str, list[float]]:
    """Return the output scales of each kind of op, in the order of the ops."""
    interpreter = _interpreter(file)
    details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    scales_by_op: dict[str, list[float]] = {}
    for op in interpreter._get_ops_details():
        for index in op["outputs"]:
            scales_by_op.setdefault(op["op_name"], []).append(details[index]["quantization"][0])
    return scales_by_op


def _interpreter(file: Path):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # a delegate would hide the ops that it executes
    interpreter = Interpreter(model_path=str(file), experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    return interpreter

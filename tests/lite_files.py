"""What tests read in a .tflite file: the kernels of its ops, as they are stored."""

from pathlib import Path

import numpy as np

WITH_KERNEL = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def kernels(file: Path) -> list[np.ndarray]:
    """The kernels, output channels first (last for a depthwise one), in the order of their ops."""
    interpreter = _interpreter(file)
    found = [op for op in interpreter._get_ops_details() if op["op_name"] in WITH_KERNEL]
    return [interpreter.get_tensor(op["inputs"][1]) for op in found]


def scales(file: Path) -> dict[str, list[float]]:
    """The scales of the answers of each kind of op, in their order."""
    interpreter = _interpreter(file)
    details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    found: dict[str, list[float]] = {}
    for op in interpreter._get_ops_details():
        for index in op["outputs"]:
            found.setdefault(op["op_name"], []).append(details[index]["quantization"][0])
    return found


def _interpreter(file: Path):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # a delegate would hide the ops it takes over
    interpreter = Interpreter(model_path=str(file), experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    return interpreter

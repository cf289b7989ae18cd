"""Short names for what ONNX Runtime's quantizer adds to a graph.

It builds the names of six tensors for each activation from the name that the converter gave it, which is the whole path
of a layer: three quarters of the file of a small network.
"""

import itertools

import onnx

from tfopt.conversion.onnx.node_order import subgraphs

ENDINGS = ("_quantized", "_scale", "_zero_point")
PAIR = ("QuantizeLinear", "DequantizeLinear")


def shorten_names(model: onnx.ModelProto) -> None:
    """Number quantizing nodes, their results and constants; remove shapes of inner tensors and domains of unused ops.

    Other nodes and tensors keep the names of the converter.
    """
    graphs = list(subgraphs(model.graph))
    ends = {end.name for graph in graphs for end in (*graph.input, *graph.output)}
    added = [name for node in model.graph.node if node.op_type in PAIR for name in (*node.input[1:], *node.output)]
    constants = [constant.name for constant in model.graph.initializer if constant.name.endswith(ENDINGS)]
    computed = {name for graph in graphs for node in graph.node if node.op_type not in PAIR for name in node.output}
    stored = {constant.name for graph in graphs for constant in graph.initializer}
    used = computed | ends | stored
    free = (name for name in (f"q{number}" for number in itertools.count(1)) if name not in used)
    names = dict(zip(dict.fromkeys(name for name in (*added, *constants) if name not in ends), free, strict=False))
    for graph in graphs:
        for node in graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
            if node.op_type in PAIR:
                node.name = node.output[0]
        del graph.value_info[:]
    for constant in model.graph.initializer:
        constant.name = names.get(constant.name, constant.name)
    domains = {"ai.onnx" if node.domain == "" else node.domain for graph in graphs for node in graph.node}
    for opset in [opset for opset in model.opset_import if (opset.domain or "ai.onnx") not in domains]:
        model.opset_import.remove(opset)

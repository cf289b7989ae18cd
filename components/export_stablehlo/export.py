"""Export of a model to StableHLO, as a child process runs it: convert with XLA, serialize, verify."""

import contextlib
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, StableHLOModel
from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.export_stablehlo.parameters import StableHLOConversion
from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.verification import check_whole_inputs, verify
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.graph import grappler
from tfopt.graph.frozen_model import Frozen
from tfopt.graph_def import GraphDef, subgraph
from tfopt.reports import report_schema
from tfopt.runtimes.stablehlo import StableHLOSignature, Tensor, run_once
from tfopt.saved_models import saved_model
from tfopt.saved_models.unsupported_ops import check_supported

CUSTOM_CALL = b"custom_call"
XLA_OWN = re.compile(r"custom_call @(\w+)|= (mhlo\.\w+)")


def export(model: Model, examples: Examples | None, target: Path, parameters: StableHLOConversion) -> ConversionFacts:
    """Write ``Format-Serving`` to the staging folder ``target``, and return metadata for the model card."""
    file = target / "Format-Serving" / "model.mlirbc"
    file.parent.mkdir()
    parent = runtimes.load(model)
    check_whole_inputs(parent, examples, parameters)
    with saved_model.opened(model) as frozen:
        reduced = _default_signature(frozen)
    fixed = {name: _fix_batch(name, spec, parameters.batch_size) for name, spec in parent.inputs.items()}
    facts: ConversionFacts = {"batch_size": parameters.batch_size} if fixed != parent.inputs else {}
    parent.inputs = fixed
    with tempfile.TemporaryDirectory(dir=target, prefix=".stablehlo-") as folder:
        saved_model.write(reduced, Path(folder, "frozen"))
        content, version = _lower(Path(folder, "frozen"), fixed, list(parent.outputs))
    inputs = [Tensor(name, spec.dtype, [size or 0 for size in spec.shape]) for name, spec in fixed.items()]
    outputs = [Tensor(name, spec.dtype) for name, spec in parent.outputs.items()]
    signature = StableHLOSignature(version, inputs, outputs)
    shapes = {name: list(array.shape) for name, array in run_once(content, signature).items()}
    outputs = [replace(tensor, shape=shapes[tensor.name]) for tensor in outputs]
    file.write_bytes(content)
    described = report_schema.dump(replace(signature, outputs=outputs))
    file.with_suffix(".json").write_text(json.dumps(described, indent=1))
    with runtimes.load(StableHLOModel(target)) as child:
        facts["verified"] = verify(parent, child, examples, None, parameters, "float32")
    return {"precision": "float32", "stablehlo_version": version, **facts}


def _default_signature(frozen: Frozen) -> Frozen:
    """Return the part of a model that the default signature needs, without debugging operations.

    Raises:
        ComponentError: If XLA cannot compile an operation of it.
    """
    signature = frozen.signatures[SERVING_DEFAULT]
    ends = [end.node for end in (*signature.inputs.values(), *signature.outputs.values())]
    frozen = replace(frozen, graph=subgraph(frozen.graph, ends), signatures={SERVING_DEFAULT: signature})
    frozen = grappler.run(frozen, ["debug_stripper"])
    _replace_erf(frozen.graph)
    check_supported(frozen, "export the model from a signature without them, or use export_onnx or export_tflite")
    return frozen


def _replace_erf(graph: GraphDef) -> None:
    """Replace erf(x) by 1 - erfc(x) in place: XLA has an operation of its own for erf, which StableHLO lacks."""
    import tensorflow as tf

    for node in [node for node in graph.node if node.op == "Erf"]:
        complement, one = graph.node.add(), graph.node.add(op="Const", name=f"{node.name}/one")
        complement.CopyFrom(node)
        complement.op, complement.name = "Erfc", f"{node.name}/erfc"
        one.attr["dtype"].type = node.attr["T"].type
        one.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(1, node.attr["T"].type))
        node.op = "Sub"
        node.input[:] = [one.name, complement.name]


def _fix_batch(name: str, spec: TensorSpec, batch_size: int) -> TensorSpec:
    shape = spec.shape if not spec.shape or spec.shape[0] else (batch_size, *spec.shape[1:])
    if None in shape or not spec.ranked:
        fix = "export the model with a fixed size there, such as a fixed length of sequences"
        raise ComponentError(f"input {name!r}: {spec}", "fixed sizes, but for that of the batch", fix)
    return replace(spec, shape=shape)


def _lower(folder: Path, inputs: Mapping[str, TensorSpec], outputs: list[str]) -> tuple[bytes, str]:
    """Return a frozen model as a portable artifact with inputs and outputs in this order, and the artifact's version.

    The version is the oldest supported one, or the current one for newer operations.
    """
    import tensorflow as tf
    from tensorflow.compiler.mlir.stablehlo import stablehlo

    loaded = tf.saved_model.load(str(folder))
    serve = loaded.signatures[SERVING_DEFAULT]

    def main(*arguments: tf.Tensor) -> list[tf.Tensor]:
        results = serve(**dict(zip(inputs, arguments, strict=True)))
        return [results[name] for name in outputs]

    specs = [tf.TensorSpec(spec.shape, spec.dtype) for spec in inputs.values()]
    lower = tf.function(main, jit_compile=True, autograph=False).experimental_get_compiler_ir(*specs)
    try:
        program: bytes = lower(stage="stablehlo_serialized")
    except Exception as error:
        fix = "give what it names the same size in every call of the model, or use export_onnx or export_tflite"
        expected = "operations with sizes that are known when XLA compiles"
        raise ComponentError(f"XLA: {first_line(error)[:300]}", expected, fix) from error
    for version in (stablehlo.get_minimum_version(), stablehlo.get_current_version()):
        with contextlib.suppress(ValueError):
            content: bytes = stablehlo.serialize_portable_artifact_str(program, version)
            if CUSTOM_CALL not in content:
                return content, version
    own = sorted({call or operation for call, operation in XLA_OWN.findall(lower(stage="stablehlo"))})
    received = f"operations of XLA only: {', '.join(own) or 'those of a later version of StableHLO'}"
    fix = "express them by other operations in the model, or use export_onnx or export_tflite"
    raise ComponentError(received, "operations that StableHLO defines, for any compiler", fix)

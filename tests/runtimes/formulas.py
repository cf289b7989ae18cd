"""Write small models of one formula in each format, for the tests of runtimes."""

from collections.abc import Callable
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Model


def saved(folder: Path, function, **specs) -> Path:
    """Write a SavedModel of one function; its inputs are given as NAME=(shape, dtype)."""
    import tensorflow as tf

    module = tf.Module()
    signature = [tf.TensorSpec(shape, dtype, name=name) for name, (shape, dtype) in specs.items()]
    module.serve = tf.function(function, input_signature=signature)
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return folder


def lite(file: Path, saved_model: Path, **settings) -> Model:
    """Convert a SavedModel to a LiteRT file; settings are attributes of the converter."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model))
    for name, value in settings.items():
        setattr(converter, name, value)
    file.write_bytes(converter.convert())
    return Model(file)


def without_signatures(file: Path, model: Model) -> Model:
    """Copy a LiteRT file without its signatures."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    content = schema.ModelT.InitFromPackedBuf(model.path.read_bytes(), 0)
    content.signatureDefs = None
    builder = flatbuffers.Builder(1024)
    builder.Finish(content.Pack(builder), b"TFL3")
    file.write_bytes(bytes(builder.Output()))
    return Model(file)


def onnx(file: Path, nodes, inputs, outputs) -> Model:
    """Write an ONNX file of nodes; inputs and outputs are given as name: (element type, shape)."""
    from onnx import helper

    infos = [
        [helper.make_tensor_value_info(name, *type_and_shape) for name, type_and_shape in ends.items()]
        for ends in (inputs, outputs)
    ]
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("com.foo", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", *infos), opset_imports=versions, ir_version=10)
    file.write_bytes(model.SerializeToString())
    return Model(file)


def openvino(folder: Path, inputs, formula) -> Model:
    """Write OpenVINO files of one formula; inputs are given as name: (dtype, shape), with -1 for dynamic sizes."""
    import numpy as np

    from tfopt.runtimes.openvino_import import openvino as ov

    folder.mkdir(parents=True, exist_ok=True)
    ends = {name: ov.opset13.parameter(shape, np.dtype(dtype), name=name) for name, (dtype, shape) in inputs.items()}
    for name, parameter in ends.items():
        parameter.output(0).set_names({name})
    results = []
    for name, tensor in formula(**ends).items():
        tensor.output(0).set_names(tensor.output(0).get_names() | {name})
        results.append(ov.opset13.result(tensor, name=name))
    ov.save_model(ov.Model(results, list(ends.values())), folder / "model.xml", compress_to_fp16=False)
    return Model(folder)


def crossed_saved(folder: Path) -> Model:
    """Write a SavedModel of z = zeta - alpha and a = 2 alpha, with names that are not in alphabetical order."""
    import tensorflow as tf

    free = ([None, 2], tf.float32)
    return Model(saved(folder / "model", _crossed, zeta=free, alpha=free))


def crossed_lite(folder: Path) -> Model:
    """Write the same model in LiteRT."""
    return lite(folder / "model.tflite", crossed_saved(folder).path)


def crossed_onnx(folder: Path) -> Model:
    """Write the same model in ONNX."""
    from onnx import TensorProto, helper

    free = (TensorProto.FLOAT, ["batch", 2])
    nodes = [helper.make_node("Sub", ["zeta", "alpha"], ["z"]), helper.make_node("Add", ["alpha", "alpha"], ["a"])]
    return onnx(folder / "model.onnx", nodes, {"zeta": free, "alpha": free}, {"z": free, "a": free})


def crossed_openvino(folder: Path) -> Model:
    """Write the same model in OpenVINO."""
    free = ("float32", [-1, 2])
    return openvino(folder / "model", {"zeta": free, "alpha": free}, _crossed)


CROSSED: dict[str, Callable[[Path], Model]] = {
    "saved_model": crossed_saved,
    "tflite": crossed_lite,
    "onnx": crossed_onnx,
    "openvino": crossed_openvino,
}


def threads_after_loading(model: Path, threads: int) -> int:
    """Return TensorFlow's thread count after loading a model; call it in a new process."""
    runtimes.load(Model(model), threads=threads)
    import tensorflow as tf

    return tf.config.threading.get_intra_op_parallelism_threads()


def _crossed(zeta, alpha):
    return {"z": zeta - alpha, "a": alpha + alpha}

"""Test convert_tensorrt without a GPU: the ONNX file, caches, layer reports and errors.

Tests that build and run engines are in tests/gpu.
"""

import json
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import write_examples
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import Examples, Model, OnnxModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.convert_tensorrt import caches, layer_report, onnx_network
from tfopt.components.convert_tensorrt.caches import CalibrationCache, digest_inputs
from tfopt.components.convert_tensorrt.calibration_feed import split_full_batches
from tfopt.components.convert_tensorrt.component import convert_tensorrt
from tfopt.components.convert_tensorrt.convert import derive_profile
from tfopt.components.convert_tensorrt.parameters import TensorRTConversion
from tfopt.conversion.onnx import float16 as onnx_float16
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.runtimes.onnx import OnnxRuntime


def write_network(model: Path, examples: Path | None, folder: Path, **settings) -> tuple[dict, onnx.ModelProto]:
    """Write the ONNX file that TensorRT would build; return metadata for the model card, and the ONNX model."""
    folder.mkdir(parents=True)
    parameters = TensorRTConversion(**({"calibration_count": 50} | settings))
    data = Examples(examples) if examples else None
    with runtimes.load(Model(model)) as parent:
        onnx_network.check_signature(parent, str(model))
        facts, _ = onnx_network.write_network(Model(model), data, parent, folder / "model.onnx", parameters)
    return facts, onnx.load(folder / "model.onnx")


# precision, largest error of the output's range, least agreement, the type of the kernels
PRECISIONS = [
    ("fp32", 1e-5, 1.0, TensorProto.FLOAT),
    ("fp16", 1e-2, 0.99, TensorProto.FLOAT16),
    ("int8", 0.15, 0.97, TensorProto.FLOAT),
]


@pytest.mark.parametrize(("precision", "error", "agreement", "kind"), PRECISIONS)
def test_the_onnx_file_has_the_precision_and_matches_its_parent(
    digits_model, digits_examples, tmp_path, precision, error, agreement, kind
):
    facts, network = write_network(digits_model, digits_examples, tmp_path / "out", precision=precision)
    parent = runtimes.load(Model(digits_model))
    child = OnnxRuntime(OnnxModel(tmp_path / "out/model.onnx"), unfused=True)
    batch = next(read_batches(Examples(digits_examples).split("eval"), parent.inputs, batch_size=397))
    expected, received = parent.run(batch)["digit"], child.run(batch)["digit"]
    assert np.abs(expected - received).max() <= error
    assert (expected.argmax(1) == received.argmax(1)).mean() >= agreement
    assert (child.inputs, child.outputs) == (parent.inputs, parent.outputs)
    assert facts["onnx"]["run"] and facts["onnx"]["records"] == 256 and facts["opset"] == 18
    kernels = [tensor for tensor in network.graph.initializer if list(tensor.dims) == [8, 1, 3, 3]]
    assert len(kernels) == 2 and {tensor.data_type for tensor in kernels} == {kind}


def test_a_file_that_differs_is_refused_on_the_cpu_before_an_engine_is_built(digits_model, digits_examples, tmp_path):
    with pytest.raises(
        ComponentError, match="the ONNX file on the CPU, from which no engine was built yet: int8, output"
    ):
        write_network(digits_model, digits_examples, tmp_path / "out", precision="int8", tolerance=1e-6)


def test_bfloat16_weights_are_rounded_from_float32(digits_model, digits_examples, tmp_path):
    facts, network = write_network(digits_model, None, tmp_path / "a", precision="bf16")
    assert facts["opset"] == 22 and network.opset_import[0].version == 22
    onnx.checker.check_model(network, full_check=True)
    _, floats = write_network(digits_model, None, tmp_path / "b", precision="fp32")
    network = onnx_float16.cast_bfloat16(floats)
    onnx.checker.check_model(network, full_check=True)
    before = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "b/model.onnx").graph.initializer
    }
    kernels = [tensor for tensor in network.graph.initializer if tensor.data_type == TensorProto.BFLOAT16]
    assert len(kernels) >= 5 and not any(t.data_type == TensorProto.FLOAT16 for t in network.graph.initializer)
    for tensor in kernels:  # 8 bits of mantissa with the hidden one: an error of at most 2**-9 of the value
        received = numpy_helper.to_array(tensor).astype(np.float32)
        np.testing.assert_allclose(received, before[tensor.name], rtol=2**-8, atol=1e-30)
    ends = [*network.graph.input, *network.graph.output]
    assert {end.type.tensor_type.elem_type for end in ends} == {TensorProto.FLOAT}


def test_casting_float16_to_bfloat16_raises():
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(np.ones(3, np.float16), "w")])
    with pytest.raises(ComponentError, match="float16 in it"):
        onnx_float16.cast_bfloat16(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


def test_calibration_batches_are_full():
    specs = {
        "b": TensorSpec("float32", (None, 2)),
        "a": TensorSpec("int64", (None,)),
        "rate": TensorSpec("float32", ()),
    }
    sampled = {"a": np.arange(10), "b": np.arange(20.0).reshape(10, 2), "rate": np.float32(1)}
    sampled["rate"] = np.array(1, np.float32)
    batches = split_full_batches(sampled, specs, 4)
    assert [batch["a"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches[1]["b"].tolist() == [[8, 9], [10, 11], [12, 13], [14, 15]]
    assert len(split_full_batches(sampled, {"a": TensorSpec("int64", (5,))}, 4)) == 2  # the model's own size
    with pytest.raises(ComponentError, match="10 examples to calibrate on, in batches of 16") as error:
        split_full_batches(sampled, specs, 16)
    assert "usual_batch" in error.value.fix


def test_a_calibration_is_cached_for_the_same_model_data_and_version_only(tmp_path):
    key = {"model": "m", "examples": digest_inputs({"x": np.ones(3)}), "batch": 8, "tensorrt": "10.11.0.33"}
    name = str(tmp_path / "größe 1" / "cache")
    first = CalibrationCache(name, **key)
    assert first.read() is None
    first.write(b"TRT-101100-EntropyCalibration2\nx: 3c010a14\n")
    again = CalibrationCache(name, **key)
    assert again.read() == b"TRT-101100-EntropyCalibration2\nx: 3c010a14\n" and again.hit
    for other in (
        {"model": "n"},
        {"examples": digest_inputs({"x": np.zeros(3)})},
        {"batch": 4},
        {"tensorrt": "10.12.0.36"},
    ):
        changed = CalibrationCache(name, **(key | other))
        assert changed.read() is None and not changed.hit and changed.digest != first.digest
    assert digest_inputs({"x": np.ones(3)}) != digest_inputs({"y": np.ones(3)}) != digest_inputs({"y": np.ones(3, "f")})
    assert CalibrationCache(None, **key).read() is None
    CalibrationCache(None, **key).write(b"nowhere")


def test_concurrent_updates_of_a_cache_are_atomic(tmp_path):
    file = tmp_path / "new" / "timing.cache"
    assert caches.read(file) == b""
    workers = [
        threading.Thread(target=caches.update, args=(file, lambda content, letter=letter: content + letter * 1000))
        for letter in (b"a", b"b", b"c", b"d") * 30
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    content = caches.read(file)
    assert len(content) == 120_000 and {content.count(letter) for letter in (b"a", b"b", b"c", b"d")} == {30_000}
    with pytest.raises(ZeroDivisionError):
        caches.update(file, lambda _: bytes(1 // 0))
    assert caches.read(file) == content and sorted(path.name for path in file.parent.iterdir())[1:] == [file.name]
    with pytest.raises(ComponentError, match="directory"):
        caches.read(tmp_path)
    with pytest.raises(ComponentError, match=r"exists|directory"):
        caches.update(file / "below", lambda content: content)


DESCRIBE_TENSOR = {  # the formats of TensorRT 10 and 11
    10: lambda name, text: {"Name": name, "Dimensions": [1, 8], "Format/Datatype": text[0]},
    11: lambda name, text: {"Name": name, "Dimensions": [1, 8], "Format": "kLINEAR", "DataType": text[1]},
}
FLOAT, HALF, BYTE = ("Row major linear FP32", "Float"), ("Channel major FP16 format", "Half"), ("Int8 format", "Int8")
BFLOAT16, INTEGER = ("Row major linear BF16", "BFloat16"), ("Row major Int32 format", "Int32")
NOT_AVAILABLE = ("N/A due to dynamic shapes", "N/A due to dynamic shapes")


def layer(version, name, kind, inputs, outputs, **more):
    ends = ([DESCRIBE_TENSOR[version]("t", text) for text in texts] for texts in (inputs, outputs))
    return dict(zip(("Name", "LayerType", "Inputs", "Outputs"), (name, kind, *ends), strict=True)) | more


@pytest.mark.parametrize("version", [10, 11])
def test_the_report_counts_precisions_and_names_wider_layers(version):
    engine = {
        "Layers": [
            layer(version, "conv", "CaskConvolution", [BYTE], [FLOAT]),  # int8 inputs, float outputs
            layer(version, "dense", "gemm", [HALF], [HALF]),
            layer(version, "softmax", "SoftMax", [FLOAT], [FLOAT]),
            layer(version, "copy", "Reformat", [FLOAT], [BYTE]),
            layer(version, "brain", "PointWise", [BFLOAT16], [BFLOAT16]),
            layer(version, "start", "Constant", [], [FLOAT]),
            layer(version, "count", "Gather", [INTEGER], [INTEGER]),
        ],
        "Bindings": ["x"],
    }
    report = layer_report.summarize(json.dumps(engine), "int8")
    assert report["precisions"] == {"bf16": 1, "fp16": 1, "fp32": 1, "int8": 1, "other": 1} and report["count"] == 7
    assert report["fell_back"] == ["dense", "softmax", "brain"]
    for precision in ("fp16", "auto"):
        assert layer_report.summarize(json.dumps(engine), precision)["fell_back"] == ["softmax"]
    assert layer_report.summarize(json.dumps(engine), "tf32")["fell_back"] == []
    assert report["all"][0] == {"name": "conv", "type": "CaskConvolution", "precision": "int8"}
    assert (
        layer_report.summarize(json.dumps({"Layers": ["conv", "dense"]}), "fp16")["count"] == 0
    )  # names only: not detailed


@pytest.mark.parametrize("version", [10, 11])
def test_layers_without_reported_types_are_counted_as_unknown(version):
    engine = {
        "Layers": [
            layer(version, "open", "SoftMax", [NOT_AVAILABLE], [NOT_AVAILABLE]),
            layer(version, "mixed", "Gather", [NOT_AVAILABLE, INTEGER], [NOT_AVAILABLE]),
            layer(version, "bare", "kgen", [], []),
            layer(
                version, "weighted", "CaskConvolution", [NOT_AVAILABLE], [FLOAT], Weights={"Type": "Int8", "Count": 72}
            ),
            layer(version, "wide", "gemm", [NOT_AVAILABLE], [NOT_AVAILABLE], Weights={"Type": "Float", "Count": 72}),
            layer(version, "empty", "gemm", [NOT_AVAILABLE], [NOT_AVAILABLE], Weights={"Type": "Float", "Count": 0}),
            layer(version, "late", "SoftMax", [NOT_AVAILABLE], [HALF]),
            layer(version, "stream", "wait", [], []),
        ]
    }
    report = layer_report.summarize(json.dumps(engine), "int8")
    assert report["precisions"] == {"fp16": 1, "fp32": 1, "int8": 1, "unknown": 4}
    assert report["fell_back"] == ["wide", "late"]
    unknown = [layer["name"] for layer in report["all"] if layer["precision"] == "unknown"]
    assert unknown[:4] == ["open", "mixed", "bare", "empty"]


@pytest.mark.parametrize(
    ("settings", "received", "fix"),
    [
        ({"usual_batch": 64}, "usual_batch=64 with largest_batch=32", "largest_batch"),
        ({"precision": "int8"}, "precision='int8' without examples", "fp16"),
        ({"calibrator": "entropy"}, "calibrator='entropy' with precision='fp16'", "leave"),
        ({"calibration_cache": "c"}, "calibration_cache", "export_onnx"),
    ],
)
def test_contradicting_parameters_raise_before_the_machine_is_checked(digits_model, tmp_path, settings, received, fix):
    with pytest.raises(ComponentError) as error:
        convert_tensorrt(str(digits_model), str(tmp_path / "out"), **settings)
    assert received in error.value.received and fix in error.value.fix and not (tmp_path / "out").exists()


def test_unsupported_formats_and_missing_splits_raise(digits_lite, digits_model, digits_examples, tmp_path):
    with pytest.raises(ComponentError, match="a tflite model"):
        convert_tensorrt(str(digits_lite), str(tmp_path / "out"))
    (tmp_path / "int8.onnx").write_bytes(b"\x12\x0eQuantizeLinear")  # the name of a producer
    with pytest.raises(ComponentError, match="8-bit levels in it") as error:
        convert_tensorrt(str(tmp_path / "int8.onnx"), str(tmp_path / "out"))
    assert "precision='int8'" in error.value.fix
    with pytest.raises(ComponentError, match="8-bit levels in it"):
        convert_tensorrt(str(tmp_path / "int8.onnx"), str(tmp_path / "out"), precision="int8", calibrator="entropy")
    with pytest.raises(ComponentError, match="its splits"):
        convert_tensorrt(str(digits_model), str(tmp_path / "out"), str(digits_examples), precision="int8", split="test")


def test_without_a_gpu_the_step_raises_and_writes_nothing(digits_model, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ComponentError, match="no nvidia-smi") as error:
        convert_tensorrt(str(digits_model), str(tmp_path / "out"))
    assert "Kubeflow" in error.value.fix and "export_openvino" in error.value.fix
    assert not list(tmp_path.iterdir())


def test_strings_and_float64_raise(tmp_path):
    import tensorflow as tf

    text = saved(tmp_path / "text", lambda word: {"n": tf.strings.length(word)}, word=([None, 1], tf.string))
    wide = saved(tmp_path / "wide", lambda x: {"y": x * 2}, x=([None, 3], tf.float64))
    with pytest.raises(ComponentError, match="'word' is a string") as error:
        write_network(text, None, tmp_path / "a")
    assert "before the model" in error.value.fix
    with pytest.raises(ComponentError, match=r"float64\[\?,3\]") as error:
        write_network(wide, None, tmp_path / "b")
    assert "float32" in error.value.fix


def test_open_sizes_are_read_from_the_examples(tmp_path):
    import tensorflow as tf

    model = saved(tmp_path / "m", lambda ids: {"y": tf.reduce_sum(ids, 1)}, ids=([None, None], tf.int32))
    write_examples(tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", {"ids": np.ones((3, 17), np.int64)})
    parent = runtimes.load(Model(model))
    profile = derive_profile(parent, Examples(tmp_path / "ex"), TensorRTConversion())
    assert str(profile) == "ids=1x17:8x17:32x17"
    with pytest.raises(ComponentError, match="dynamic sizes"):
        derive_profile(parent, None, TensorRTConversion())
    with_shapes = TensorRTConversion(shapes=("ids=1x2:2x4:4x8",))
    assert str(derive_profile(parent, None, with_shapes)) == "ids=1x2:2x4:4x8"

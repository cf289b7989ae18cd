"""convert_tensorrt as far as it goes without a GPU: the ONNX file it builds from, its caches, reports and refusals.

What builds and runs engines lies in tests/gpu.
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
from tfopt.components.convert_tensorrt import convert as converting
from tfopt.components.convert_tensorrt import layer_report as layers
from tfopt.components.convert_tensorrt import onnx_network as network
from tfopt.components.convert_tensorrt import timing_cache
from tfopt.components.convert_tensorrt.batches import whole_batches
from tfopt.components.convert_tensorrt.calibration_cache import Cache, content
from tfopt.components.convert_tensorrt.component import convert_tensorrt
from tfopt.components.convert_tensorrt.request import Request
from tfopt.components.convert_tensorrt.tf_trt import convert as convert_tf_trt
from tfopt.conversion import onnx_float16 as onnx_precision
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError


def prepared(model: Path, examples: Path | None, folder: Path, **given) -> tuple[dict, onnx.ModelProto]:
    """What TensorRT would be given, and what the card would say of it."""
    folder.mkdir(parents=True)
    request = Request(**({"calibration_count": 50} | given))
    found = Examples(examples) if examples else None
    with runtimes.load(Model(model)) as parent:
        network.check_signature(parent, str(model))
        facts, _ = network.prepare(Model(model), found, parent, folder / "model.onnx", request)
    return facts, onnx.load(folder / "model.onnx")


# precision, largest error of the output's range, least agreement, the type of the kernels
TABLE = [
    ("fp32", 1e-5, 1.0, TensorProto.FLOAT),
    ("fp16", 1e-2, 0.99, TensorProto.FLOAT16),
    ("int8", 0.15, 0.97, TensorProto.FLOAT),
]


@pytest.mark.parametrize(("precision", "error", "agreement", "kind"), TABLE)
def test_the_onnx_file_has_the_precision_in_it_and_answers_as_its_parent_does(
    digits_model, digits_examples, tmp_path, precision, error, agreement, kind
):
    facts, made = prepared(digits_model, digits_examples, tmp_path / "out", precision=precision)
    parent, child = runtimes.load(Model(digits_model)), runtimes.load(OnnxModel(tmp_path / "out/model.onnx"))
    batch = next(read_batches(Examples(digits_examples).split("eval"), parent.inputs, batch_size=397))
    wanted, got = parent.run(batch)["digit"], child.run(batch)["digit"]
    assert np.abs(wanted - got).max() <= error and (wanted.argmax(1) == got.argmax(1)).mean() >= agreement
    assert (child.inputs, child.outputs) == (parent.inputs, parent.outputs)
    assert facts["onnx"]["run"] and facts["onnx"]["records"] == 256 and facts["opset"] == 18
    kernels = [tensor for tensor in made.graph.initializer if list(tensor.dims) == [8, 1, 3, 3]]
    assert len(kernels) == 2 and {tensor.data_type for tensor in kernels} == {kind}


def test_bfloat16_is_stored_as_such_and_rounded_from_the_floats(digits_model, digits_examples, tmp_path):
    facts, made = prepared(digits_model, None, tmp_path / "a", precision="bf16")
    assert facts["opset"] == 22 and made.opset_import[0].version == 22
    onnx.checker.check_model(made, full_check=True)
    _, floats = prepared(digits_model, None, tmp_path / "b", precision="fp32")
    made = onnx_precision.bfloat(floats)
    onnx.checker.check_model(made, full_check=True)
    before = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "b/model.onnx").graph.initializer
    }
    kernels = [tensor for tensor in made.graph.initializer if tensor.data_type == TensorProto.BFLOAT16]
    assert len(kernels) >= 5 and not any(t.data_type == TensorProto.FLOAT16 for t in made.graph.initializer)
    for tensor in kernels:  # 8 bits of mantissa, hidden one included: off by at most 2**-9 of the value
        got = numpy_helper.to_array(tensor).astype(np.float32)
        np.testing.assert_allclose(got, before[tensor.name], rtol=2**-8, atol=1e-30)
    ends = [*made.graph.input, *made.graph.output]
    assert {end.type.tensor_type.elem_type for end in ends} == {TensorProto.FLOAT}


def test_bfloat16_of_a_model_with_float16_is_refused():
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(np.ones(3, np.float16), "w")])
    with pytest.raises(ComponentError, match="float16 in it"):
        onnx_precision.bfloat(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))


def test_calibration_batches_are_whole_and_go_by_input_name():
    specs = {
        "b": TensorSpec("float32", (None, 2)),
        "a": TensorSpec("int64", (None,)),
        "rate": TensorSpec("float32", ()),
    }
    sampled = {"a": np.arange(10), "b": np.arange(20.0).reshape(10, 2), "rate": np.float32(1)}
    sampled["rate"] = np.array(1, np.float32)
    found = whole_batches(sampled, specs, 4)
    assert [batch["a"].tolist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert found[1]["b"].tolist() == [[8, 9], [10, 11], [12, 13], [14, 15]]
    assert len(whole_batches(sampled, {"a": TensorSpec("int64", (5,))}, 4)) == 2  # the model's own size
    with pytest.raises(ComponentError, match="10 examples to calibrate on, in batches of 16") as error:
        whole_batches(sampled, specs, 16)
    assert "usual_batch" in error.value.fix


def test_a_calibration_is_kept_for_the_same_model_data_and_version_only(tmp_path):
    key = {"model": "m", "examples": content({"x": np.ones(3)}), "batch": 8, "tensorrt": "10.11.0.33"}
    name = str(tmp_path / "größe 1" / "cache")
    first = Cache(name, **key)
    assert first.read() is None
    first.write(b"TRT-101100-EntropyCalibration2\nx: 3c010a14\n")
    again = Cache(name, **key)
    assert again.read() == b"TRT-101100-EntropyCalibration2\nx: 3c010a14\n" and again.taken
    for other in ({"model": "n"}, {"examples": content({"x": np.zeros(3)})}, {"batch": 4}, {"tensorrt": "10.12.0.36"}):
        changed = Cache(name, **(key | other))
        assert changed.read() is None and not changed.taken and changed.digest != first.digest
    assert content({"x": np.ones(3)}) != content({"y": np.ones(3)}) != content({"y": np.ones(3, "f")})
    assert Cache(None, **key).read() is None
    Cache(None, **key).write(b"nowhere")


def test_a_shared_cache_is_whole_whoever_else_writes_it(tmp_path):
    file = tmp_path / "new" / "timing.cache"
    assert timing_cache.read(file) == b""
    workers = [
        threading.Thread(target=timing_cache.update, args=(file, lambda found, letter=letter: found + letter * 1000))
        for letter in (b"a", b"b", b"c", b"d") * 30
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    content_ = timing_cache.read(file)
    assert len(content_) == 120_000 and {content_.count(letter) for letter in (b"a", b"b", b"c", b"d")} == {30_000}
    with pytest.raises(ZeroDivisionError):
        timing_cache.update(file, lambda found: bytes(1 // 0))
    assert timing_cache.read(file) == content_ and sorted(path.name for path in file.parent.iterdir())[1:] == [
        file.name
    ]
    with pytest.raises(ComponentError, match="directory"):
        timing_cache.read(tmp_path)
    with pytest.raises(ComponentError, match=r"exists|directory"):
        timing_cache.update(file / "below", lambda found: found)


TOLD = {  # as TensorRT 10 and 11 say the same
    10: lambda name, text: {"Name": name, "Dimensions": [1, 8], "Format/Datatype": text[0]},
    11: lambda name, text: {"Name": name, "Dimensions": [1, 8], "Format": "kLINEAR", "DataType": text[1]},
}
FLOAT, HALF, BYTE = ("Row major linear FP32", "Float"), ("Channel major FP16 format", "Half"), ("Int8 format", "Int8")
BRAIN, WHOLE = ("Row major linear BF16", "BFloat16"), ("Row major Int32 format", "Int32")
UNTOLD = ("N/A due to dynamic shapes", "N/A due to dynamic shapes")


def layer(version, name, kind, taken, given, **more):
    ends = ([TOLD[version]("t", text) for text in texts] for texts in (taken, given))
    return dict(zip(("Name", "LayerType", "Inputs", "Outputs"), (name, kind, *ends), strict=True)) | more


@pytest.mark.parametrize("version", [10, 11])
def test_the_report_counts_precisions_and_names_what_fell_back(version):
    engine = {
        "Layers": [
            layer(version, "conv", "CaskConvolution", [BYTE], [FLOAT]),  # of bytes, giving floats
            layer(version, "dense", "gemm", [HALF], [HALF]),
            layer(version, "softmax", "SoftMax", [FLOAT], [FLOAT]),
            layer(version, "copy", "Reformat", [FLOAT], [BYTE]),
            layer(version, "brain", "PointWise", [BRAIN], [BRAIN]),
            layer(version, "start", "Constant", [], [FLOAT]),
            layer(version, "count", "Gather", [WHOLE], [WHOLE]),
        ],
        "Bindings": ["x"],
    }
    found = layers.report(json.dumps(engine), "int8")
    assert found["precisions"] == {"bf16": 1, "fp16": 1, "fp32": 1, "int8": 1, "other": 1} and found["count"] == 7
    assert found["fell_back"] == ["dense", "softmax", "brain"]
    assert layers.report(json.dumps(engine), "fp16")["fell_back"] == ["softmax"]
    assert layers.report(json.dumps(engine), "tf32")["fell_back"] == []
    assert found["all"][0] == {"name": "conv", "type": "CaskConvolution", "precision": "int8"}
    assert layers.report(json.dumps({"Layers": ["conv", "dense"]}), "fp16")["count"] == 0  # names only: not detailed


@pytest.mark.parametrize("version", [10, 11])
def test_layers_whose_types_are_not_told_are_counted_as_unknown(version):
    engine = {
        "Layers": [
            layer(version, "open", "SoftMax", [UNTOLD], [UNTOLD]),
            layer(version, "mixed", "Gather", [UNTOLD, WHOLE], [UNTOLD]),
            layer(version, "bare", "kgen", [], []),
            layer(version, "weighted", "CaskConvolution", [UNTOLD], [FLOAT], Weights={"Type": "Int8", "Count": 72}),
            layer(version, "wide", "gemm", [UNTOLD], [UNTOLD], Weights={"Type": "Float", "Count": 72}),
            layer(version, "empty", "gemm", [UNTOLD], [UNTOLD], Weights={"Type": "Float", "Count": 0}),
            layer(version, "late", "SoftMax", [UNTOLD], [HALF]),
            layer(version, "stream", "wait", [], []),
        ]
    }
    found = layers.report(json.dumps(engine), "int8")
    assert found["precisions"] == {"fp16": 1, "fp32": 1, "int8": 1, "unknown": 4}
    assert found["fell_back"] == ["wide", "late"]
    assert [told["name"] for told in found["all"] if told["precision"] == "unknown"][:4] == [
        "open",
        "mixed",
        "bare",
        "empty",
    ]


def plain(tmp_path: Path) -> Path:
    return saved(tmp_path / "model", lambda x: {"y": x * 2}, x=([None, 3], __import__("tensorflow").float32))


@pytest.mark.parametrize(
    ("given", "received", "fix"),
    [
        ({"usual_batch": 64}, "usual_batch=64 with largest_batch=32", "largest_batch"),
        ({"precision": "int8"}, "precision='int8' without examples", "fp16"),
        ({"calibrator": "entropy"}, "calibrator='entropy' with precision='fp16'", "leave"),
        ({"calibration_cache": "c"}, "calibration_cache", "export_onnx"),
        ({"backend": "tf_trt", "precision": "bf16"}, "precision='bf16' with backend='tf_trt'", "backend='onnx'"),
        ({"backend": "tf_trt", "sparse": True, "timing_cache": "t"}, "timing_cache, sparse", "leave it out"),
    ],
)
def test_what_cannot_go_together_is_refused_before_the_machine_is_looked_at(
    digits_model, tmp_path, given, received, fix
):
    with pytest.raises(ComponentError) as error:
        convert_tensorrt(str(digits_model), str(tmp_path / "out"), **given)
    assert received in error.value.received and fix in error.value.fix and not (tmp_path / "out").exists()


def test_formats_and_splits_that_do_not_fit_are_refused(digits_lite, digits_model, digits_examples, tmp_path):
    with pytest.raises(ComponentError, match="a tflite model"):
        convert_tensorrt(str(digits_lite), str(tmp_path / "out"))
    (tmp_path / "int8.onnx").write_bytes(b"..QuantizeLinear..")
    with pytest.raises(ComponentError, match="8-bit levels in it") as error:
        convert_tensorrt(str(tmp_path / "int8.onnx"), str(tmp_path / "out"))
    assert "precision='int8'" in error.value.fix
    with pytest.raises(ComponentError, match="8-bit levels in it"):
        convert_tensorrt(str(tmp_path / "int8.onnx"), str(tmp_path / "out"), precision="int8", calibrator="entropy")
    with pytest.raises(ComponentError, match="a onnx model") as error:
        convert_tensorrt(str(tmp_path / "int8.onnx"), str(tmp_path / "out"), backend="tf_trt")
    assert "ONNX" not in error.value.expected
    with pytest.raises(ComponentError, match="its splits"):
        wrong = {"precision": "int8", "split": "test"}
        convert_tensorrt(str(digits_model), str(tmp_path / "out"), str(digits_examples), **wrong)


def test_without_a_gpu_the_step_says_so_and_leaves_nothing(digits_model, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ComponentError, match="no nvidia-smi") as error:
        convert_tensorrt(str(digits_model), str(tmp_path / "out"))
    assert "Kubeflow" in error.value.fix and "export_openvino" in error.value.fix
    assert not list(tmp_path.iterdir())


def test_text_and_wide_floats_are_refused(tmp_path):
    import tensorflow as tf

    text = saved(tmp_path / "text", lambda word: {"n": tf.strings.length(word)}, word=([None, 1], tf.string))
    wide = saved(tmp_path / "wide", lambda x: {"y": x * 2}, x=([None, 3], tf.float64))
    with pytest.raises(ComponentError, match="'word' is text") as error:
        prepared(text, None, tmp_path / "a")
    assert "export_onnx" in error.value.fix
    with pytest.raises(ComponentError, match=r"float64\[\?,3\]") as error:
        prepared(wide, None, tmp_path / "b")
    assert "float32" in error.value.fix


def test_open_sizes_are_those_of_the_examples(tmp_path):
    import tensorflow as tf

    model = saved(tmp_path / "m", lambda ids: {"y": tf.reduce_sum(ids, 1)}, ids=([None, None], tf.int32))
    write_examples(tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", {"ids": np.ones((3, 17), np.int64)})
    parent = runtimes.load(Model(model))
    found = converting.profile_of(parent, Examples(tmp_path / "ex"), Request())
    assert str(found) == "ids=1x17:8x17:32x17"
    with pytest.raises(ComponentError, match="open sizes"):
        converting.profile_of(parent, None, Request())
    given = Request(shapes=("ids=1x2:2x4:4x8",))
    assert str(converting.profile_of(parent, None, given)) == "ids=1x2:2x4:4x8"


def test_tf_trt_is_refused_where_tensorflow_has_none(digits_model, tmp_path):
    import tensorflow as tf

    if tf.sysconfig.get_build_info().get("is_tensorrt_build"):
        pytest.skip("this TensorFlow has TF-TRT")
    (tmp_path / "out").mkdir()
    with pytest.raises(ComponentError, match=f"backend='tf_trt' with TensorFlow {tf.__version__}") as error:
        convert_tf_trt(Model(digits_model), None, tmp_path / "out", Request(precision="fp32"))
    assert "2.17" in error.value.expected and "backend='onnx'" in error.value.fix


@pytest.mark.parametrize(("precision", "rounded"), [("fp32", False), ("fp16", True)])
def test_tf_trt_computes_float32_without_tf32_from_the_parent_on(
    digits_model, tmp_path, monkeypatch, precision, rounded
):
    import tensorflow as tf

    load, found = runtimes.load, []

    def watched(model):
        found.append(tf.config.experimental.tensor_float_32_execution_enabled())
        return load(model)

    monkeypatch.setattr(runtimes, "load", watched)
    (tmp_path / "out").mkdir()
    try:
        with pytest.raises(ComponentError, match=r"backend='tf_trt'|TF-TRT failed"):
            convert_tf_trt(Model(digits_model), None, tmp_path / "out", Request(precision=precision))
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)
    assert found[0] is rounded


@pytest.mark.parametrize("with_examples", [True, False])
def test_trained_ranges_are_refused_with_tf_trt_which_would_find_others(digits_examples, tmp_path, with_examples):
    import tensorflow as tf

    formula = lambda x: {"y": tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 1.0)}  # noqa: E731
    model = saved(tmp_path / "trained", formula, x=([None, 3], tf.float32))
    examples = str(digits_examples) if with_examples else None
    with pytest.raises(ComponentError, match=r"backend='tf_trt' for .*whose 8-bit ranges were trained") as error:
        convert_tensorrt(str(model), str(tmp_path / "out"), examples, backend="tf_trt", precision="int8")
    assert "backend='onnx'" in error.value.fix

"""Test convert_tensorrt and the tensorrt runtime on a GPU: precisions, shapes, caches and errors.

Run with `make test-gpu`; docs/verified.md lists the machines that this was run on.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.components.train_modules import DENSE
from tests.conftest import write_examples
from tests.runtimes.formulas import saved
from tfopt import runtimes
from tfopt.artifacts import Examples, Model, TensorRTModel
from tfopt.components.convert_tensorrt.component import convert_tensorrt
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError

pytestmark = pytest.mark.gpu

# precision, largest error of the output's range, least agreement.
# fp8: a float with 3 bits of mantissa is rounded by up to 2**-4, 2.6 % (rms), a product of two by 3.7 %, as is a sum
# of products with independent errors; three layers add up to 3.7 % * 3**0.5 = 6.4 % of the logits. ONNX Runtime has
# 6.0 % from this file on a CPU: probabilities differ by 0.16 at most, and 99.7 % of the classes agree. An engine fuses
# and rounds in other places, so twice that is allowed.
TABLE = [("fp32", 1e-4, 1.0), ("tf32", 1e-2, 0.99), ("fp16", 1e-2, 0.99), ("bf16", 5e-2, 0.98), ("int8", 0.2, 0.96)]
TABLE += [("fp8", 0.32, 0.98)]


@pytest.fixture(scope="session")
def engines(here, digits_model, digits_examples, tmp_path_factory):
    """A function that returns the engine of a precision, built once."""
    built: dict[str, Path] = {}

    def engine(precision: str) -> Path:
        if precision not in built:
            built[precision] = tmp_path_factory.mktemp("engines") / precision
            convert_tensorrt(str(digits_model), str(built[precision]), str(digits_examples), precision=precision)
        return built[precision]

    return engine


def digits(digits_model, digits_examples, count=397):
    parent = runtimes.load(Model(digits_model))
    batch = next(read_batches(Examples(digits_examples).split("eval"), parent.inputs, batch_size=count))
    return parent, batch


@pytest.mark.parametrize(("precision", "error", "agreement"), TABLE)
def test_outputs_of_every_precision_match_the_parent(
    engines, here, digits_model, digits_examples, precision, error, agreement
):
    model = TensorRTModel.open(engines(precision))
    parent, batch = digits(digits_model, digits_examples)
    with runtimes.load(model) as child:
        expected, outputs = parent.run(batch)["digit"], child.run(batch)["digit"]  # 397 records in batches of 32
        assert (
            np.abs(expected - outputs).max() <= error and (expected.argmax(1) == outputs.argmax(1)).mean() >= agreement
        )
        assert (child.inputs, child.outputs) == (parent.inputs, parent.outputs)
    tag = json.loads((model.path / "Format-Serving/compatibility.json").read_text())
    assert tag == {**here.__dict__, "version_compatible": False, "largest_batch": 32}
    card = model.card.facts
    assert card["verified"]["records"] == 256 and card["onnx"]["run"] and card["format"] == "tensorrt"
    print(precision, card["layers"]["precisions"], card["layers"]["fell_back"], card["sizes"])


@pytest.mark.parametrize(("precision", "kind"), [("fp16", "fp16"), ("bf16", "bf16"), ("int8", "int8")])
def test_the_report_lists_layers_in_the_requested_precision(engines, precision, kind):
    facts = TensorRTModel(engines(precision)).card.facts["layers"]
    assert facts["precisions"].get(kind, 0) >= 1, facts
    assert facts["precisions"].get("unknown", 0) < sum(facts["precisions"].values()) / 2, (
        facts
    )  # its batch size is dynamic


def test_outputs_are_the_same_at_any_batch_size(engines, digits_model, digits_examples):
    parent, batch = digits(digits_model, digits_examples, 100)
    expected = parent.run(batch)["digit"]
    with runtimes.load(TensorRTModel(engines("fp32"))) as child:
        for size in (1, 2, 32, 1, 33, 100):
            outputs = child.run({"image": batch["image"][:size]})["digit"]
            np.testing.assert_allclose(outputs, expected[:size], atol=1e-4)
        first = child.run({"image": batch["image"][:1]})["digit"]
        child.run({"image": batch["image"][1:2]})
        np.testing.assert_allclose(first, expected[:1], atol=1e-4)  # the next call does not overwrite it


def test_a_mix_of_int8_and_float16_is_built_and_meets_its_limit(digits_model, digits_examples, tmp_path):
    limit = 0.05
    convert_tensorrt(
        str(digits_model), str(tmp_path / "mix"), str(digits_examples), precision="auto", max_degradation=limit
    )
    card = TensorRTModel(tmp_path / "mix").card.facts
    precisions = card["layers"]["precisions"]
    assert precisions.get("int8", 0) >= 1 and not card["layers"]["fell_back"], precisions
    assert 1 - card["verified"]["outputs"]["digit"]["agreement"] <= limit + 0.02  # engines round in other places
    print("auto", precisions, card["raised"])


def test_int8_from_an_onnx_file_and_from_trained_ranges(digits_model, digits_examples, tmp_path):
    from tfopt.components.export_onnx.component import export_onnx
    from tfopt.components.quantize.component import quantize

    (tmp_path / "module.py").write_text(DENSE)
    export_onnx(digits_model, tmp_path / "onnx", digits_examples, precision="int8")
    quantize(digits_model, digits_examples, tmp_path / "module.py", tmp_path / "trained", epochs=1)
    for source in ("onnx", "trained"):
        out = tmp_path / f"engine {source}"
        convert_tensorrt(str(tmp_path / source), str(out), str(digits_examples), precision="int8")
        card = TensorRTModel(out).card.facts
        assert card["ranges"] == {"onnx": "given", "trained": "trained"}[source]
        assert card["layers"]["precisions"].get("int8", 0) >= 1


def test_the_entropy_calibrator_and_its_cache(digits_model, digits_examples, tmp_path):
    import tensorrt as trt

    cache = str(tmp_path / "calibration.cache")
    parameters = {"precision": "int8", "calibrator": "entropy", "calibration_cache": cache, "calibration_count": 64}
    if not hasattr(trt, "IInt8EntropyCalibrator2"):
        with pytest.raises(ComponentError, match="calibrator='entropy' with TensorRT"):
            convert_tensorrt(str(digits_model), str(tmp_path / "a"), str(digits_examples), **parameters)
        return
    for name, from_cache in (("a", False), ("b", True)):
        convert_tensorrt(str(digits_model), str(tmp_path / name), str(digits_examples), **parameters)
        facts = TensorRTModel(tmp_path / name).card.facts["calibrated"]
        assert facts["from_cache"] is from_cache and facts["batches"] == (0 if from_cache else 8)  # of 64 examples
    convert_tensorrt(str(digits_model), str(tmp_path / "c"), str(digits_examples), **(parameters | {"seed": 1}))
    assert TensorRTModel(tmp_path / "c").card.facts["calibrated"]["from_cache"] is False


def test_the_timing_cache_is_reused_and_an_incompatible_one_replaced(digits_model, tmp_path):
    cache = tmp_path / "timing.cache"
    for name, from_cache in (("a", False), ("b", True)):
        convert_tensorrt(str(digits_model), str(tmp_path / name), timing_cache=str(cache))
        facts = TensorRTModel(tmp_path / name).card.facts["timing_cache"]
        assert facts["taken"] is from_cache and facts["bytes_after"] == cache.stat().st_size > 0
    cache.write_bytes(b"what another TensorRT wrote")
    convert_tensorrt(str(digits_model), str(tmp_path / "c"), timing_cache=str(cache))
    assert TensorRTModel(tmp_path / "c").card.facts["timing_cache"]["taken"] is False


def test_dynamic_sizes_use_the_profile(tmp_path):
    import tensorflow as tf

    table = tf.constant(np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32))
    formula = lambda ids: {"y": tf.reduce_mean(tf.gather(table, ids), 1)}  # noqa: E731
    model = saved(tmp_path / "m", formula, ids=([None, None], tf.int32))
    convert_tensorrt(str(model), str(tmp_path / "e"), precision="fp32", shapes=["ids=1x2:4x8:8x16"])
    with runtimes.load(TensorRTModel(tmp_path / "e")) as child:
        for shape in ((1, 2), (8, 16), (3, 5), (20, 16)):
            ids = np.random.default_rng(1).integers(0, 50, shape).astype(np.int32)
            np.testing.assert_allclose(child.run({"ids": ids})["y"], table.numpy()[ids].mean(1), atol=1e-5)
        with pytest.raises(ComponentError, match="ids=1x2:4x8:8x16"):
            child.run({"ids": np.zeros((1, 17), np.int32)})
    rows = np.random.default_rng(2).integers(0, 50, (6, 9))
    write_examples(tmp_path / "ex/Split-train/data_tfrecord-00000-of-00001.gz", {"ids": rows})
    convert_tensorrt(str(model), str(tmp_path / "f"), str(tmp_path / "ex"), precision="fp32")
    assert TensorRTModel(tmp_path / "f").card.facts["profile"] == "ids=1x9:8x9:32x9"


def test_scalar_inputs_stay_scalars(tmp_path):
    import tensorflow as tf

    formula = lambda x, rate: {"y": x * rate}  # noqa: E731
    model = saved(tmp_path / "m", formula, x=([None, 3], tf.float32), rate=([], tf.float32))
    convert_tensorrt(str(model), str(tmp_path / "e"), precision="fp32")
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    with runtimes.load(TensorRTModel(tmp_path / "e")) as child:
        np.testing.assert_allclose(child.run({"x": rows, "rate": np.array(2, np.float32)})["y"], 2 * rows)


@pytest.mark.parametrize("parameters", [{"sparse": True, "workspace_mb": 64}, {"version_compatible": True}])
def test_sparse_and_version_compatible_engines_are_built_and_load(digits_model, tmp_path, parameters):
    convert_tensorrt(str(digits_model), str(tmp_path / "e"), **parameters)
    with runtimes.load(TensorRTModel(tmp_path / "e")) as child:
        assert child.run({"image": np.ones((2, 8, 8, 1), np.float32)})["digit"].shape == (2, 10)


def test_damaged_engines_and_those_of_another_machine_are_rejected(engines, tmp_path):
    plan = (engines("fp16") / "Format-Serving/model.plan").read_bytes()
    for name, content in (("half.plan", plan[: len(plan) // 2]), ("text.plan", b"no engine")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ComponentError, match=name):
            runtimes.load(Model(tmp_path / name))
    (tmp_path / "model.plan").write_bytes(plan)
    tag = json.loads((engines("fp16") / "Format-Serving/compatibility.json").read_text())
    for key, value in (("compute_capability", "1.0"), ("tensorrt", "1.2.3")):
        (tmp_path / "compatibility.json").write_text(json.dumps(tag | {key: value}))
        with pytest.raises(ComponentError, match=value):
            runtimes.load(Model(tmp_path / "model.plan"))


def test_an_unsupported_operator_is_named(tmp_path):
    import tensorflow as tf

    model = saved(tmp_path / "m", lambda x: {"y": tf.unique(x)[0]}, x=([None], tf.float32))
    with pytest.raises(ComponentError, match="Unique"):
        convert_tensorrt(str(model), str(tmp_path / "e"), precision="fp32")
    assert not (tmp_path / "e").exists()


def test_evaluate_and_benchmark_accept_an_engine(engines, digits_model, digits_examples, tmp_path):
    from tfopt.components.benchmark.component import benchmark
    from tfopt.components.evaluate.component import evaluate

    arguments = {"baseline": str(digits_model), "candidates": [str(engines("fp16")), str(engines("int8"))]}
    evaluate(**arguments, examples=str(digits_examples), evaluation=str(tmp_path / "e"))
    benchmark(**arguments, examples=str(digits_examples), benchmark=str(tmp_path / "b"), seconds=2.0)
    facts = [path.read_text() for folder in ("e", "b") for path in (tmp_path / folder).glob("*.json")]
    assert facts and all("tensorrt" in text for text in facts)


def test_close_releases_gpu_memory(engines, here):
    from cuda.bindings import runtime as cuda

    image = {"image": np.ones((32, 8, 8, 1), np.float32)}
    free = []
    for _ in range(12):
        with runtimes.load(TensorRTModel(engines("fp16"))) as child:
            child.run(image)
        free.append(cuda.cudaMemGetInfo()[1])
    assert free[-1] >= free[2] - (8 << 20)  # the first runs load kernels that stay in memory

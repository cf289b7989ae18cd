"""Test validate_serving with Triton itself."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests import triton
from tests.components.test_validate_serving import product, reason_of, validate
from tfopt.components.export_openvino.component import export_openvino
from tfopt.serving import triton_server


@pytest.mark.parametrize("backend", ["onnxruntime", None])
def test_triton_is_used_if_it_has_the_backend(tmp_path, monkeypatch, backend):
    program = tmp_path / "triton" / "bin" / "tritonserver"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    (program.parent.parent / "backends" / (backend or "python")).mkdir(parents=True)
    link = tmp_path / "bin" / "tritonserver"
    link.parent.mkdir()
    link.symlink_to(program)
    monkeypatch.setenv("PATH", f"{link.parent}:{os.environ['PATH']}")
    assert triton_server.find_program("onnx") == (str(link) if backend else None)
    assert triton_server.find_program("tensorrt") is None


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Install Triton and return the folder of its program."""
    return triton.install(tmp_path_factory.mktemp("triton"))


@pytest.fixture
def on_path(installed, monkeypatch) -> None:
    """Put Triton on the PATH."""
    monkeypatch.setenv("PATH", f"{installed}:{os.environ['PATH']}")


def row_of(blessing) -> dict:
    row = blessing.read()["models"][0]
    assert row["blessed"], row["reason"]
    assert row["server"].startswith("Triton 2.")
    assert row["max_error"] < 1e-5
    return row


@pytest.mark.nightly
@pytest.mark.usefixtures("on_path")
def test_triton_returns_the_outputs_of_each_format(digits_model, digits_examples, tmp_path):
    ir = export_openvino(digits_model, tmp_path / "ir", examples=digits_examples)["exported"]
    for model in (product(tmp_path), digits_model, ir):
        row = row_of(validate(model, tmp_path, layout="triton", batch_size=2, requests=5, concurrency=3, seconds=0.5))
        assert (row["requests"], row["latency"]["concurrency"]) == (5, 3)


@pytest.mark.nightly
@pytest.mark.usefixtures("on_path")
def test_dtypes_and_axes_of_triton_are_converted(tmp_path):
    kinds = {"half": TensorProto.FLOAT16, "long": TensorProto.INT64, "flag": TensorProto.BOOL}
    for first in ("batch", 2):
        shapes = {"half": [first, 3], "long": [first], "flag": [first, 2, "width"]}
        sides = [
            [helper.make_tensor_value_info(f"{name}{end}", kind, shapes[name]) for name, kind in kinds.items()]
            for end in ("", " too")
        ]
        graph = helper.make_graph(
            [helper.make_node("Identity", [name], [f"{name} too"]) for name in kinds], "g", *sides
        )
        file = tmp_path / f"same {first}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), str(file))
        row = row_of(validate(file, tmp_path, layout="triton", batch_size=2, concurrency=2))
        assert set(row["outputs"]) == {f"{name} too" for name in kinds}


@pytest.mark.nightly
@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('input { name: "x" data_type: TYPE_FP32 dims: [0, 3] }', "dimension must be integer >= 1"),
        ("version_policy { specific { versions: 7 } }", "none of its versions is loaded"),
    ],
)
def test_the_error_message_of_triton_is_reported(tmp_path, config, message):
    served = tmp_path / "product"
    served.mkdir()
    (served / "config.pbtxt").write_text(f'backend: "onnxruntime" {config}')
    reason = reason_of(validate(product(tmp_path), tmp_path, layout="triton", destination=str(served)))
    assert reason.startswith("tritonserver does not serve it: ")
    assert message in reason


@pytest.mark.nightly
@pytest.mark.usefixtures("on_path")
def test_wrong_outputs_of_triton_are_reported(tmp_path):
    factor = np.full((3, 2), np.nan, np.float32)
    assert "NaN or infinity" in reason_of(validate(product(tmp_path, factor), tmp_path, layout="triton"))

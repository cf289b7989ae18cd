"""Test the tensorrt runtime without a GPU: detection, tags, shapes, profiles and splitting of batches.

Tests that run engines are in tests/gpu.
"""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.runtimes.tensorrt import select_profile, split_batch
from tfopt.tensorrt import machine
from tfopt.tensorrt.machine import Machine
from tfopt.tensorrt.profiles import Profile, derive_profile, parse_shapes, with_usual_sizes
from tfopt.tensorrt.tag import CompatibilityTag

HERE = Machine("10.11.0.33", "8.6", "NVIDIA A10", "570.86.15")


def nvidia_smi(folder: Path, monkeypatch, script: str) -> None:
    """Put a script named nvidia-smi first on the path."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("script", "received", "fix"),
    [
        (
            "echo 'NVIDIA-SMI has failed because it could not talk to the driver'; exit 9",
            "could not talk",
            "export_onnx",
        ),
        ("echo 'No devices were found' >&2; exit 6", "No devices were found", "export_openvino"),
        ("true", "no output", "Kubeflow"),
    ],
)
def test_the_message_of_a_failing_driver_is_reported(tmp_path, monkeypatch, script, received, fix):
    nvidia_smi(tmp_path, monkeypatch, script)
    with pytest.raises(ComponentError) as error:
        machine.detect_machine()
    assert received in error.value.received and fix in error.value.fix


def test_without_a_gpu_detection_and_loading_fail(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "m.plan").write_bytes(b"an engine")
    for attempt in (machine.detect_machine, lambda: runtimes.load(Model(tmp_path / "m.plan"))):
        with pytest.raises(ComponentError, match="no nvidia-smi") as error:
            attempt()
        assert "export_onnx" in error.value.fix


def test_without_tensorrt_the_error_has_instructions(tmp_path, monkeypatch):
    nvidia_smi(tmp_path, monkeypatch, "echo 570.86.15")
    monkeypatch.setitem(__import__("sys").modules, "tensorrt", None)  # makes the import fail
    with pytest.raises(ComponentError, match="import tensorrt") as error:
        machine.detect_machine()
    assert "deploy/images/gpu" in error.value.fix
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings.runtime", None)
    with pytest.raises(ComponentError, match=r"import cuda.bindings.runtime") as error:
        machine.detect_machine()
    assert "tfopt[tensorrt]" in error.value.fix


def test_a_tag_is_written_and_read(tmp_path):
    plan = tmp_path / "größe 1" / "model.plan"
    plan.parent.mkdir()
    assert CompatibilityTag.read(plan) is None
    CompatibilityTag(**HERE.__dict__, version_compatible=True).write(plan)
    assert CompatibilityTag.read(plan) == CompatibilityTag("10.11.0.33", "8.6", "NVIDIA A10", "570.86.15", True)
    values = json.loads((plan.parent / "compatibility.json").read_text())
    assert values["compute_capability"] == "8.6" and values["version_compatible"] is True
    (plan.parent / "compatibility.json").write_text(json.dumps(values | {"later": "field"}))
    assert CompatibilityTag.read(plan).gpu == "NVIDIA A10"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"tensorrt": "10"}'])
def test_a_damaged_tag_is_rejected(tmp_path, content):
    (tmp_path / "compatibility.json").write_text(content)
    with pytest.raises(ComponentError, match=r"compatibility\.json"):
        CompatibilityTag.read(tmp_path / "model.plan")


@pytest.mark.parametrize(
    ("built", "compatible", "received", "fix"),
    [
        ({}, False, None, None),
        ({"driver": "535.1"}, False, None, None),
        ({"gpu": "NVIDIA A16"}, False, None, None),  # the same compute capability
        ({"compute_capability": "9.0", "gpu": "NVIDIA H200"}, False, "9.0 (NVIDIA H200)", "tfopt convert_tensorrt"),
        ({"compute_capability": "9.0"}, True, "compute capability 9.0", "again"),
        ({"tensorrt": "10.9.0.34"}, False, "exactly that version", "version_compatible=True"),
        ({"tensorrt": "10.9.0.34"}, True, None, None),
        ({"tensorrt": "9.3.0"}, True, None, None),
        ({"tensorrt": "10.12.0.36"}, True, "or a later one", "again"),
        ({"tensorrt": "10.12.0.36"}, False, "10.12.0.36", "again"),
        ({"tensorrt": "10.11.0.4"}, False, "10.11.0.4", "version_compatible"),  # 4 is less than 33, though "4" > "33"
    ],
)
def test_an_engine_for_another_machine_is_rejected_by_its_tag(built, compatible, received, fix):
    tag = CompatibilityTag(**(HERE.__dict__ | built), version_compatible=compatible)
    if received is None:
        tag.check(HERE, "m.plan")
        return
    with pytest.raises(ComponentError) as error:
        tag.check(HERE, "m.plan")
    assert "m.plan" in error.value.received and received in error.value.received and fix in error.value.fix
    if "tensorrt" in built and built["tensorrt"].startswith("10.12"):  # an engine of a newer version never loads here
        assert "version_compatible=True" not in error.value.fix


def test_an_older_driver_logs_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "tfopt"):
        CompatibilityTag(**(HERE.__dict__ | {"driver": "580.1"})).check(HERE, "m.plan")
        CompatibilityTag(**(HERE.__dict__ | {"driver": "570.86.2"})).check(HERE, "m.plan")
    assert [record.args[1] for record in caplog.records] == ["580.1"]


SPECS = {
    "image": TensorSpec("float32", (None, 8, 8, 1)),
    "ids": TensorSpec("int32", (None, None)),
    "fixed": TensorSpec("float32", (4, 2)),
    "rate": TensorSpec("float32", ()),
}


def test_profiles_use_signature_examples_and_batch_sizes():
    stored = {"ids": TensorSpec("int64", (None, 17)), "image": TensorSpec("float32", (None, 64))}
    result = derive_profile(SPECS, {}, stored, usual_batch=8, largest_batch=32)
    assert result.ranges == {
        "image": ((1, 8, 8, 1), (8, 8, 8, 1), (32, 8, 8, 1)),
        "ids": ((1, 17), (8, 17), (32, 17)),
        "fixed": ((4, 2),) * 3,
        "rate": ((), (), ()),
    }
    requested = derive_profile(SPECS, parse_shapes(["ids=1x8:4x32:16x128"]), None, usual_batch=2, largest_batch=2)
    assert requested.ranges["ids"] == ((1, 8), (4, 32), (16, 128)) and requested.ranges["image"][2] == (2, 8, 8, 1)
    assert str(requested).startswith("image=1x8x8x1:2x8x8x1:2x8x8x1 ids=1x8:4x32:16x128")
    specs, stored = {"x": TensorSpec("f", (None, 3, None))}, {"x": TensorSpec("f", (None, 12))}
    assert derive_profile(specs, {}, stored, usual_batch=1, largest_batch=1).ranges["x"][0] == (1, 3, 4)


@pytest.mark.parametrize(
    ("specs", "values", "received", "fix"),
    [
        (SPECS, [], "'ids' is int32[?,?]", "ids=1x1:8x64:32x128"),
        ({"x": TensorSpec("float32", (None, None, None, 3))}, [], "dynamic sizes", "x=1x1x1x3:8x64x64x3:32x128x128x3"),
        ({"x": TensorSpec("float32", (None,), ranked=False)}, [], "unknown rank", "x="),
        (SPECS, ["idz=1x2"], "no input 'idz'", "did you mean ids?"),
        (SPECS, ["image=1x8x8:1x8x8:1x8x8"], "image=1x8x8", "that the model fixes"),
        (SPECS, ["image=1x8x8x1:1x8x8x3:1x8x8x3"], "1x8x8x3", "that the model fixes"),
        (SPECS, ["ids=2x8:4x8:8x8"], "excludes single records", "1x8"),
        (SPECS, ["ids=1x8", "fixed=1x2:2x2:4x2"], "fixed=1x2", "that the model fixes"),
    ],
)
def test_unknown_and_unsuitable_shapes_are_rejected(specs, values, received, fix):
    with pytest.raises(ComponentError) as error:
        derive_profile(specs, parse_shapes(values), None, usual_batch=8, largest_batch=32)
    assert received in error.value.received and fix in error.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x=",
        "=1x2",
        "x=1x",
        "x=1xa",
        "x=0x2",
        "x=1x2:2x2",
        "x=1:2:3:4",
        "x=2x4:1x4:8x4",
        "x=1x2:1x2x3:1x2",
        "x=-1x2",
    ],
)
def test_invalid_ranges_of_shapes_are_rejected(text):
    with pytest.raises(ComponentError) as error:
        parse_shapes([text])
    assert error.value.expected and error.value.fix
    with pytest.raises(ComponentError, match="twice"):
        parse_shapes(["x=1x2", "x=1x2"])


def test_dynamic_sizes_are_replaced_by_the_usual_ones():
    profile = derive_profile(SPECS, parse_shapes(["ids=1x8:4x32:16x128"]), None, usual_batch=8, largest_batch=32)
    assert {name: spec.shape for name, spec in with_usual_sizes(SPECS, profile).items()} == {
        "image": (None, 8, 8, 1),
        "ids": (None, 32),
        "fixed": (4, 2),
        "rate": (),
    }


def profile(least: int, most: int, length: int = 4) -> Profile:
    return Profile({"x": ((least, 1), (most, length), (most, length))})


def test_the_current_profile_is_preferred():
    small, large = profile(1, 8), profile(1, 32, 9)
    few, many = {"x": np.zeros((8, 4))}, {"x": np.zeros((9, 9))}
    assert select_profile([small, large], few, 0) == 0 and select_profile([small, large], few, 1) == 1
    assert select_profile([small, large], many, 0) == 1
    with pytest.raises(ComponentError, match=r"x: \(33, 4\)") as error:
        select_profile([small, large], {"x": np.zeros((33, 4))}, 0)
    assert "x=1x1:8x4:8x4 or x=1x1" in error.value.expected and "largest_batch" in error.value.fix
    with pytest.raises(ComponentError):
        select_profile([small], {"x": np.zeros((1, 2, 2))}, 0)


def test_a_large_batch_is_split_into_parts():
    inputs = {"x": TensorSpec("float32", (None, 4)), "rate": TensorSpec("float32", ())}
    outputs = {"y": TensorSpec("float32", (None, 2))}
    ranges = profile(1, 8).ranges | {"rate": ((), (), ())}
    values = {"x": np.arange(80).reshape(20, 4), "rate": np.float32(3)}
    result = split_batch(values, inputs, outputs, [Profile(ranges)])
    assert [len(part["x"]) for part in result] == [8, 8, 4] and all(part["rate"] == 3 for part in result)
    np.testing.assert_array_equal(np.concatenate([part["x"] for part in result]), values["x"])
    small = {"x": values["x"][:8], "rate": values["rate"]}
    assert split_batch(small, inputs, outputs, [Profile(ranges)]) == [small]
    whole = {"y": TensorSpec("float32", (2,))}  # no batch dimension to join the parts
    assert split_batch(values, inputs, whole, [Profile(ranges)]) == [values]


def test_a_failed_build_names_the_missing_library_or_what_else_to_try():
    missing = "Error Code 6: API Usage Error (Unable to load library: libnvinfer_lean.so.10: cannot open shared object)"
    assert "tensorrt_lean" in machine.build_error(missing).fix and missing in str(machine.build_error(missing))
    assert "workspace_mb" in machine.build_error("out of memory").fix

"""convert_tensorrt and the tensorrt runtime against a stand-in for TensorRT's bindings, and host memory for a GPU's.

It shows how they are called; what TensorRT itself does with it, tests/gpu shows.
"""

import ctypes
import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests import stand_in_tensorrt as stand_in
from tfopt.components.convert_tensorrt.request import Request
from tfopt.errors import ComponentError
from tfopt.runtimes import TensorSpec
from tfopt.runtimes.tensorrt import TensorRTRuntime
from tfopt.tensorrt import device
from tfopt.tensorrt.profiles import Profile

HERE = "tfopt.components.convert_tensorrt"
LOADED = ("tfopt.tensorrt.messages", *(f"{HERE}.{name}" for name in ("building", "inspecting", "calibrator")))
PROFILE = Profile({"x": ((1, 3), (8, 3), (32, 3)), "rate": ((), (), ())})
SPECS = {"x": TensorSpec("float32", (None, 3)), "rate": TensorSpec("float32", ())}
SAMPLED = {"x": np.arange(60, dtype=np.float32).reshape(20, 3), "rate": np.array(1, np.float32)}


@pytest.fixture(autouse=True)
def tensorrt(monkeypatch):
    """The stand-in in the place of TensorRT, for what imports it."""
    forget()
    monkeypatch.setitem(sys.modules, "tensorrt", stand_in)
    monkeypatch.setattr(device, "_asked", Host())
    stand_in.plugin_loggers.clear()
    yield
    forget()


def forget() -> None:
    for name in LOADED:
        package, _, short = name.rpartition(".")
        if sys.modules.pop(name, None):
            delattr(sys.modules[package], short)


class Host:
    """Answers as CUDA does, with memory of this process."""

    def __init__(self) -> None:
        self.held: dict[int, ctypes.Array] = {}

    def __call__(self, function, *given):
        if function == "cudaMalloc":
            memory = ctypes.create_string_buffer(given[0])
            self.held[ctypes.addressof(memory)] = memory
            return ctypes.addressof(memory)
        if function == "cudaMemcpyAsync":
            ctypes.memmove(*given[:3])
        if function == "cudaFree":
            del self.held[given[0]]
        return 1


def built(folder, sampled=SAMPLED, **given):
    """What the model card says of an engine built by the stand-in."""
    building = importlib.import_module(f"{HERE}.building")
    model = SimpleNamespace(digest="of a model")
    return building.build(
        folder / "m.onnx", folder / "m.plan", PROFILE, SPECS, sampled, model, Request(**({"precision": "fp32"} | given))
    )


def test_layers_are_told_at_the_usual_shapes_of_an_engine_with_open_sizes(tmp_path):
    assert built(tmp_path)["layers"]["precisions"] == {"fp32": 1}


def test_an_engine_that_cannot_be_inspected_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_in.Engine, "inspected", False)
    with pytest.raises(ComponentError, match="cannot be inspected"):
        built(tmp_path)


def test_an_operator_that_the_parser_lacks_is_named_with_its_node(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_in.OnnxParser, "errors", [("words/unique", "Unique", "false")])
    with pytest.raises(ComponentError, match=r"words/unique and operator: Unique .*: false"):
        built(tmp_path)


@pytest.mark.parametrize(("wanted", "carried"), [(True, ["/lib/libnvinfer_vc_plugin.so.10"]), (False, [])])
def test_engines_for_later_versions_carry_the_plugins_that_their_operators_need(tmp_path, monkeypatch, wanted, carried):
    monkeypatch.setattr(stand_in.OnnxParser, "plugins", ["/lib/libnvinfer_vc_plugin.so.10"])
    built(tmp_path, version_compatible=wanted)
    assert stand_in.Config.last.plugins_to_serialize == carried
    assert (stand_in.BuilderFlag.VERSION_COMPATIBLE in stand_in.Config.last.flags) is wanted


ENTROPY = {"precision": "int8", "calibrator": "entropy", "usual_batch": 8}


def test_the_card_counts_the_batches_that_the_calibrator_gave(tmp_path):
    kept = {"calibration_cache": str(tmp_path / "cache")}
    first, second = (built(tmp_path, **ENTROPY, **kept)["calibrated"] for _ in range(2))
    assert (first["batches"], first["from_cache"]) == (2, False)
    assert (second["batches"], second["from_cache"]) == (0, True)
    assert (tmp_path / "cache").read_bytes().endswith(b"of 2 batches")


def test_a_batch_that_fails_ends_the_conversion_and_not_the_calibration(tmp_path, monkeypatch):
    upload, calls = device.Buffers.upload, []

    def failing(self, name, array):
        calls.append(name)
        if len(calls) == 2:
            raise ComponentError("cudaMalloc: out of memory", "memory", "free some")
        return upload(self, name, array)

    monkeypatch.setattr(device.Buffers, "upload", failing)
    with pytest.raises(ComponentError, match="out of memory"):
        built(tmp_path, **ENTROPY, calibration_cache=str(tmp_path / "cache"))
    assert list(tmp_path.iterdir()) == [] and len(calls) == 2  # neither an engine nor ranges of half the examples


def test_a_calibration_cache_that_cannot_be_read_or_written_ends_the_conversion(tmp_path):
    with pytest.raises(ComponentError, match="directory"):
        built(tmp_path, **ENTROPY, calibration_cache=str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ComponentError, match=r"exists|directory"):
        built(tmp_path, **ENTROPY, calibration_cache=str(tmp_path / "file" / "cache"))
    assert not (tmp_path / "m.plan").exists()


def loaded(folder) -> TensorRTRuntime:
    (folder / "m.plan").write_bytes(b"an engine")
    return TensorRTRuntime(folder / "m.plan", host_code=False)


def test_a_scalar_goes_into_an_engine_as_one(tmp_path):
    rows = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(4, 3))
    with loaded(tmp_path) as runtime:
        np.testing.assert_array_equal(runtime.call({"x": rows, "rate": np.array(2, np.float32)})["y"], rows)


def test_a_shape_that_the_engine_does_not_take_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_in.Context, "set_input_shape", lambda self, name, shape: name != "rate")
    with loaded(tmp_path) as runtime, pytest.raises(ComponentError, match=r"input 'rate' of shape \(\)"):
        runtime.call({"x": np.zeros((1, 3), np.float32), "rate": np.array(2, np.float32)})


def test_plugins_are_loaded_once_in_a_process_with_a_logger_that_stays(tmp_path):
    for _ in range(2):
        built(tmp_path)
        loaded(tmp_path).close()
    messages = sys.modules["tfopt.tensorrt.messages"]
    assert stand_in.plugin_loggers == [messages._OF_PLUGINS.logger]

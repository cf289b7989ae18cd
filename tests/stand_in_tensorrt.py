"""Does what TensorRT's Python bindings do where they surprise, for machines without it; an engine gives back its input.

Each surprise is there as the sources of the bindings have it (python/src of NVIDIA/TensorRT, 10.11 and 11.1): functions
that answer None or False in the place of an error, and callbacks whose exceptions end nowhere.
"""

import contextlib
import ctypes
import json
from enum import IntEnum
from types import SimpleNamespace

__version__ = "10.11.0.33"
NAMES = {"x": (-1, 3), "rate": (), "y": (-1, 3)}
LayerInformationFormat = SimpleNamespace(JSON="json")
ProfilingVerbosity = SimpleNamespace(DETAILED="detailed")
MemoryPoolType = SimpleNamespace(WORKSPACE="workspace")
NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
TensorIOMode = SimpleNamespace(INPUT="input", OUTPUT="output")
TensorLocation = SimpleNamespace(DEVICE="device", HOST="host")
BuilderFlag = IntEnum("BuilderFlag", "INT8 TF32 SPARSE_WEIGHTS VERSION_COMPATIBLE")
plugin_loggers = []  # every one that was ever passed; the plugins keep the last


def init_libnvinfer_plugins(logger, namespace):
    plugin_loggers.append(logger)
    return True


class ILogger:
    pass


class IInt8EntropyCalibrator2:
    pass


class Network:
    def __init__(self, flags):
        self.flags = flags


class OnnxParser:
    errors, plugins = (), ()  # each error is (node, operator, condition)

    def __init__(self, network, logger):
        self.num_errors = len(self.errors)

    def parse_from_file(self, path):
        return not self.errors

    def get_error(self, index):
        return ParserError(*self.errors[index])

    def get_used_vc_plugin_libraries(self):
        return list(self.plugins)


class ParserError:
    def __init__(self, name, operator, condition):
        self.name, self.operator, self.condition = name, operator, condition

    def desc(self):
        return self.condition

    def __str__(self):
        node = f"In node 0 with name: {self.name} and operator: {self.operator} "
        return f"{node}(checkFallbackPluginImporter): UNSUPPORTED_NODE: {self.condition}"


class Config:
    last = None

    def __init__(self):
        Config.last = self
        self.flags, self.plugins_to_serialize, self.int8_calibrator = {BuilderFlag.TF32}, [], None

    def set_flag(self, flag):
        self.flags.add(flag)

    def clear_flag(self, flag):
        self.flags.discard(flag)

    def set_memory_pool_limit(self, pool, size):
        pass

    def set_calibration_profile(self, profile):
        return True

    def add_optimization_profile(self, profile):
        return 0


class Builder:
    def __init__(self, logger):
        pass

    def create_network(self, flags):
        return Network(flags)

    def create_builder_config(self):
        return Config()

    def create_optimization_profile(self):
        return SimpleNamespace(set_shape=lambda *shapes: None)

    def build_serialized_network(self, network, config):
        if config.int8_calibrator is not None and not calibrated(config.int8_calibrator):
            return None
        return b"an engine"


def calibrated(calibrator):
    """Run one as a build does; whether there was anything to find ranges on."""
    if swallowed(calibrator.read_calibration_cache):
        return True
    count = 0
    while swallowed(calibrator.get_batch, ["x"]):
        count += 1
    if count:
        swallowed(calibrator.write_calibration_cache, memoryview(f"of {count} batches".encode()))
    return bool(count)


def swallowed(callback, *given):
    with contextlib.suppress(BaseException):
        return callback(*given)
    return None


class Runtime:
    def __init__(self, logger):
        self.logger = logger

    def deserialize_cuda_engine(self, plan):
        return Engine()


class Engine:
    num_io_tensors, num_optimization_profiles = len(NAMES), 1
    inspected = True

    def get_tensor_name(self, index):
        return list(NAMES)[index]

    def get_tensor_mode(self, name):
        return TensorIOMode.OUTPUT if name == "y" else TensorIOMode.INPUT

    def get_tensor_location(self, name):
        return TensorLocation.DEVICE

    def get_tensor_dtype(self, name):
        return SimpleNamespace(name="FLOAT")

    def get_tensor_shape(self, name):
        return NAMES[name]

    def get_tensor_profile_shape(self, name, index):
        return [tuple(size if free < 0 else free for free in NAMES[name]) for size in (1, 8, 32)]

    def create_execution_context(self):
        return Context()

    def create_engine_inspector(self):
        return Inspector() if self.inspected else None


class Context:
    def __init__(self):
        self.shapes, self.addresses = {}, {}

    def set_input_shape(self, name, shape):
        if len(shape) != len(NAMES[name]):
            return False
        self.shapes[name] = shape
        return True

    def set_tensor_address(self, name, address):
        self.addresses[name] = address

    def get_tensor_shape(self, name):
        return self.shapes["x"]

    def execute_async_v3(self, stream):
        rows, width = self.shapes["x"]
        ctypes.memmove(self.addresses["y"], self.addresses["x"], rows * width * 4)
        return True


class Inspector:
    execution_context = None

    def get_engine_information(self, form):
        """Types that depend on open sizes are told at set shapes only."""
        told = "Row major linear FP32" if self._is_bound() else "N/A due to dynamic shapes"
        ends = [{"Name": "t", "Dimensions": [-1, 3], "Format/Datatype": told}]
        return json.dumps({"Layers": [{"Name": "only", "LayerType": "gemm", "Inputs": ends, "Outputs": ends}]})

    def _is_bound(self):
        context = self.execution_context
        return context is not None and all(context.shapes.get(name) is not None for name in ("x", "rate"))

"""Measure what files of packed weights save when a model is loaded: LiteRT, ONNX Runtime and OpenVINO.

    python benchmarks/weight_caches.py model.tflite model.onnx model.xml [--rounds 5] [--threads 1]

Each start is a new process that imports the runtime, loads the model and makes a first call with zeros, all open sizes
1; the import is not counted. The variants take turns. The first start of a variant with a cache writes it and is a row
of its own. CPU seconds are those of the process; memory is its peak after the import.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

VARIANTS = {
    ".tflite": ("interpreter", "compiled", "compiled, cache"),
    ".onnx": ("plain", "optimized file", "optimized and packed"),
    ".xml": ("plain", "cache"),
}


def main() -> None:
    """Start each variant in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", nargs=2, metavar=("VARIANT", "CACHE"), help=argparse.SUPPRESS)  # in a new process
    arguments = parser.parse_args()
    if arguments.one:
        variant, cache = arguments.one
        print(json.dumps(measure(arguments.files[0], variant, Path(cache), arguments.threads)))
        return
    print("| file | variant | load s | first call s | CPU s | MiB | cache MB |\n|---|---|---|---|---|---|---|")
    for file in arguments.files:
        figures = defaultdict(list)
        with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as scratch:
            for round in range(-1, arguments.rounds):
                for variant in VARIANTS[file.suffix]:
                    cache = Path(scratch, variant.replace(", ", "-").replace(" ", "-"))
                    is_first = not cache.exists()
                    cache.mkdir(exist_ok=True)
                    words = [sys.executable, __file__, str(file), "--threads", str(arguments.threads), "--one", variant]
                    done = subprocess.run([*words, str(cache)], capture_output=True, text=True)
                    if done.returncode:
                        sys.exit(f"{file} {variant}: {done.stderr[-2000:]}")
                    has_cache = any(cache.rglob("*"))
                    if round >= 0 or has_cache:
                        name = f"{variant}: written" if is_first and has_cache else variant
                        size = sum(one.stat().st_size for one in cache.rglob("*") if one.is_file())
                        figures[name].append([*json.loads(done.stdout.splitlines()[-1]), size / 1e6])
        for variant, rows in figures.items():
            cells = " | ".join(f"{statistics.median(column):.3g}" for column in zip(*rows, strict=True))
            print(f"| {file.name} | {variant} | {cells} |", flush=True)


def measure(file: Path, variant: str, cache: Path, threads: int) -> list[float]:
    """Return the seconds to load and of the first call, CPU seconds of both, and MiB of memory."""
    from tfopt.processes.memory import peak_memory

    load = {".tflite": load_tflite, ".onnx": load_onnx, ".xml": load_openvino}[file.suffix](variant)
    before, cpu, start = peak_memory(), time.process_time(), time.perf_counter()
    call = load(file, cache, threads)
    loaded = time.perf_counter()
    call()
    ended = time.perf_counter()
    return [loaded - start, ended - loaded, time.process_time() - cpu, (peak_memory() - before) / 2**20]


def load_tflite(variant: str) -> Any:
    """Import LiteRT, and return a function that loads a file."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.cpu_options import CpuOptions
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_litert.options import Options

    def load(file: Path, cache: Path, threads: int) -> Any:
        if variant == "interpreter":
            interpreter = Interpreter(model_path=str(file), num_threads=threads)
            interpreter.allocate_tensors()
            for detail in interpreter.get_input_details():
                interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
            return interpreter.invoke
        path = str(cache / "weights") if "cache" in variant else ""
        cpu = CpuOptions(num_threads=threads, xnnpack_weight_cache_path=path)
        options = Options(hardware_accelerators=HardwareAccelerator.CPU, cpu_options=cpu)
        model = CompiledModel.from_file(str(file), options=options)
        inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
        return lambda: model.run_by_index(0, inputs, outputs)

    return load


def load_onnx(variant: str) -> Any:
    """Import ONNX Runtime, and return a function that loads a file; later starts read the file that the first wrote."""
    import onnxruntime

    types = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}

    def load(file: Path, cache: Path, threads: int) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, written = threads, cache / "model.onnx"
        if variant != "plain" and written.exists():
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            file = written
        elif variant != "plain":
            options.optimized_model_filepath = str(written)
            if "packed" in variant:
                options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
                options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        shapes = {
            one.name: [size if isinstance(size, int) else 1 for size in one.shape] for one in session.get_inputs()
        }
        feeds = {one.name: np.zeros(shapes[one.name], types[one.type]) for one in session.get_inputs()}
        return lambda: session.run(None, feeds)

    return load


def load_openvino(variant: str) -> Any:
    """Import OpenVINO, and return a function that loads a file."""
    from tfopt.runtimes.openvino import SETTINGS
    from tfopt.runtimes.openvino_import import openvino

    def load(file: Path, cache: Path, threads: int) -> Any:
        settings = SETTINGS | {"INFERENCE_NUM_THREADS": threads}
        settings |= {"CACHE_DIR": str(cache)} if "cache" in variant else {}
        compiled = openvino.Core().compile_model(str(file), "CPU", settings)
        sizes = [
            [size.get_length() if size.is_static else 1 for size in port.partial_shape] for port in compiled.inputs
        ]
        arrays = [
            np.zeros(size, port.element_type.to_dtype()) for size, port in zip(sizes, compiled.inputs, strict=True)
        ]
        return lambda: compiled(arrays)

    return load


if __name__ == "__main__":
    main()

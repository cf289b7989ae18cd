"""p99 at a rate behind a real server: tfopt's load generator, the server's own, and the model in process.

    python benchmarks/serving_rate.py [--requests 400] [--rounds 5] [--loads 0.3 0.5 0.7] [--folder DIR] [--json FILE]

The server is Triton of the package nvidia-pytriton, the other generator its Performance Analyzer, from the package
tritonclient of the same release. Both send requests over gRPC at the same random arrival times, in turns, with several
connections, so that the queue is in Triton; its p99 is the one that it prints. The model, a
chain of matrix products, runs with ONNX Runtime: in the Python backend, because these packages have no other, and in
this process. The load is the rate times the time of a request at a trickle. For the model in process, p99 at a rate is
predicted with the constant overhead of the server, measured at the trickle, added to its service time (Lindley's
recursion over the measured times of calls). `tfopt` counts latency from the arrival. The analyzer counts it from the
sending, which hides how late its threads were, so the ratio compares latencies from the sending.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLIENT = "tritonclient==2.51.0"  # the last release of Triton's client with the program perf_analyzer
CONNECTIONS = 16
WIDTH, LAYERS = 512, 120
TRICKLE = 0.05  # load at which a request hardly ever waits

Times = NDArray[np.float64]


def main() -> None:
    """Measure all loads in turns and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=400, help="in each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.3, 0.5, 0.7])
    parser.add_argument("--folder", type=Path, help="where the two packages are stored for the next run")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as scratch:
        packages = install(arguments.folder or Path(scratch))
        os.environ["PATH"] = f"{packages.server}:{os.environ['PATH']}"
        with served_model(Path(scratch)) as (client, in_process, port):
            result = measure(arguments, client, in_process, Analyzer(packages, port, Path(scratch)))
    print_ratios(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


@dataclass(frozen=True)
class Packages:
    """The programs of the two packages."""

    server: Path  # the folder of tritonserver
    analyzer: Path
    libraries: Path  # that the analyzer needs; the package of the server has them


def install(folder: Path) -> Packages:
    """Download both packages, unless they are there."""
    from tests import triton

    server, analyzer, libraries = folder / "pytriton" / "tritonserver" / "bin", folder / "perf_analyzer", folder / "lib"
    if not analyzer.exists():
        triton.install(folder)
        arguments = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), CLIENT]
        subprocess.run([sys.executable, *arguments], check=True)
        libraries.mkdir()
        for name in ("libb64", "libcudart"):
            (bundled,) = (folder / "nvidia_pytriton.libs").glob(f"{name}-*")
            link = "libb64.so.0d" if name == "libb64" else "libcudart.so.12"
            (libraries / link).symlink_to(bundled.resolve())
        (wheel,) = folder.glob("tritonclient-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (entry,) = (name for name in archive.namelist() if name.endswith("/bin/perf_analyzer"))
            analyzer.write_bytes(archive.read(entry))
        analyzer.chmod(0o755)
    return Packages(server.resolve(), analyzer.resolve(), libraries.resolve())


@contextmanager
def served_model(folder: Path) -> Iterator[tuple[Callable[[], Any], Callable[[int], object], int]]:
    """Serve a model with Triton; yield a client for each thread, a call of the model here, and the server's port."""
    import psutil

    from tfopt import runtimes
    from tfopt.artifacts import Model
    from tfopt.components.validate_serving.parameters import ServingTest
    from tfopt.serving import triton_server
    from tfopt.serving.layouts import write_version
    from tfopt.serving.servers import serve

    model, root = write_model(folder / "chain.onnx"), folder / "repository" / "chain"
    write_version(Model(model), "triton", root / "1", None, 0)
    with runtimes.load(Model(model)) as runtime:
        triton_server.check_folder(Model(model), root, runtime, ServingTest(layout="triton", max_batch_size=1))
        batch = {"x": np.ones((1, WIDTH), np.float32)}
        with serve(Model(model), "triton", root, time.monotonic() + 120) as server:
            assert server.name.startswith("Triton"), server.name
            flags = [flag for child in psutil.Process().children(recursive=True) for flag in child.cmdline()]
            port = next(int(flag.partition("=")[2]) for flag in flags if flag.startswith("--grpc-port="))
            yield lambda: partial(_send, server.client(), batch), partial(_send, runtime.run_without_limit, batch), port


def _send(call: Callable[[Any], object], batch: Any, number: int) -> None:
    call(batch)


def write_model(file: Path) -> Path:
    """Write a chain of matrix products."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = (np.random.default_rng(0).normal(size=(WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
    names = ["x", *(f"y{layer}" for layer in range(LAYERS - 1)), "y"]
    pairs = itertools.pairwise(names)
    nodes = [helper.make_node("MatMul", [before, "w"], [after]) for before, after in pairs]
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", sides[:1], sides[1:], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), str(file))
    return file


@dataclass(frozen=True)
class Analyzer:
    """Triton's Performance Analyzer."""

    packages: Packages
    port: int
    folder: Path

    def p99(self, arrivals: Times) -> float:
        """Send requests at these times, and return the p99 that it prints, in milliseconds."""
        intervals = self.folder / "intervals.txt"
        # The file has whole microseconds, and is read again from its beginning: the last interval is that to the first.
        gaps = np.diff(arrivals, append=arrivals[-1] + arrivals[-1] / len(arrivals)) * 1e6
        intervals.write_text("".join(f"{max(1, round(gap))}\n" for gap in gaps))
        command = [
            self.packages.analyzer, "-m", "chain", "-u", f"localhost:{self.port}", "-i", "grpc", "--async",
            "--max-threads", CONNECTIONS, "--request-intervals", intervals, "--request-count", len(arrivals),
        ]  # fmt: skip
        libraries = f"{self.packages.libraries}:{self.packages.server.parents[2] / 'nvidia_pytriton.libs'}"
        environment = os.environ | {"LD_LIBRARY_PATH": libraries}
        done = subprocess.run(list(map(str, command)), env=environment, text=True, capture_output=True)
        if not (match := re.search(r"p99 latency: (\d+) usec", done.stdout)):
            raise SystemExit(f"perf_analyzer ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return int(match[1]) / 1e3


def measure(
    arguments: argparse.Namespace, client: Callable[[], Any], in_process: Callable[[int], object], analyzer: Analyzer
) -> dict[str, Any]:
    """Return the p99 of each load in each round, by both generators and as predicted from the model in process."""
    from tfopt.serving.load_generator import arrival_times, send_open_loop

    clients = [client() for _ in range(CONNECTIONS)]
    for call in (*clients, *[in_process] * 20):
        call(0)
    service = np.median([seconds_of(in_process) for _ in range(200)])
    trickle = np.median(send_open_loop(clients[:1], arrival_times("constant", TRICKLE / service, 60)).latencies)
    overhead = float(trickle - service)
    result: dict[str, Any] = {"service_ms": 1e3 * service, "overhead_ms": 1e3 * overhead, "loads": []}
    for load in arguments.loads:
        rows = []
        for number in range(arguments.rounds):
            arrivals = arrival_times("poisson", load / trickle, arguments.requests, seed=number)
            calls = np.array([seconds_of(in_process) for _ in arrivals])
            row = {"predicted": p99(queue(arrivals, calls + overhead))}
            for name in ("tfopt", "perf_analyzer")[:: 1 if number % 2 else -1]:
                if name == "tfopt":
                    sent = send_open_loop(clients, arrivals)
                    row["from_arrival"] = p99(sent.latencies)
                    # As the analyzer counts; the delays are known if a connection was free at each arrival.
                    delays = sent.delays if len(sent.delays) == len(arrivals) else 0.0
                    row[name] = p99(sent.latencies - delays)
                else:
                    row[name] = analyzer.p99(arrivals)
            print(f"load {load:g}, round {number + 1}: {row}", file=sys.stderr)
            rows.append(row)
        result["loads"].append({"load": load, "rate": load / float(trickle), "rounds": rows})
    return result


def seconds_of(call: Callable[[int], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call(0)
    return time.perf_counter() - start


def p99(latencies: Times) -> float:
    """Return the 99th percentile in milliseconds."""
    return 1e3 * float(np.percentile(latencies, 99))


def queue(arrivals: Times, services: Times) -> Times:
    """Return the latencies of requests in the queue of one worker (Lindley's recursion)."""
    free, latencies = 0.0, []
    for arrival, service in zip(arrivals, services, strict=True):
        free = max(free, arrival) + service
        latencies.append(free - arrival)
    return np.array(latencies)


def print_ratios(result: dict[str, Any]) -> None:
    """Print the medians over the rounds, and the ratio of each pair."""
    print(
        f"model {result['service_ms']:.2f} ms in process; the server adds {result['overhead_ms']:.2f} ms at a trickle"
    )
    print(" load   rate/s  from arrival  from sending   perf_analyzer   ratio  (rounds)         predicted   ratio")
    for entry in result["loads"]:
        values = {name: np.array([row[name] for row in entry["rounds"]]) for name in entry["rounds"][0]}
        ratios, predicted = values["tfopt"] / values["perf_analyzer"], values["tfopt"] / values["predicted"]
        medians = [float(np.median(values[name])) for name in ("from_arrival", "tfopt", "perf_analyzer", "predicted")]
        print(
            f"{entry['load']:5.2f} {entry['rate']:8.1f} {medians[0]:13.1f} {medians[1]:13.1f} {medians[2]:15.1f}"
            f" {np.median(ratios):7.2f}  ({ratios.min():.2f} to {ratios.max():.2f}) {medians[3]:13.1f}"
            f" {np.median(predicted):7.2f}"
        )


if __name__ == "__main__":
    main()

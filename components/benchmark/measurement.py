"""The whole measurement: start the processes, run the rounds, assemble the report."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfopt.artifacts import Model, unique_names
from tfopt.components.benchmark import results
from tfopt.components.benchmark.comparison import Look, compare_starts
from tfopt.components.benchmark.device import connect
from tfopt.components.benchmark.inputs import Inputs
from tfopt.components.benchmark.interleaving import measure_interleaved
from tfopt.components.benchmark.load import LoadMeasurement, count_node_cores
from tfopt.components.benchmark.machine_conditions import describe_tensorflow
from tfopt.components.benchmark.measured_model import MeasuredModel
from tfopt.components.benchmark.model_process import RUNTIME_DIFFERENCE, Machine
from tfopt.components.benchmark.parameters import Settings
from tfopt.errors import ComponentError
from tfopt.measurement.speedup import LEVEL
from tfopt.reports.benchmark_report import BenchmarkReport, LoadSettings
from tfopt.value_types import JsonObject


def measure_models(
    models: Sequence[Model], settings: Settings, examples: Sequence[Path], samples: Path
) -> BenchmarkReport:
    """Measure the models, the baseline first, write the raw samples, and return the report.

    Raises:
        ComponentError: If the machine has too few cores, or the baseline fails.
    """
    settings.check()
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder, connect(settings.device, models, folder) as machine:
        cores, load_settings = _choose_cores(settings, machine), _load_settings(settings, machine)
        inputs = Inputs(examples, records=max(settings.sizes), seed=settings.seed, folder=Path(folder))
        with _started(models, machine, cores, Path(folder)) as measured:
            schedule = measure_interleaved(measured, settings, inputs.file, machine)
            loads = (
                LoadMeasurement(settings, inputs.file, Path(folder), machine).measure(measured)
                if settings.max_p99_ms
                else {}
            )
        environment = machine.describe(cores) | {
            "nice": measured[0].facts["nice"],
            "tensorflow": _tensorflow(measured),
        }
    baseline = measured[0]
    results.write_samples(measured, samples)
    looks = {size: Look.of(measured, size, settings, schedule) for size in settings.sizes}
    starts = compare_starts(measured, settings, schedule)
    return BenchmarkReport(
        environment=environment,
        baseline=baseline.name,
        batch_sizes=settings.sizes,
        threads=settings.threads,
        seconds=settings.seconds,
        rounds=settings.rounds,
        seed=settings.seed,
        inputs=inputs.facts(),
        interval={
            "method": "Hodges-Lehmann, signed-rank",
            "level": LEVEL,
            "looks": list(schedule.errors),
            "min_effect": settings.min_effect,
            "another_runtime": RUNTIME_DIFFERENCE,
        },
        models=[
            results.summarize_model(model, looks, schedule, loads.get(model.name), starts.get(model.name))
            for model in measured
        ],
        split=settings.split if examples else None,
        load=load_settings,
    )


def _choose_cores(settings: Settings, machine: Machine) -> list[int]:
    cores = machine.choose_cores(settings.threads)
    if len(cores) < settings.threads:
        received = f"benchmark: threads={settings.threads}"
        expected = f"at most {len(cores)}, the cores this process may use"
        if settings.device:
            expected = f"at most {len(cores)}, the cores that may be used on {settings.device}"
        fix = f"pass threads={len(cores)}, or run it on a machine, or in a container, with more cores"
        raise ComponentError(received, expected, fix)
    return cores


def _load_settings(settings: Settings, machine: Machine) -> LoadSettings | None:
    if not settings.max_p99_ms:
        return None
    cores = count_node_cores(settings, machine)
    return LoadSettings(settings.max_p99_ms, settings.rate or None, settings.arrivals, cores, settings.price or None)


@contextlib.contextmanager
def _started(
    models: Sequence[Model], machine: Machine, cores: Sequence[int], folder: Path
) -> Iterator[list[MeasuredModel]]:
    with machine.runtimes(cores, folder) as runtimes, contextlib.ExitStack() as stack:
        measured = []
        for index, (name, model) in enumerate(zip(unique_names(list(models)), models, strict=True)):
            process = stack.enter_context(runtimes.process(model, folder / f"{index}.log"))
            measured.append(MeasuredModel(name, model, process, is_baseline=not index))
        yield measured


def _tensorflow(measured: Sequence[MeasuredModel]) -> JsonObject | None:
    for model in measured:
        if "tensorflow" in model.facts:
            return describe_tensorflow(model.facts["tensorflow"], model.process.read_log())
    return None

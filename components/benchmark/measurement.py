"""The whole measurement: processes started, turns taken, results put together."""

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Model, unique_names
from tfopt.components.benchmark import model_environment as environment
from tfopt.components.benchmark import results
from tfopt.components.benchmark.inputs import Inputs
from tfopt.components.benchmark.interleaving import Plan, measure
from tfopt.components.benchmark.measured_model import Contender
from tfopt.components.benchmark.model_process import ANOTHER_ORIGIN, ModelProcess, Origins
from tfopt.errors import ComponentError
from tfopt.measurement.machine_fingerprint import fingerprint
from tfopt.measurement.speedup import LEVEL

log = logging.getLogger("tfopt")


def run(
    models: Sequence[Model], plan: Plan, examples: Sequence[Path], min_effect: float, samples: Path
) -> dict[str, Any]:
    """Measure the models, the baseline first; return the content of ``benchmark.json`` and write the raw samples.

    Raises:
        ComponentError: When the machine has too few cores, or the baseline fails.
    """
    cores = environment.cores(plan.threads)
    if len(cores) < plan.threads:
        raise ComponentError(
            f"benchmark: threads={plan.threads}",
            f"at most {len(cores)}, the cores this process may use",
            f"pass threads={len(cores)}, or run it where there are more",
        )
    load = environment.Load()
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        inputs = Inputs(examples, records=max(plan.batch_sizes), seed=plan.seed, folder=Path(folder))
        with _processes(models, cores, Path(folder)) as contenders:
            measure(contenders, plan, inputs.file)
        described = fingerprint(cores) | {
            "nice": contenders[0].facts["nice"],
            "load": load.facts(),
            "tensorflow": _tensorflow(contenders),
        }
    baseline = contenders[0]
    results.write_samples(contenders, samples)
    return {
        "environment": described,
        "baseline": baseline.name,
        "batch_sizes": list(plan.batch_sizes),
        "threads": plan.threads,
        "seconds": plan.seconds,
        "rounds": plan.rounds,
        "seed": plan.seed,
        "inputs": inputs.facts(),
        "interval": {
            "method": "Hodges-Lehmann, signed-rank",
            "level": LEVEL,
            "min_effect": min_effect,
            "another_runtime": ANOTHER_ORIGIN,
        },
        "models": [results.row(contender, baseline, min_effect) for contender in contenders],
    }


@contextlib.contextmanager
def _processes(models: Sequence[Model], cores: Sequence[int], folder: Path) -> Iterator[list[Contender]]:
    """Give each model a process; all of them end with this."""
    with Origins(cores, folder) as origins, contextlib.ExitStack() as stack:
        contenders = []
        for index, (name, model) in enumerate(zip(unique_names(list(models)), models, strict=True)):
            process = stack.enter_context(ModelProcess(model, origins, folder / f"{index}.log"))
            contenders.append(Contender(name, model, process, is_baseline=not index))
        yield contenders


def _tensorflow(contenders: Sequence[Contender]) -> dict[str, Any] | None:
    """How TensorFlow was set up, from the first model that needed it."""
    for contender in contenders:
        if "tensorflow" in contender.facts:
            return environment.tensorflow(contender.facts["tensorflow"], contender.process.printed())
    return None

import logging

from tfopt.artifacts import Benchmark, Examples, Model
from tfopt.component import Group, Input, Output, component
from tfopt.components.benchmark.parameters import Settings


@component(image="tf", purpose="measurement", cache="local", cpu=2, model_signature=True)
def benchmark(
    baseline: Input[Model],
    candidates: Input[list[Model]],
    benchmark: Output[Benchmark],
    examples: Input[Examples] | None = None,
    *,
    settings: Group[Settings],
) -> None:
    """Measure latency, throughput, load time, memory and size of models, against a baseline.

    Each model runs in processes of its own, pinned to as many cores as it has threads and, where this is permitted,
    with the highest priority on them. In every round each model starts in a new process, because the placement of its
    memory alone makes one process several percent faster than the next. Then all models take turns in short bursts, so
    that disturbances of the machine affect all of them alike. Models of more than 2.5 GiB together do so in several
    groups, each with the baseline. The processes get the environment variables that `configure_runtime` stored with the
    model. A call takes named numpy arrays and returns named numpy arrays. Speed against the baseline is a ratio with a
    99 % interval and a verdict: *faster*, *slower*, *within noise* or *unstable*.

    A round is disturbed if a model waited for its cores for more than 5 % of its turns, or other processes used more
    than 20 % of the machine's other cores, which share memory bandwidth and caches with the model's. The interval holds
    whatever these rounds would have shown on a quiet machine. If it is unbounded, the rounds are run again as long as
    the measurement takes less than twice the seconds of all models; after that the verdict is *unstable*: the models
    are not compared.

    After a few numbers of rounds, fixed in advance, a model stops if its comparisons are decided: with the baseline at
    each batch size, and with the fastest model at that of the objective. It also stops if the remaining rounds would
    decide them with a probability of less than 10 %. The error of 1 % is divided among these looks, so the intervals
    hold wherever a model stops. Its notes then report, for example, "decided after 10 of 60 rounds".

    With ``max_p99_ms`` the capacity of a node follows, in up to 16 rounds of open loops at eight rates. With ``rate``
    and ``price`` the report also has the nodes that it needs, and the cost of a million predictions.

    A candidate that fails is a row with its error. A candidate is not measured at a batch size if its calls take five
    times the baseline's, or twice if loading it and its first call (which may compile it) take longer than its seconds,
    and fewer than 15 would fit in its seconds; its notes report this. Numbers are marked
    ``"stable": false`` if the warm-up did not converge, the rounds lie far apart, or other processes used the model's
    cores; ``disturbed`` is the share of the time in which they did. Peak memory is that of the whole process, with the
    runtime and one set of inputs.

    Args:
        baseline: The model that the others are compared with.
        candidates: The other models, of any format.
        benchmark: ``benchmark.json``, and every recorded call in ``samples.parquet``.
        examples: Real inputs, by input name. Without them inputs are random and fit the signature.
        settings: Parameters of the measurement.

    Raises:
        ComponentError: If the baseline fails, there are fewer cores than threads, or the examples do not fit.
    """
    from tfopt.components.benchmark.measurement import measure_models  # imports PyArrow

    files = examples.split(settings.split) if examples else []
    report = measure_models([baseline, *candidates], settings, files, benchmark.path / "samples.parquet")
    benchmark.write(report)
    size = str(settings.sizes[0])
    unstable = [model.name for model in report.models if any(ratio.is_unstable for ratio in model.speedup.values())]
    if unstable:
        text = "unstable, not compared with the baseline, because other processes used the machine: %s"
        logging.getLogger(__name__).warning(text, ", ".join(unstable))
    failed = sum(bool(model.error) for model in report.models)
    benchmark.metadata |= {"models": len(report.models), "failed": failed, "unstable": len(unstable)}
    benchmark.metadata |= {
        f"latency_ms[{model.name}]": model.latency[size].p50 for model in report.models if size in model.latency
    }

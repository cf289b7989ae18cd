"""How fast and how large is each model, measured so that the differences can be believed?"""

from typing import Annotated

from tfopt.artifacts import Benchmark, Examples, Model
from tfopt.component import Between, Input, Output, Reads, component
from tfopt.components.benchmark.batch_sizes import read_sizes


@component(image="tf", cache="local", cpu=2)
def benchmark(
    baseline: Input[Model],
    candidates: Input[list[Model]],
    benchmark: Output[Benchmark],
    examples: Input[Examples] | None = None,
    *,
    batch_sizes: Annotated[list[str], Reads(read_sizes, ("1", "32"))] = ["1", "32"],  # noqa: B006  (a declaration: never changed)
    threads: Annotated[int, Between(1)] = 1,
    seconds: Annotated[float, Between(0.1)] = 6.0,
    rounds: Annotated[int, Between(8, 1000)] = 60,
    min_effect: Annotated[float, Between(0, 1)] = 0.005,
    split: str = "eval",
    seed: int = 0,
) -> None:
    """Measure latency, throughput, load time, memory and size of models, against a baseline.

    Each model has processes of its own, pinned to as many cores as it has threads and, where this is allowed, put
    before everything else on them. In every round each model begins in a new one, since the place of its memory alone
    makes one process several percent faster than the next, and then all take turns in short bursts, so that whatever
    else the machine does meets all alike. What `configure_runtime` says of a model is set for its processes. A call
    takes named numpy arrays and returns named numpy arrays. Speed against the baseline is a ratio with a 99 % interval
    and a verdict: *faster*, *slower* or *within noise*.

    A candidate that fails is a row with its error; one whose calls take five times the baseline's, and so long that
    not 15 would fit in its seconds, is not measured at that batch size, which its notes say. Numbers of a model
    that never settled, whose rounds lie far apart, or whose cores others used, are marked ``"stable": false``;
    ``disturbed`` is the part of its cores that others had. Peak memory is that of the whole process, with the
    runtime and one set of inputs.

    Args:
        baseline: The model that the others are compared with.
        candidates: The other models, of any format.
        benchmark: ``benchmark.json``, and every recorded call in ``samples.parquet``.
        examples: Real inputs, by input name. Without them inputs are random, as the signature asks.
        batch_sizes: Examples in a call; ``1-64`` is 1, 2, 4 and so on up to 64. A model of a fixed batch size is
            measured at that one only, if it is here. ``saturation`` says from which on larger ones give no more.
        threads: Threads, and cores, of each model.
        seconds: How long each model is measured, over all batch sizes. Loading and warm-up come on top.
        rounds: How many processes each model is measured in, at most: as many as twice the seconds allow. More narrow
            the interval; 8 is the fewest that allow one of 99 %.
        min_effect: A relative difference in speed too small to matter. Where format or settings differ from the
            baseline's, the interval is wider by 2 % as well, for what two processes of a runtime may differ by.
        split: Which of the examples are used.
        seed: For the order of the turns and for random inputs.

    Raises:
        ComponentError: When the baseline fails, there are fewer cores than threads, or the examples do not fit.
    """
    files = examples.split(split) if examples else []

    from tfopt.components.benchmark.interleaving import Plan
    from tfopt.components.benchmark.measurement import run

    plan = Plan(read_sizes(batch_sizes), threads, seconds, rounds, seed)
    content = run([baseline, *candidates], plan, files, min_effect, benchmark.path / "samples.parquet")
    benchmark.write(content | {"split": split if files else None})
    benchmark.metadata["models"] = len(content["models"])
    benchmark.metadata["failed"] = sum(bool(row["error"]) for row in content["models"])
    size = str(plan.batch_sizes[0])
    measured = {row["name"]: row["latency"][size]["p50"] for row in content["models"] if size in row["latency"]}
    benchmark.metadata |= {f"latency_ms[{name}]": value for name, value in measured.items()}

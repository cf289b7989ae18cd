"""The door of `profile_training`: what it promises, and what it refuses in the first second."""

import logging
from typing import Annotated, Literal

from tfopt.artifacts import Examples, PythonModule, TrainingPlan
from tfopt.component import Between, Input, Output, component


@component(image="tf", cache="local", cpu=4, memory="8Gi")
def profile_training(
    examples: Input[Examples],
    module: Input[PythonModule],
    plan: Output[TrainingPlan],
    *,
    label: str = "label",
    batch_size: Annotated[int, Between(1, None)] = 64,
    precision: Literal["module", "float32", "mixed_float16", "mixed_bfloat16"] = "module",
    jit_compile: Literal["module", "on", "off"] = "module",
    deterministic: bool = True,
    cache: Literal["auto", "memory", "disk", "off"] = "auto",
    shuffle_buffer: Annotated[int, Between(0, None)] = 0,
    memory_mb: Annotated[int, Between(0, None)] = 0,
    threads: Annotated[int, Between(0, None)] = 0,
    prefetch: Annotated[int, Between(0, None)] = 2,
    seconds: Annotated[float, Between(0.1)] = 6.0,
    rounds: Annotated[int, Between(8, 1000)] = 12,
    min_effect: Annotated[float, Between(0, 1)] = 0.05,
    seed: int = 0,
) -> None:
    """Say what a training waits for, and measure what would make it faster.

    The module and the examples are those of `train`, and so are the parameters that say how it trains. In a child
    process some hundred steps are run, in turns: real ones; the model alone on a batch that is there; the same with
    Python out of the way; a larger batch; and batches that nothing learns from. So a step is split into what input adds
    to it, what Python adds, and the model's operations; reading, parsing and preprocessing are measured apart. What is
    callbacks' and validation's is not in it. TensorFlow's own trace of some steps is kept for TensorBoard.

    The longest part has a name: slow reading, slow parsing, slow preprocessing, slow batching, no overlap, short
    epochs, python, loop, small batch, tiny model, or model. Settings that could matter for it are then tried, each in a
    process of its own and all in turns, and each has an interval of 99 % and a verdict: *faster*, *slower* or *within
    noise*.

    What proved faster and leaves the promises of `train` as they are goes into the plan, which `train` takes; what only
    the module, the environment, the examples or whoever chooses the batch can change is told. Loops over slices and
    calls of Python in the module are told by line, and what it gives to do them at once is measured where that can be
    done by itself.

    Args:
        examples: With the split ``train``.
        module: The Python file with ``build_model`` and, if wanted, ``preprocess``.
        plan: ``plan.json`` with every number, ``report.html``, and ``trace/`` for TensorBoard.
        label: The feature to learn.
        batch_size: How many examples a step learns from.
        precision: What the layers compute in.
        jit_compile: Whether XLA compiles the steps.
        deterministic: Whether the same seed must give the same weights. XLA is told, and not planned, while it must.
        cache: Where the parsed examples stay after the first epoch.
        shuffle_buffer: How many examples wait to be drawn; as in `train` when 0.
        memory_mb: How much memory the examples may take; a quarter of what is free when 0.
        threads: How many threads read and parse; as many as there are cores when 0.
        prefetch: How many batches wait ready while one is learnt.
        seconds: How long each part, and each setting, is measured. Starting and warming up come on top; and where
            examples are read anew in each epoch, a turn takes whole epochs.
        rounds: In so many turns; 8 is the fewest that allow a 99 % interval.
        min_effect: A relative difference in speed too small to matter.
        seed: Of the weights, the order of the examples, and the order of the turns.

    Raises:
        ComponentError: When the module raises, or its model and the examples do not fit.

    Reference:
        ``docs/adr/0018-a-measured-plan.md``.
    """
    from tfopt.training import user_module

    examples.split("train")
    user_module.check_syntax(module.path)
    from tfopt.components.profile_training.interleaving import Pace
    from tfopt.components.profile_training.profile import profile
    from tfopt.components.profile_training.report import page
    from tfopt.components.profile_training.training_variant import Setup

    base = Setup(
        examples=str(examples.path.resolve()),
        module=str(module.path.resolve()),
        label=label,
        seed=seed,
        deterministic=deterministic,
        batch_size=batch_size,
        precision=precision,
        jit_compile=jit_compile,
        cache=cache,
        shuffle_buffer=shuffle_buffer,
        memory_mb=memory_mb,
        threads=threads,
        prefetch=prefetch,
    )
    content = profile(base, Pace(seconds, rounds, seed), min_effect, plan.path)
    plan.write(content)
    (plan.path / TrainingPlan.page).write_text(page(content, module.path.name), encoding="utf-8")
    for finding in content["findings"]:
        logging.getLogger("tfopt").info("%s", finding["text"])
    plan.metadata |= {
        "bottleneck": content["bottleneck"]["name"],
        "reason": content["bottleneck"]["sentence"],
        "settings": ", ".join(f"{name}={value}" for name, value in content["settings"].items()) or "none",
    }

import logging
from dataclasses import asdict

from tfopt.artifacts import Examples, PythonModule, TrainingPlan
from tfopt.component import Group, Input, Output, component
from tfopt.components.profile_training.parameters import Pace, TrainingSettings
from tfopt.components.profile_training.training_variant import TrainingVariant
from tfopt.training import user_module


@component(image="tf", purpose="training", cache="local", cpu=4, memory="8Gi")
def profile_training(
    examples: Input[Examples],
    module: Input[PythonModule],
    plan: Output[TrainingPlan],
    *,
    training: Group[TrainingSettings],
    pace: Group[Pace],
) -> None:
    """Find the bottleneck of a training, and measure settings that may make it faster.

    The module, the examples and the training parameters are as for `train`. A child process runs some hundred steps
    of each kind, interleaved: real steps; the model alone on a batch in memory; the same with many steps in one call,
    without Python; a larger batch; and batches without training. So the time of a step is divided into the part that
    input adds, the part that Python adds, and the model's operations. Reading, parsing and preprocessing are measured
    separately. Time spent in callbacks and validation is excluded. TensorFlow's trace of some steps is saved for
    TensorBoard.

    The longest part determines the bottleneck: slow reading, slow parsing, slow preprocessing, slow batching, no
    overlap, short epochs, python, loop, copies or kernel launches (on a GPU), small batch, tiny model, or model.
    Settings that may help against it are then tried, each in its own process and interleaved. Each gets a 99 %
    confidence interval and a verdict: *faster*, *slower* or *within noise*.

    The fastest settings that `train` can take, and that keep its guarantees, are written to the plan. What only the
    module, the environment, the examples or the batch size can change is reported. Loops over slices and calls of
    Python in the module are reported by line; the gain of vectorizing them is measured if that is possible
    automatically.

    Args:
        examples: With the split ``train``.
        module: The Python file with ``build_model`` and optionally ``preprocess``.
        plan: ``plan.json`` with every number, ``report.html``, and ``trace/`` for TensorBoard.
        training: How the model is trained.
        pace: How long is measured.

    Raises:
        ComponentError: If the module raises, or its model and the examples do not fit.

    Reference:
        ``docs/adr/0018-training-plan.md``.
    """
    examples.split("train")
    user_module.check_syntax(module.path)
    from tfopt.components.profile_training.profile import profile_steps  # imports Lets-Plot
    from tfopt.components.profile_training.report import render_report

    examples_path, module_path = str(examples.path.resolve()), str(module.path.resolve())
    base = TrainingVariant(**asdict(training), examples=examples_path, module=module_path, seed=pace.seed)
    report = profile_steps(base, pace, plan.path)
    plan.write(report)
    (plan.path / TrainingPlan.page).write_text(render_report(report, module.path.name), encoding="utf-8")
    for finding in report.findings:
        logging.getLogger(__name__).info("%s", finding.text)
    plan.metadata |= {
        "bottleneck": report.bottleneck.name,
        "reason": report.bottleneck.sentence,
        "settings": ", ".join(f"{name}={value}" for name, value in report.settings.items()) or "none",
    }

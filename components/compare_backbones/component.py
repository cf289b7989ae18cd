import logging

from tfopt.artifacts import Comparison, Examples, PythonModule
from tfopt.component import Group, Input, Output, component
from tfopt.components.compare_backbones.parameters import Settings
from tfopt.components.compare_backbones.resolved_settings import resolve_settings


@component(
    image="beam",
    purpose="training",
    cache="local",
    runs=(
        *("inspect_model", "export_tflite", "export_onnx", "export_openvino", "convert_tensorrt"),
        *("benchmark", "train", "evaluate"),
    ),
    cpu=2,
    memory="8Gi",
)
def compare_backbones(
    comparison: Output[Comparison],
    chosen: Output[PythonModule],
    examples: Input[Examples] | None = None,
    *,
    settings: Group[Settings],
) -> None:
    """Measure the cost of light backbones on this machine before training, and their quality after a short training.

    Each backbone gets the head that the task needs, and is saved untrained. Its biases and statistics are random, as
    after training, so that the latency does not depend on the training. `inspect_model` counts its operations, the
    exporters convert it to each format, and `benchmark` measures all models of a runtime in turns, one example at a
    time. Backbones that miss a goal on speed or size are not trained. `train` trains the others on the same examples,
    for as many epochs, from random weights, and `evaluate` compares them on the split ``eval``, with intervals.

    The latency of a backbone is that of its fastest runtime. Among the backbones that meet the goals, the best at the
    objective is selected; ``max_degradation`` and ``min_improvement`` compare with the backbone that is best after
    training. Without examples the quality is unknown: goals on it are not checked, and the selection considers only
    costs. A module for `train` is written for the selected backbone and for every other one.

    A backbone that cannot be built, exported, trained or measured is a row with the reason, also if the minutes are
    used up before. A short training shows which backbone learns fast. It does not show the final quality, nor the
    quality with pretrained weights, because no weights are downloaded.

    Args:
        comparison: ``comparison.json``, ``report.html`` with the Pareto chart, and ``modules/``, a Python file for
            each backbone.
        chosen: The module of the selected backbone, ``module.py``, for `train`.
        examples: Examples with the splits ``train`` and ``eval``. Without them nothing is trained.
        settings: Parameters of the comparison.

    Raises:
        ComponentError: If the images are too small for a backbone, the examples lack the image or the label, the
            number of classes is unknown, a goal cannot be checked, or no backbone could be measured.
    """
    resolved = resolve_settings(settings, examples)
    from tfopt.components.compare_backbones.compare import compare  # with the report, imports Lets-Plot
    from tfopt.components.compare_backbones.report import render_html

    report = compare(resolved, examples, comparison.path, chosen.path / PythonModule.file)
    comparison.write(report)
    (comparison.path / Comparison.page).write_text(render_html(report), encoding="utf-8")
    logging.getLogger(__name__).info("%s", report.reason)
    comparison.metadata |= {"chosen": report.chosen, "reason": report.reason}
    chosen.metadata |= {"backbone": report.chosen}

import logging

from tfopt.artifacts import Drift, Examples, Files, Model
from tfopt.component import Group, Input, Output, component
from tfopt.components.check_drift.parameters import DriftTest


@component(image="tf", purpose="serving", cpu=2, model_signature=True)
def check_drift(
    model: Input[Model],
    recording: Input[Files],
    reference: Input[Examples],
    drift: Output[Drift],
    parent: Input[Model] | None = None,
    *,
    test: Group[DriftTest],
) -> None:
    """Compare served requests with the examples of a model, and decide: nothing, recalibrate or retrain.

    Labels are not needed. Compared are each input (missing values, unknown categories, repeated values, distribution),
    the answers (shares of classes, distribution of numbers), and, of models in 8 bits, the share of values at the ends
    of the range of each activation, which the model has. Each change has an interval, and all of them hold together
    with 95 % (Bonferroni). A change counts if its whole interval is beyond a limit.

    ``retrain``: the requests have something that the model did not learn, or the answers of the float model changed,
    so that its relation to the labels may not hold any more. ``recalibrate``: none of that, but ranges of the int8
    file no longer fit; an export of the parent with new calibration examples needs no training. ``nothing``: all else,
    also inputs with another distribution. ADR 81 has the reasons, docs/operate.md the commands.

    With ``--detailed-exitcode`` the command ends with 6 for recalibrate and 7 for retrain.

    Args:
        model: The served model, in any format, such as ``DESTINATION/8``.
        recording: Served requests, in the forms that `replay` reads: a request log of TensorFlow Serving, KServe's
            logger events, TFRecords of tf.Example, or JSON lines.
        reference: The examples that the model was trained and calibrated on.
        drift: The decision with its reasons and all changes, ``drift.json`` and ``report.html``.
        parent: The float model that the served one was made from, such as ``DESTINATION/trained``. Without it, answers
            of a saturated model are judged in its place.
        test: Samples and limits.

    Raises:
        ComponentError: If the recording or the reference cannot be read, do not have the inputs of the model, or have
            fewer than ``min_records``; or if a model cannot be run.
    """
    from tfopt.components.check_drift.decision import decide  # imports NumPy
    from tfopt.components.check_drift.report import render_report  # imports lets-plot
    from tfopt.components.check_drift.samples import compare_samples  # imports NumPy
    from tfopt.processes.subprocess_call import run_in_child  # imports NumPy
    from tfopt.runtimes import environment  # imports NumPy

    samples = run_in_child(
        *(compare_samples, model, recording.path, reference, parent, test),
        doing="running the models",
        environment=environment.read_variables(model),
    )
    report = decide(samples, model, reference, parent, test)
    drift.write(report)
    (drift.path / drift.page).write_text(render_report(report), encoding="utf-8")
    drift.metadata |= {"name": "drift", "decision": report.decision, "reasons": len(report.reasons)}
    logging.getLogger(__name__).info("%s: %s", report.decision, "; ".join(report.reasons) or "no change that matters")

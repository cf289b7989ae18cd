import logging

from tfopt.artifacts import Files, InfraBlessing, Model, Replay
from tfopt.component import Group, Input, Output, component
from tfopt.components.replay.parameters import ReplayTest, Traffic
from tfopt.reports.serving_report import ServingReport


@component(image="tf", purpose="serving", cache="never", cpu=2, model_signature=True)
def replay(
    model: Input[Model],
    recording: Input[Files],
    replayed: Output[Replay],
    infra_blessing: Output[InfraBlessing],
    served: Input[Model] | None = None,
    tested: Input[InfraBlessing] | None = None,
    *,
    test: Group[ReplayTest],
    traffic: Group[Traffic],
) -> None:
    """Send recorded requests to the served version and to a new one, and decide whether the new one may be pushed.

    Both are loaded as by `validate_serving`. First the answers are compared, record by record, until the goals are
    decided or the recording ends: the share of records with other answers has exact intervals, of all records and of
    slices, which hold however early the comparison ends. Then the requests are sent at their recorded times, to one
    model after the other in turns of a twentieth of the time. A request is sent when it is due, whether or not earlier
    ones are answered, and its latency counts from then, so that the wait in a queue is measured.

    A model that misses a goal, fails, or returns NaN where the served version does not, is not blessed, with the
    reason; the step then succeeds. `push_model` takes the ``infra_blessing``. A result is never reused, because it is
    about the version that is served at that time.

    Args:
        model: The model to push, in any format.
        recording: Requests to the served version, a file or a folder: a request log of TensorFlow Serving (TFRecord of
            PredictionLog), KServe's logger events (CloudEvents as JSON lines), TFRecords of tf.Example, or JSON lines
            such as ``{"time": 0.25, "inputs": {"image": [...]}}``. ``.gz`` is read, too.
        replayed: Disagreement, latency and the result of each goal, ``replay.json`` and ``report.html``.
        infra_blessing: ``infra_blessing.json``: the result, in the form of `validate_serving`.
        served: The version that is served now, such as ``DESTINATION/8``, or the parent; by default the newest version
            in ``destination``.
        tested: The result of `validate_serving` for this model, which it must have passed, too. Its fallback, which is
            not replayed, is not blessed, unless there is no served version.
        test: Goals and limits.
        traffic: Requests and their times.

    Raises:
        ComponentError: If there is no served version, and ``tested`` or ``destination`` is missing; if the recording
            cannot be read, is empty, does not have the inputs of the served version, or has times that go backwards; if
            its records cannot prove a goal; or if the served version does not answer.
    """
    from tfopt.components.replay.report import render_report  # imports lets-plot
    from tfopt.components.replay.result import check_tested, measure, not_replayed, tested_reason  # imports NumPy
    from tfopt.components.replay.served_version import find_served

    rows = check_tested(tested, model)
    other = served or find_served(model, rows, test)
    refusal = tested_reason(rows)
    report = measure(model, other, recording, test, traffic, refusal) if isinstance(other, Model) else other
    replayed.write(report)
    (replayed.path / replayed.page).write_text(render_report(report), encoding="utf-8")
    fallbacks = [row for row in rows[1:] if row.digest != model.digest]
    fallbacks = list(map(not_replayed, fallbacks)) if report.served else fallbacks
    infra_blessing.write(ServingReport(report.blessed, report.model.reason, [report.model, *fallbacks]))
    (infra_blessing.path / ("INFRA_BLESSED" if report.blessed else "INFRA_NOT_BLESSED")).touch()
    logging.getLogger(__name__).info("%s: %s", report.model.name, report.reason)
    facts = {"blessed": int(report.blessed), "reason": report.reason}
    infra_blessing.metadata |= facts | {"server": report.model.server}
    replayed.metadata |= facts
    if report.looks:
        replayed.metadata["disagreement"] = report.looks[-1].disagreeing / report.looks[-1].records
    if latency := report.latency.get("p99"):
        replayed.metadata |= {"p99_ms": latency.model.value, "served_p99_ms": latency.served.value}

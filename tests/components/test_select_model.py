"""Test `select_model`: which model is selected, the reasons, the blessing and the written artifact."""

import json
import shutil
from dataclasses import replace

import pytest

from tests.artifacts.test_artifacts import external_weights_model
from tests.components.decisions import decide, reason
from tests.reports import DIGITS, TRAINED, Row, make_models, write_reports
from tfopt import runtimes
from tfopt.artifacts import Blessing, Decision, Model
from tfopt.components.select_model.component import select_model
from tfopt.components.select_model.output_model import write_selected
from tfopt.errors import ComponentError
from tfopt.reports.report_schema import dump
from tfopt.serving.layouts import version_files


def test_the_fastest_model_within_the_goals_is_selected_and_every_model_has_a_reason(tmp_path):
    decision = decide(DIGITS, tmp_path)
    assert decision["selected"] == "tflite int8"
    assert decision["blessed"]
    assert decision["reason"] == (
        "tflite int8: 10.6x as fast (10.3x to 10.9x), accuracy 97.7% (-0.4 points, -0.85 to +0.05), 76% smaller."
    )
    assert [row["name"] for row in decision["models"] if row["chosen"]] == ["tflite int8"]
    assert [row["passed"] for row in decision["models"]] == [True, True, True, True, True, False]
    assert all(row["reasons"] for row in decision["models"])
    assert (
        reason(decision, "pruned 90%")
        == "1.30x as fast, but loses 2.10 points of accuracy; the goal allows 1.00 points"
    )
    assert reason(decision, "folded") == "tflite int8 is faster: 0.0389 ms against 0.301 ms"


def test_the_selected_model_is_linked_with_its_card_and_digest(tmp_path):
    decision = decide(DIGITS, tmp_path)
    chosen, selected = tmp_path / "models" / "4 tflite int8", Model.open(tmp_path / "selected")
    assert selected.digest == Model(chosen).digest == decision["selected_digest"]
    assert selected.card == Model(chosen).card
    same = selected.path / "Format-Serving" / "tflite"
    assert same.stat().st_ino == (chosen / "Format-Serving" / "tflite").stat().st_ino


def test_the_decision_loads_as_a_typed_report_with_all_its_keys(tmp_path):
    decide(DIGITS, tmp_path)
    decision, blessing = Decision(tmp_path / "decision"), Blessing(tmp_path / "blessing")
    report = decision.load()
    assert (report.selected, report.chosen.name, report.parent.name) == ("tflite int8", "tflite int8", "trained")
    assert dump(report) == decision.read()
    assert dump(blessing.load()) == blessing.read()
    decision.write({key: value for key, value in decision.read().items() if key != "schema_version"})
    assert decision.load() == report  # content without version has version 1


@pytest.mark.parametrize(
    ("rows", "blessed"),
    [
        ([TRAINED, Row("pruned", "saved_model")], True),
        ([TRAINED, Row("slow", speedup=(0.5, 0.49, 0.51, "slower"), p50=0.8)], True),
        ([TRAINED, Row("noisy", speedup=(1.08, 0.99, 1.18, "within noise"), p50=0.38, size=1000)], True),
        ([replace(TRAINED, accuracy=0.7), replace(DIGITS[4], accuracy=0.69, delta=(-0.01, -0.02, 0.0))], False),
    ],
    ids=["nothing faster", "slower", "within noise", "all below the threshold"],
)
def test_the_baseline_stays_unless_a_candidate_is_significantly_better(tmp_path, rows, blessed):
    decision = decide(rows, tmp_path, goals=["accuracy max_degradation 0.05", "accuracy threshold 0.9"])
    assert decision["selected"] == "trained"
    assert decision["blessed"] is blessed
    assert Model(tmp_path / "selected").digest == decision["models"][0]["digest"]


def test_a_model_that_is_only_smaller_is_selected_for_the_objective_size(tmp_path):
    rows = [TRAINED, Row("noisy", speedup=(1.08, 0.99, 1.18, "within noise"), size=18_640)]
    text = reason(decide(rows, tmp_path / "a"), "noisy")
    assert text == "not significantly faster: 1.08x as fast (0.99x to 1.18x), within noise; it is 90% smaller"
    assert decide(rows, tmp_path / "b", objective="size")["selected"] == "noisy"


def test_the_smaller_of_equally_fast_models_is_selected(tmp_path):
    rows = [
        TRAINED,
        Row("large", p50=0.1, speedup=(4.1, 3.9, 4.3, "faster"), size=90_000),
        Row("small", p50=0.102, speedup=(4.0, 3.8, 4.2, "faster"), size=30_000),
    ]
    decision = decide(rows, tmp_path)
    assert decision["selected"] == "small"
    assert reason(decision, "large") == "indistinguishable from small in latency; small is 67% smaller"


@pytest.mark.parametrize(
    ("over_fastest", "selected"),
    [((0.96, 0.95, 0.97, "slower"), "fast"), ((0.99, 0.98, 1.0, "within noise"), "small")],
)
@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_measured_ratio_to_the_fastest_model_replaces_overlapping_intervals(
    tmp_path, over_fastest, selected, objective
):
    rows = [
        TRAINED,
        Row("fast", p50=0.1, speedup=(4.1, 3.9, 4.3, "faster"), size=90_000),
        Row("small", p50=0.102, speedup=(4.0, 3.8, 4.2, "faster"), size=30_000, over_fastest=over_fastest),
    ]
    decision = decide(rows, tmp_path, objective=objective)
    assert decision["selected"] == selected
    rejected = {"fast": "small", "small": "fast"}[selected]
    assert ("indistinguishable" in reason(decision, rejected)) == (selected == "small")


def test_neither_of_two_models_is_the_fastest_and_their_intervals_overlap(tmp_path):
    """Reject the fastest model because of its quality; the ratios to it do not compare the other two."""
    slower = (0.8, 0.7, 0.9, "slower")
    rows = [
        TRAINED,
        Row("bad", accuracy=0.5, delta=(-0.48, -0.5, -0.46), speedup=(5.0, 4.9, 5.1, "faster")),
        Row("large", p50=0.1, speedup=(4.1, 3.9, 4.3, "faster"), size=90_000, over_fastest=slower),
        Row("small", p50=0.102, speedup=(4.0, 3.8, 4.2, "faster"), size=30_000, over_fastest=slower),
    ]
    assert decide(rows, tmp_path)["selected"] == "small"


@pytest.mark.parametrize(
    ("objective", "selected"),
    [
        ("latency", "tflite int8"),
        ("memory", "tflite int8"),
        ("quality", "better"),
        *(
            pytest.param(name, "tflite int8", marks=pytest.mark.nightly)
            for name in ("throughput", "size", "size_gzipped")
        ),
    ],
)
def test_the_best_model_at_the_objective_is_selected(tmp_path, objective, selected):
    better = Row("better", accuracy=0.99, delta=(0.009, 0.004, 0.014), speedup=(0.5, 0.4, 0.6, "slower"), memory=9e8)
    assert decide([*DIGITS[:5], better], tmp_path, objective=objective)["selected"] == selected


def test_slightly_lower_peak_memory_is_not_significant(tmp_path):
    rows = [TRAINED, Row("thrifty", memory=int(TRAINED.memory * 0.97))]
    assert decide(rows, tmp_path, objective="memory")["selected"] == "trained"


@pytest.mark.parametrize("broken", [{"error": "NaN in 3 answers"}, {"benchmark_error": "the process was killed"}])
def test_a_failed_candidate_is_rejected_with_its_error(tmp_path, broken):
    decision = decide([TRAINED, replace(DIGITS[4], **broken), DIGITS[3]], tmp_path)
    assert decision["selected"] == "tflite dynamic"
    assert not decision["models"][1]["passed"]
    assert not decision["models"][1]["pareto"]
    assert reason(decision, "tflite int8") == f"could not be measured: {next(iter(broken.values()))}"


def test_models_with_equal_content_are_distinguished_by_name(tmp_path):
    rows = [TRAINED, DIGITS[4], DIGITS[4]]
    models = make_models(rows[:2], tmp_path / "models")
    models.append(models[1])
    evaluation, benchmark = write_reports(rows, models, tmp_path, samples=False)
    outputs = select_model(
        baseline=models[0], candidates=models[1:], evaluation=evaluation, benchmark=benchmark, selected=tmp_path / "s",
        decision=tmp_path / "d", blessing=tmp_path / "b",
    )  # fmt: skip
    listed = outputs["decision"].read()["models"]
    assert [row["name"] for row in listed] == ["trained", "tflite int8", "tflite int8 (2)"]
    assert sum(row["chosen"] for row in listed) == 1


def test_a_model_without_measurements_at_batch_size_one_is_rejected(tmp_path):
    models = make_models([TRAINED, DIGITS[4]], tmp_path / "models")
    evaluation, benchmark = write_reports([TRAINED, DIGITS[4]], models, tmp_path, samples=False)
    content = benchmark.read()
    for part in ("latency", "throughput", "speedup"):
        del content["models"][1][part]["1"]
    benchmark.write(content)
    outputs = select_model(models[0], models[1:], evaluation, benchmark, *(tmp_path / name for name in "sdb"))
    row = outputs["decision"].read()["models"][1]
    assert (row["chosen"], row["pareto"]) == (False, False)
    assert row["reasons"] == ["latency was not measured for it"]


@pytest.mark.parametrize("blessed", [True, False])
def test_tfx_reads_the_blessing(tmp_path, blessed):
    from tfx.components.util import model_utils
    from tfx.types import standard_artifacts

    models = make_models(DIGITS[:2], tmp_path / "models")
    reports = write_reports(DIGITS[:2], models, tmp_path, samples=False)
    places = (tmp_path / name for name in ("selected", "decision", "blessing"))
    goals = [f"accuracy threshold {0.9 if blessed else 0.99}"]
    outputs = select_model(models[0], models[1:], *reports, *places, goals=goals)
    decision, permission = outputs["decision"].read(), Blessing.open(tmp_path / "blessing")
    metadata = outputs["blessing"].metadata
    assert metadata == {"blessed": int(blessed), "reason": decision["reason"]}
    assert permission.read() == {
        "schema_version": 1,
        "blessed": blessed,
        "reason": decision["reason"],
        "model_digest": Model(tmp_path / "selected").digest,
        "parent_blessed": blessed,  # both models miss the same threshold
    }
    marker = "BLESSED" if blessed else "NOT_BLESSED"
    assert sorted(file.name for file in permission.path.iterdir()) == [marker, "blessing.json"]
    assert (permission.path / marker).stat().st_size == 0
    for kind, check in (
        (standard_artifacts.ModelBlessing, model_utils.is_model_blessed),
        (standard_artifacts.InfraBlessing, model_utils.is_infra_validated),
    ):
        artifact = kind()
        artifact.set_int_custom_property("blessed", metadata["blessed"])
        assert check(artifact) is blessed


@pytest.mark.parametrize("kind", ["saved_model", "tflite", "onnx", "openvino", "tensorrt", "keras"])
def test_a_selected_file_outside_of_an_artifact_is_copied_into_one(tmp_path, digits_model, kind):
    raw = {"saved_model": digits_model / "Format-Serving", "keras": digits_model / "Format-Keras" / "model.keras"}
    if kind in ("tflite", "onnx", "tensorrt"):
        raw[kind] = tmp_path / f"größe 1.{'plan' if kind == 'tensorrt' else kind}"
        raw[kind].write_bytes(b"\x08\x07")
    if kind == "openvino":
        raw[kind] = tmp_path / "größe 1.xml"
        raw[kind].write_bytes(b"<net/>")
        raw[kind].with_suffix(".bin").write_bytes(b"weights")
    parent = make_models([TRAINED], tmp_path / "models")[0]
    rows = [TRAINED, replace(DIGITS[2], name=Model(raw[kind]).name)]
    evaluation, benchmark = write_reports(rows, [parent, raw[kind]], tmp_path, samples=False)
    before = Model(raw[kind]).digest
    select_model(parent, [raw[kind]], evaluation, benchmark, *(tmp_path / name for name in ("selected", "d", "b")))
    selected = Model.open(tmp_path / "selected")
    assert selected.format == kind
    assert selected.card.digest == selected.digest == Decision(tmp_path / "d").read()["selected_digest"]
    assert selected.card.name == Model(raw[kind]).name
    assert Model(raw[kind]).digest == before
    assert all(file.stat().st_nlink == 1 for file in selected.files())  # copies: the original may change


def test_a_bare_onnx_file_is_copied_with_its_external_data(tmp_path):
    (tmp_path / "selected").mkdir()
    write_selected(Model(external_weights_model(tmp_path / "model")), "net", Model(tmp_path / "selected"))
    assert list(runtimes.load(Model(tmp_path / "selected")).outputs) == ["y", "z"]


@pytest.mark.parametrize("report", ["evaluation", "benchmark"])
def test_a_model_that_is_missing_in_a_report_is_refused(tmp_path, report):
    models = make_models(DIGITS[:3], tmp_path / "models")
    evaluation, benchmark = write_reports(DIGITS[:3], models, tmp_path, samples=False)
    artifact = {"evaluation": evaluation, "benchmark": benchmark}[report]
    content = artifact.read()
    del content["models"][2]
    artifact.write(content)
    with pytest.raises(ComponentError) as refusal:
        select_model(models[0], models[1:], evaluation, benchmark, *(tmp_path / name for name in "sdb"))
    assert f"not in the {report}" in refusal.value.received
    assert "trained" in refusal.value.expected
    assert "measure it again" in refusal.value.fix
    assert not (tmp_path / "s").exists()


def test_reports_on_another_baseline_are_refused(tmp_path):
    models = make_models(DIGITS[:3], tmp_path / "models")
    evaluation, benchmark = write_reports(DIGITS[:3], models, tmp_path, samples=False)
    with pytest.raises(ComponentError, match="compares with trained"):
        select_model(models[1], [models[0], models[2]], evaluation, benchmark, *(tmp_path / name for name in "sdb"))


def test_a_baseline_with_an_error_is_refused(tmp_path):
    with pytest.raises(ComponentError, match="the baseline trained: it crashed"):
        decide([replace(TRAINED, benchmark_error="it crashed"), DIGITS[4]], tmp_path)


def test_the_inputs_are_not_changed(tmp_path):
    models = make_models(DIGITS[:2], tmp_path / "models")
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in tmp_path.rglob("*") if file.is_file()}
    evaluation, benchmark = write_reports(DIGITS[:2], models, tmp_path, samples=False)
    select_model(models[0], models[1:], evaluation, benchmark, *(tmp_path / name for name in "sdb"))
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in before} == before
    assert json.loads((tmp_path / "s" / "model_card.json").read_text())["name"] == "folded"


@pytest.mark.parametrize(
    ("layout", "selected"), [("auto", "tflite int8"), ("tf_serving", "tflite int8"), ("triton", "folded")]
)
def test_a_format_that_the_layout_does_not_support_is_not_selected(tmp_path, layout, selected):
    decision = decide(DIGITS, tmp_path, layout=layout)
    assert (decision["selected"], decision["blessed"]) == (selected, True)
    if layout == "triton":
        assert reason(decision, "tflite int8").startswith("10.6x as fast, but layout=triton cannot hold tflite")
        assert not any(row.get("missed_by") for row in decision["models"] if row["format"] == "tflite")
        assert (tmp_path / "decision" / "report.html").is_file()


def in_two_parts(model):
    """Turn a LiteRT model into one that runs after a preprocessing SavedModel."""
    folder = model / "Format-Serving" / "Format-Preprocessing"
    folder.mkdir()
    (folder / "saved_model.pb").write_text("words")


def select_lite(tmp_path, change, **criteria):
    """Select between DIGITS, the LiteRT model changed before; return the output folder, decision and blessing."""
    models = make_models(DIGITS, tmp_path / "models")
    change(models[4])
    evaluation, benchmark = write_reports(DIGITS, models, tmp_path, samples=False)
    outputs = select_model(
        models[0], models[1:], evaluation, benchmark, *(tmp_path / name for name in ("s", "d", "b")), **criteria
    )
    return tmp_path / "s", Decision(tmp_path / "d").load(), outputs["blessing"]


def test_a_model_in_two_parts_is_not_selected_for_a_server(tmp_path):
    selected, decision, _ = select_lite(tmp_path, in_two_parts, layout="tf_serving")
    assert (decision.selected, decision.blessed) == ("tflite dynamic", True)  # the best of the others
    (row,) = [row for row in decision.models if row.name == "tflite int8"]
    assert "layout=tf_serving cannot hold tflite after a preprocessing SavedModel" in row.reasons[0]
    assert (row.passed, row.summary) == (False, "not supported by the layout")
    assert "model.tflite" in version_files(Model(selected), "tf_serving")  # what push_model writes


def test_tfx_pusher_may_not_push_a_model_in_two_parts_and_push_model_may(tmp_path):
    _, decision, blessing = select_lite(tmp_path, in_two_parts)
    assert (decision.selected, decision.blessed, blessing.metadata["blessed"]) == ("tflite int8", True, 0)
    assert decision.notes[-1] == blessing.metadata["reason"]
    assert "TFX's Pusher may not push tflite int8, but push_model may" in decision.notes[-1]
    assert (blessing.path / "NOT_BLESSED").is_file()
    permission = blessing.load()
    assert permission.blessed and permission.withheld in decision.notes[-1]


@pytest.mark.parametrize(
    ("layout", "blessed"), [("auto", 1), ("plain", 1), ("tf_serving", 0)]
)  # TensorFlow Serving loads model.tflite
def test_tfx_pusher_may_push_a_file_that_its_server_finds(tmp_path, layout, blessed):
    _, decision, blessing = select_lite(tmp_path, lambda model: None, layout=layout)
    assert (decision.selected, blessing.metadata["blessed"]) == ("tflite int8", blessed)
    assert blessed or "loads model.tflite" in blessing.load().withheld


def test_the_folder_that_tfx_pusher_copies_has_the_deployed_files_only(tmp_path, digits_model):
    def with_parent(model):  # as tfopt 0.2 wrote it
        shutil.copytree(digits_model / "Format-Serving", model / "Format-Serving", dirs_exist_ok=True)
        (model / "Format-Preprocessing").mkdir()
        (model / "Format-Preprocessing" / "saved_model.pb").write_text("words")

    selected, decision, _ = select_lite(tmp_path, with_parent)
    files = {file.relative_to(selected).as_posix() for file in Model(selected).files()}
    assert files == {"Format-Serving/tflite", "Format-Serving/Format-Preprocessing/saved_model.pb"}
    assert decision.selected_digest == Model(selected).digest


def test_the_keras_file_of_an_artifact_without_saved_model_is_where_tfx_pusher_copies(tmp_path, digits_model):
    shutil.copytree(digits_model / "Format-Keras", tmp_path / "model" / "Format-Keras")
    (tmp_path / "selected").mkdir()
    write_selected(Model(tmp_path / "model"), "net", Model(tmp_path / "selected"))
    selected = Model(tmp_path / "selected")
    assert [file.relative_to(selected.path).as_posix() for file in selected.files()] == ["Format-Serving/model.keras"]
    assert runtimes.load(selected).outputs == runtimes.load(Model(digits_model)).outputs


@pytest.mark.parametrize("with_card", [True, False])
def test_the_card_states_that_a_model_was_selected_by_measured_values(tmp_path, with_card):
    source = Model(external_weights_model(tmp_path / "model"))
    write_selected(source, "net", Model(tmp_path / "first"))
    if with_card:
        source = Model(tmp_path / "first")
    digest = Model(source.path).digest
    write_selected(source, "net", Model(tmp_path / "second"), "estimate")
    write_selected(Model(tmp_path / "second"), "net", Model(tmp_path / "third"), "interval")
    cards = [Model(tmp_path / name).card for name in ("first", "second", "third")]
    assert [card.confidence for card in cards] == [None, "estimate", None]
    assert len({card.name for card in cards}) == 1
    assert digest == Model(source.path).digest
    assert Model(tmp_path / "first").digest == Model(tmp_path / "second").digest == Model(tmp_path / "third").digest


def test_confidence_estimate_reaches_the_card(tmp_path):
    decide(DIGITS[:3], tmp_path / "a", confidence="estimate")
    decide(DIGITS[:3], tmp_path / "b")
    assert Model(tmp_path / "a" / "selected").card.confidence == "estimate"
    assert Model(tmp_path / "b" / "selected").card.confidence is None

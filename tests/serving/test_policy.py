"""Test policies: a run may tighten the rules of a destination, and is refused by every command if it weakens them."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.components.test_push_model_manifest import write_keys
from tests.components.test_select_model_history import run
from tests.reports import TRAINED, make_models
from tfopt.artifacts import Benchmark, Blessing, Decision, Evaluation, InfraBlessing, Model, Pushed
from tfopt.cli.main import main
from tfopt.components.push_model.component import push_model
from tfopt.components.select_model.decide import decide
from tfopt.components.select_model.parameters import Criteria
from tfopt.dag import tracing
from tfopt.dag.policy_checks import check_policies
from tfopt.errors import ComponentError
from tfopt.reports.benchmark_report import BenchmarkReport
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.reports.serving_report import ServedModel, ServingReport
from tfopt.serving.policy import read_policies
from tfopt.storage import remote_files

OWNER = "owner: ml-platform\n"


def write(folder: Path, rules: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "policy.yaml").write_text(OWNER + rules)
    return folder


def check(destination: Path | str, **values: object) -> None:
    dag = tracing.load("optimize")
    defaults = {name: parameter.default for name, parameter in dag.parameters.items()}
    check_policies(dag, {**defaults, "destination": str(destination), **values})


@pytest.mark.parametrize(
    ("rules", "goals", "is_allowed"),
    [
        ("goals: [accuracy threshold 0.95]", ["accuracy threshold 0.95"], True),
        ("goals: [accuracy threshold 0.95]", ["accuracy threshold 0.97", "latency threshold 5"], True),
        ("goals: [accuracy threshold 0.95]", ["accuracy threshold 0.94"], False),
        ("goals: [accuracy threshold 0.95]", ["accuracy max_degradation 1%"], False),
        ("goals: [accuracy threshold 0.95]", [], False),
        ("goals: [latency threshold 5]", ["latency threshold 4"], True),
        ("goals: [latency threshold 5]", ["latency threshold 6"], False),
        ("goals: [throughput threshold 100]", ["throughput threshold 90"], False),
        ("goals: [quality max_degradation 1%]", ["quality max_degradation 0.5%"], True),
        ("goals: [quality max_degradation 1%]", ["quality max_degradation 2%"], False),
        ("goals: [quality max_degradation 1%]", ["quality max_degradation 0.01"], False),
        ("goals: [latency min_improvement 20%]", ["latency min_improvement 30%"], True),
        ("goals: [latency min_improvement 20%]", ["latency min_improvement 10%"], False),
        ("goals: ['accuracy[city=*] threshold 0.9']", ["accuracy threshold 0.9"], False),
        ("goals: [accuracy threshold 0.9, latency threshold 5]", ["accuracy threshold 0.9"], False),
    ],
)
def test_goals_may_be_tightened_and_not_weakened(tmp_path, rules, goals, is_allowed):
    served = write(tmp_path / "served", rules)
    if is_allowed:
        check(served, goals=goals)
        return
    with pytest.raises(ComponentError) as error:
        check(served, goals=goals)
    assert error.value.expected == f"the rule goals of the policy {served}/policy.yaml (owner: ml-platform)"
    assert error.value.fix.startswith("add the goal '")


@pytest.mark.parametrize(
    ("rules", "values", "received"),
    [
        ("goals: [quality max_degradation 1%]", {"confidence": "estimate"}, "confidence=estimate"),
        ("signature: true", {}, "no signing_key"),
        ("replay: true", {}, "push_model without a replay"),  # the pipeline has validate_serving
        ("replay: true", {"recording": "requests.log"}, None),
    ],
)
def test_other_rules_are_checked_with_the_values_of_a_run(tmp_path, rules, values, received):
    served = write(tmp_path / "served", rules)
    (served / "1").mkdir()
    if received is None:
        check(served, **values)
        return
    with pytest.raises(ComponentError, match=received):
        check(served, **values)


def test_the_policy_of_the_environment_holds_for_all_destinations(tmp_path, monkeypatch):
    file = write(tmp_path / "organisation", "goals: [latency threshold 5]") / "policy.yaml"
    monkeypatch.setenv("TFOPT_POLICY", str(file))
    with pytest.raises(ComponentError, match="latency threshold 5"):
        check(tmp_path / "served")
    served = write(tmp_path / "served", "goals: [size threshold 1000]")
    with pytest.raises(ComponentError, match="size threshold 1000"):
        check(served, goals=["latency threshold 5"])
    check(served, goals=["latency threshold 5", "size threshold 1000"])
    write(tmp_path / "organisation", "signature: true")
    check(tmp_path / "other", signing_key="key.pem")
    with pytest.raises(ComponentError, match="no signing_key"):
        check(tmp_path / "other")
    monkeypatch.setenv("TFOPT_POLICY", str(tmp_path / "missing.yaml"))
    with pytest.raises(ComponentError, match="no such file"):
        check(tmp_path / "served")


PIPELINE = """
from tfopt.artifacts import Blessing, Model
from tfopt.component import Input
from tfopt.trace import Steps

def direct(steps: Steps, model: Input[Model], blessing: Input[Blessing]) -> None:
    exported = steps.export_tflite(model=model).outputs["exported"]
    steps.push_model(model=exported, blessing=blessing, destination="served")
"""


@pytest.mark.parametrize(
    ("rules", "received"),
    [
        ("formats: [onnx]", "push_model pushes the output of export_tflite, tflite"),
        ("serving_test: true", "push_model without a serving test"),
        ("replay: true", "push_model without a replay"),
        ("min_records: 10", "push_model without a decision"),
        ("formats: [tflite]", None),
    ],
)
def test_rules_about_the_wiring(tmp_path, monkeypatch, capsys, rules, received):
    monkeypatch.chdir(tmp_path)
    (write(tmp_path / "served", rules) / "1").mkdir()
    (tmp_path / "direct.py").write_text(PIPELINE)
    (model,) = make_models([TRAINED], tmp_path / "models")
    Blessing(tmp_path / "blessing").write({"blessed": True, "reason": "", "model_digest": Model(model).digest})
    sources = ["--set", f"model={model}", "--set", f"blessing={tmp_path / 'blessing'}"]
    for words in (["plan", *sources], ["run", *sources], ["compile", "-o", "direct.yaml"]):
        if received is None and words[0] == "run":
            continue  # the model is not a real one
        assert main([words[0], "direct.py", *words[1:]]) == (0 if received is None else 1)
        error = capsys.readouterr().err
        assert received is None or (received in error and "(owner: ml-platform)" in error), error


def test_images_that_no_pattern_matches_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "served", "images: ['registry.example/*']")
    (tmp_path / "direct.py").write_text(PIPELINE)
    assert main(["compile", "direct.py", "-o", "direct.yaml"]) == 1
    assert "the rule images of the policy" in capsys.readouterr().err
    assert not Path("direct.yaml").exists()
    assert main(["compile", "direct.py", "-o", "direct.yaml", "--image", "registry.example/tfopt-{kind}:1"]) == 0


@pytest.mark.parametrize(
    ("content", "received"),
    [
        ("goals: [a]", "no 'owner'"),
        (OWNER + "gaols: []", "gaols"),
        (OWNER + "goals: [accuracy most 1]", "accuracy most 1"),
        (OWNER + "formats: [tflight]", "formats tflight"),
        (OWNER + "min_records: many", "min_records is"),
        ("- a", "list"),
        ("owner: [", "line 1: expected"),
        (OWNER + "goals: [size threshold 9]\ngoals: []", "the key 'goals' twice"),
        (OWNER + "signature:", "signature is a null"),
        (OWNER + "signature: perhaps", "signature is"),
        (OWNER + "approval: true", "approval without approvers"),
        (OWNER + "approvers: [ada.pem]", "approvers: no file"),
        (OWNER + "min_records: " + "9" * 5000, "min_records is"),
        (OWNER + "min_records: !!int x", "min_records is"),
        (OWNER + "formats: [[onnx]]", "formats is a list"),
        ("goals: &a [a]\nowner: *a", "owner"),
        ("", "no 'owner'"),
        ("a: &a [x, x, x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)), "alias"),
    ],
)
def test_damaged_policies_are_refused_before_a_run(tmp_path, content, received):
    (tmp_path / "policy.yaml").write_text(content)
    with pytest.raises(ComponentError) as error:
        read_policies(str(tmp_path))
    assert received in error.value.received and str(tmp_path) in error.value.received


@pytest.mark.parametrize("kind", ["folder", "dangling", "pipe"])
def test_a_policy_that_is_no_file_is_not_the_same_as_none(tmp_path, kind):
    file = tmp_path / "policy.yaml"
    {"folder": file.mkdir, "dangling": lambda: file.symlink_to("nowhere"), "pipe": lambda: os.mkfifo(file)}[kind]()
    with pytest.raises(ComponentError, match="a link to nothing"):
        read_policies(str(tmp_path))


def test_the_policy_of_the_docs_is_valid(tmp_path):
    text = Path("docs/operate.md").read_text()
    (rules,) = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "owner:" in block]
    (tmp_path / "policy.yaml").write_text(rules)
    (tmp_path / "ada.pem").touch()
    (policy,) = read_policies(str(tmp_path))
    assert policy.min_records == 500 and policy.signature and policy.serving_test


def test_the_policy_of_a_bucket_holds_and_no_access_to_it_does_not_stop_a_compilation(bucket, caplog):
    remote_files.write_file(f"{bucket}/served/policy.yaml", b"owner: ml-platform\ngoals: [latency threshold 5]")
    with pytest.raises(ComponentError, match="latency threshold 5"):
        check(f"{bucket}/served")
    check("hdfs://localhost/served")  # its libraries are not installed
    assert "the policy of hdfs://localhost/served is not checked now" in caplog.text
    with pytest.raises(ComponentError, match="hdfs://localhost"):
        read_policies("hdfs://localhost/served")


def test_no_policy_is_no_rule(tmp_path):
    assert read_policies(str(tmp_path / "served")) == read_policies(None) == []


def measured(folder: Path) -> tuple[list[Model], EvaluationReport, BenchmarkReport]:
    """Return the models of a run and their reports."""
    models = [Model(path) for path in sorted((folder / "models").iterdir())]
    return models, Evaluation(folder / "evaluation").load(), Benchmark(folder / "benchmark").load()


@pytest.fixture(scope="module")
def selected(tmp_path_factory) -> Path:
    """Return the folder of a run that selected a LiteRT model, with another destination."""
    folder = tmp_path_factory.mktemp("selected") / "run"
    run(folder, folder / "served")
    return folder


@pytest.mark.parametrize(
    ("rules", "name", "blessed", "reason"),
    [
        ("formats: [saved_model, tflite]", "tflite", True, ""),
        ("formats: [saved_model]", "trained", True, "allows saved_model"),
        ("min_records: 1000000", "trained", False, "requires 1,000,000"),
        ("min_records: 10", "tflite", True, ""),
    ],
)
def test_the_selection_obeys_formats_and_records(selected, tmp_path, rules, name, blessed, reason):
    served = write(tmp_path / "served", rules)
    _, decision = decide(*measured(selected), Criteria(destination=str(served)), [])
    assert (decision.selected, decision.blessed) == (name, blessed)
    (lite,) = [model for model in decision.models if model.name == "tflite"]
    assert reason in " ".join(lite.reasons)


def push(folder: Path, served: Path, target: Path, decision: Path | None, **inputs) -> Pushed:
    outputs = push_model(
        folder / "selected", folder / "blessing", target, decision=decision, destination=str(served), **inputs
    )  # fmt: skip
    return outputs["pushed"]


@pytest.mark.parametrize(
    ("rules", "received"),
    [
        ("goals: [latency threshold 0.001]", "the decision: goals quality max_degradation 1%"),
        ("formats: [saved_model]", "its format is tflite"),
        ("min_records: 1000000", "evaluated on"),
        ("signature: true", "no signing_key"),
        ("serving_test: true", "no infra_blessing"),
        ("replay: true", "no infra_blessing of replay for the pushed model"),
    ],
)
def test_a_push_that_violates_a_rule_is_refused_and_pushes_nothing(selected, tmp_path, rules, received):
    served = write(tmp_path / "served", rules)
    (served / "1").mkdir()
    with pytest.raises(ComponentError) as error:
        push(selected, served, tmp_path / "pushed", selected / "decision")
    assert received in error.value.received and "(owner: ml-platform)" in error.value.expected
    assert sorted(path.name for path in served.iterdir()) == ["1", "policy.yaml"]


def test_a_push_needs_the_decision_about_its_model(selected, tmp_path):
    served = write(tmp_path / "served", "goals: [quality max_degradation 2%]\nformats: [tflite]\nmin_records: 5")
    other = Decision(tmp_path / "other")
    other.write(replace(Decision(selected / "decision").load(), selected_digest="d"))
    for decision in (None, other.path):
        with pytest.raises(ComponentError, match="no decision about this model"):
            push(selected, served, tmp_path / "refused", decision)
    assert push(selected, served, tmp_path / "pushed", selected / "decision").load().version == 1


@pytest.mark.parametrize("replayed", [True, False])
def test_a_push_may_need_a_replay(selected, tmp_path, replayed):
    served = write(tmp_path / "served", "replay: true")
    (served / "1").mkdir()
    model = Model(selected / "selected")
    row = ServedModel("new", model.digest, "tflite", "tf_serving", "", True, "", None, None, replayed=replayed)
    InfraBlessing(tmp_path / "infra").write(ServingReport(True, "", [row]))
    options = {"decision": selected / "decision", "infra_blessing": tmp_path / "infra"}
    if replayed:
        assert push(selected, served, tmp_path / "pushed", **options).load().version == 2
    else:
        with pytest.raises(ComponentError, match="the rule replay of the policy"):
            push(selected, served, tmp_path / "pushed", **options)


def test_a_push_needs_the_approval_of_an_approver(selected, tmp_path, capsys, monkeypatch):
    served, decision, model = tmp_path / "served", selected / "decision", selected / "selected"
    ada, bob = (write_keys(tmp_path / name) for name in ("ada", "bob"))
    write(served, "approval: true\napprovers: [ada.pem]")
    shutil.copy(ada[1], served / "ada.pem")
    monkeypatch.chdir(tmp_path)

    def refused() -> str:
        with pytest.raises(ComponentError, match=r"the rule approval of the policy .*owner: ml-platform") as error:
            push(selected, served, tmp_path / "pushed", decision)
        assert f"tfopt approve {decision} {served} --key KEY.pem" in error.value.fix
        return error.value.received

    assert refused().startswith(f"no approval of the model {Model(model).digest[:12]}")
    assert main(["approve", str(decision), str(served), "--key", str(bob[0]), "--by", "bob"]) == 0
    assert "by bob, is not signed with a key of an approver" in refused()
    (of_bob,) = (served / "approvals").iterdir()
    forged = json.loads(of_bob.read_text())  # bob writes ada's name into it
    of_bob.write_text(json.dumps(forged | {"statement": forged["statement"].replace("bob", "ada")}))
    assert "by ada, is not signed with a key of an approver" in refused()
    of_bob.unlink()
    other = Decision(tmp_path / "other")
    other.write(replace(Decision(decision).load(), reason="another decision about the same model"))
    assert main(["approve", str(other.path), str(served), "--key", str(ada[0]), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert (printed["model"], Path(printed["file"]).parent) == (Model(model).digest, served / "approvals")
    assert "is about another decision" in refused()
    assert main(["approve", str(decision), str(served), "--key", str(ada[0])]) == 0
    assert push(selected, served, tmp_path / "pushed", decision).load().version == 1


def test_a_model_can_be_approved_without_a_decision(selected, tmp_path):
    ada = write_keys(tmp_path / "ada")
    served = write(tmp_path / "served", f"approval: true\napprovers: [{ada[1]}]")
    assert main(["approve", str(selected / "selected"), str(served), "--key", str(ada[0])]) == 0
    assert push(selected, served, tmp_path / "pushed", None).load().version == 1
    with pytest.raises(ComponentError, match=r"signing_key=.*\n.*\n.*openssl ecparam"):
        main(["approve", str(selected / "selected"), str(served), "--key", str(ada[1]), "--debug"])

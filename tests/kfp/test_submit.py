"""Test ``tfopt submit`` with a local server that checks every request against KFP's published schema."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from kfp.cli.cli import cli

from tests.components.test_select_model_history import LITE, run
from tests.costly_runs import PIPELINE, write_drift
from tests.kfp_server.server import KfpServer
from tfopt.cli.main import main
from tfopt.kfp import pending_pods, submit
from tfopt.model_store.run_history import THROUGHPUT, read_all_runs

OPTIMIZE = ["optimize", "--set", "model=s3://bucket/model", "--set", "examples=gs://bucket/examples"]


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.delenv("KFP_TOKEN", raising=False)
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    monkeypatch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "no-context.json"))
    with KfpServer() as running:
        yield running


def test_a_run_gets_its_parameters_and_the_compiled_dag(server, capsys):
    words = ["--set", "label=digit", "--set", 'goals=["accuracy threshold 0.9"]', "--name", "tonight"]
    assert main(["submit", *OPTIMIZE, *words, "--endpoint", server.url]) == 0
    (run,) = server.kinds["runs"].values()
    assert run["display_name"] == "tonight"
    assert run["runtime_config"]["parameters"] == {
        "model_uri": "s3://bucket/model",
        "examples_uri": "gs://bucket/examples",
        "label": "digit",
        "goals": ["accuracy threshold 0.9"],
    }
    (uploaded,) = server.uploads.values()
    assert "select-model" in next(yaml.safe_load_all(uploaded))["root"]["dag"]["tasks"]
    (pipeline,) = server.kinds["pipelines"].values()
    (experiment,) = server.kinds["experiments"].values()
    assert (pipeline["name"], experiment["display_name"]) == ("optimize", "optimize")
    assert f"{server.url}/#/runs/details/{run['run_id']}" in capsys.readouterr().out


def test_the_warning_of_the_sdk_about_old_servers_is_not_printed(server, recwarn):
    assert main(["submit", *OPTIMIZE, "--endpoint", server.url]) == 0
    assert not [one for one in recwarn if "This client only works" in str(one.message)]


def test_equal_yaml_is_uploaded_as_one_version(server):
    for options in ([], [], ["--kfp-option", "cpu=2"]):
        assert main(["submit", *OPTIMIZE, *options, "--endpoint", server.url]) == 0
    assert [len(server.kinds[kind]) for kind in ("experiments", "pipelines", "versions", "runs")] == [1, 1, 2, 3]


def test_only_optional_sources_with_a_value_are_compiled(server):
    sources = ["data=s3://bucket/d.csv", "module=s3://bucket/m.py", "start=s3://bucket/trained"]
    assert (
        main(
            ["submit", "retrain", *(word for source in sources for word in ("--set", source)), "--endpoint", server.url]
        )
        == 0
    )
    (run,) = server.kinds["runs"].values()
    assert run["runtime_config"]["parameters"]["start_uri"] == "s3://bucket/trained"
    (uploaded,) = server.uploads.values()
    tasks = next(yaml.safe_load_all(uploaded))["root"]["dag"]["tasks"]
    names = {task["taskInfo"]["name"] for task in tasks.values()}
    assert {"data", "module", "start"} < names
    assert "plan" not in names
    assert {"examples", "module", "start"} == set(tasks["train"]["inputs"]["artifacts"])


def test_a_run_has_the_root_service_account_and_experiment_of_the_options(server):
    options = ["--kfp-option", "root=minio://mlpipeline/v2", "--kfp-option", "service_account=tfopt-runner"]
    assert main(["submit", *OPTIMIZE, *options, "--experiment", "nightly", "--endpoint", server.url]) == 0
    (run,) = server.kinds["runs"].values()
    assert run["runtime_config"]["pipeline_root"] == "minio://mlpipeline/v2"
    assert run["service_account"] == "tfopt-runner"
    assert [experiment["display_name"] for experiment in server.kinds["experiments"].values()] == ["nightly"]


def test_wait_logs_each_change_of_state_once_and_returns_0_on_success(server, capsys):
    server.script = [
        ("PENDING", {}),
        ("RUNNING", {"fold_batch_norm": "RUNNING", "executor(0)": "PENDING"}),  # Argo's names of pods
        ("RUNNING", {"fold_batch_norm": "RUNNING", "executor(0)": "RUNNING", "executor": "RUNNING"}),
        ("RUNNING", {"fold_batch_norm": "SUCCEEDED", "benchmark": "RUNNING"}),
        ("SUCCEEDED", {"fold_batch_norm": "SUCCEEDED", "benchmark": "SUCCEEDED"}),
    ]
    assert main(["submit", *OPTIMIZE, "--wait", "--endpoint", server.url]) == 0
    lines = [
        line for line in capsys.readouterr().err.splitlines() if " details: " not in line
    ]  # messages of the KFP client
    assert [line.rpartition(" ")[2] for line in lines if line.startswith("run ")] == ["pending", "running", "succeeded"]
    assert [line for line in lines if not line.startswith("run ")] == [
        "fold_batch_norm: running",
        "fold_batch_norm: succeeded",
        "benchmark: running",
        "benchmark: succeeded",
    ]


# KFP names tasks by their component; the last one is a source. The results of two steps are cached.
STEPS = {"count": "SUCCEEDED", "count-2": "SUCCEEDED", "fail": "SKIPPED", "benchmark": "SUCCEEDED", "data": "SUCCEEDED"}
TIMES = {"count": 1800.0, "count-2": 0.0, "fail": 5.0, "benchmark": 3600.0, "data": 60.0}
PRICE = ["--price", "0.4"]


@pytest.fixture
def priced(server, tmp_path, monkeypatch) -> list[str]:
    """Return the command of a run whose destination has a version, at a rate for which that needs three nodes."""
    monkeypatch.chdir(tmp_path)
    Path("counting.py").write_text(PIPELINE)
    server.script, server.seconds = [("SUCCEEDED", STEPS)], TIMES
    run(tmp_path / "first", tmp_path / "served", replace(LITE, p50=0.1, speedup=(4.0, 3.9, 4.1, "faster")))
    rate = 2.5 * read_all_runs(tmp_path / "served")[0].winner.metrics[THROUGHPUT]
    sources = {name: f"s3://bucket/{name}" for name in ("data", "model", "blessing")}
    values = sources | {"destination": "served", "rate": rate, "price": 0.5}
    pairs = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    return ["submit", "counting.py", *pairs, "--endpoint", server.url]


def test_wait_ends_with_the_cost_of_the_steps_that_were_not_cached(server, priced, capsys):
    words = [*priced, "--wait"]
    assert main([*words, *PRICE]) == 0
    cost = "cost of this run: at most 0.6 (1 h 30 min of steps that were not reused, 0.4 an hour)"
    assert capsys.readouterr().out.splitlines()[1:] == [cost]  # nothing was pushed
    gpu = ["--kfp-option", "benchmark:gpu=1", "--kfp-option", "benchmark:image=gpu"]
    assert main([*words, *gpu, *PRICE]) == 1
    assert "a GPU for benchmark" in capsys.readouterr().err
    assert main([*words, *gpu, *PRICE, "--gpu-price", "3.2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"]["total"] == pytest.approx(0.5 * 0.4 + 3.2)
    server.script = [("FAILED", STEPS)]
    assert main([*words, *PRICE]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [cost]
    for option in ("--price", "--gpu-price"):
        assert main([*words, option, "0"]) == 1
        assert f"received: {option} 0" in capsys.readouterr().err


def test_wait_says_what_the_push_of_the_run_saves(server, priced, tmp_path, monkeypatch, capsys):
    server.script = [("RUNNING", {}), ("SUCCEEDED", STEPS)]
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: run(tmp_path / "second", tmp_path / "served"))
    words = [*priced, "--wait", *PRICE]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert lines[0].startswith("version 2 saves 365.2 in a month, compared with version 1: 2 nodes instead of 3 at ")
    assert lines[1] == "this run has paid for itself after 1 h 12 min"
    server.script = [("SUCCEEDED", STEPS)]
    words[words.index("destination=served")] = "destination=/no-such-volume/digits"
    assert main(words) == 0
    reason = "what the push saves is unknown: /no-such-volume/digits is no folder of this machine"
    assert capsys.readouterr().out.splitlines()[-1] == reason


def test_a_run_that_costs_more_than_it_can_save_is_not_started(server, priced, tmp_path, capsys):
    skip = ["--price", "1000", "--skip-unprofitable", str(write_drift(tmp_path))]
    assert main([*priced, *skip]) == 0
    assert "there is no earlier time of them" in capsys.readouterr().err
    assert main([*priced, "--wait"]) == 0  # the server ends the runs that are watched
    capsys.readouterr()
    assert main([*priced, *skip]) == 8
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("skipped: the expected cost of this run is 1,500 (1 h 30 min), its expected saving 730.5 ")
    assert len(server.kinds["runs"]) == 2
    assert main([*priced, *skip[2:]]) == 1
    assert "--skip-unprofitable without --price" in capsys.readouterr().err
    write_drift(tmp_path, decision="retrain")
    assert main([*priced, *skip]) == 0
    assert "not skipped: check_drift decided retrain" in capsys.readouterr().err


@pytest.mark.parametrize("state", ["FAILED", "CANCELED", "SKIPPED"])
def test_wait_returns_1_if_the_run_did_not_succeed(state, server):
    server.script = [(state, {})]
    assert main(["submit", *OPTIMIZE, "--wait", "--endpoint", server.url]) == 1


def test_wait_reports_the_failed_step_and_its_message(server, capsys):
    server.script = [("RUNNING", {}), ("FAILED", {"train": "FAILED:OOMKilled"})]
    assert main(["submit", *OPTIMIZE, "--wait", "--json", "--endpoint", server.url]) == 1
    output = capsys.readouterr()
    assert "train: failed: OOMKilled" in output.err.splitlines()
    assert "the reason of each pod: kubectl get workflows --namespace kubeflow --selector pipeline/runid=" in output.err
    assert json.loads(output.out)["state"] == "FAILED"


@pytest.fixture
def clock(server, monkeypatch):
    """Let the time pass only in pauses, a minute in each."""
    now = [0.0]
    monkeypatch.setattr(pending_pods, "monotonic", lambda: now[0])
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + 60))


@pytest.mark.usefixtures("clock")
def test_wait_reports_a_pod_that_does_not_start_once_and_ends_after_the_timeout(server, capsys):
    server.script = [("RUNNING", {"train": "RUNNING", "executor": "PENDING", "other": "SUCCEEDED"})]
    words = ["--wait", "--start-timeout", "10m", "--endpoint", server.url]
    assert main(["submit", *OPTIMIZE, *words]) == 1
    errors = capsys.readouterr().err
    (run,) = server.kinds["runs"].values()
    assert errors.count("a pod of train has not started for 180 s") == 1
    assert errors.count("a pod of train has not started for 660 s") == 1
    assert errors.count(f"--namespace kubeflow --selector pipeline/runid={run['run_id']}") == 4
    assert errors.count(f"kfp run terminate {run['run_id']}") == 2


@pytest.mark.usefixtures("clock")
def test_wait_does_not_add_the_times_of_pods_that_start_one_after_the_other(server, capsys):
    pods = [("RUNNING", {f"step{index}": "PENDING", f"step{index - 1}": "RUNNING"}) for index in range(1, 9)]
    server.script = [each for pod in pods for each in (pod, pod)] + [("SUCCEEDED", {})]
    assert main(["submit", *OPTIMIZE, "--wait", "--start-timeout", "2m", "--endpoint", server.url]) == 0
    assert "has not started" not in capsys.readouterr().err


def test_a_start_timeout_without_a_unit_is_refused_before_anything_is_uploaded(server, capsys):
    assert main(["submit", *OPTIMIZE, "--wait", "--start-timeout", "600", "--endpoint", server.url]) == 1
    assert "--start-timeout 10m" in capsys.readouterr().err
    assert not server.uploads


def test_wait_survives_a_temporarily_unavailable_server(server, monkeypatch, capsys):
    server.script = [("RUNNING", {}), ("SUCCEEDED", {})]
    monkeypatch.setattr(
        submit.time, "sleep", lambda seconds: setattr(server, "down", 3) if len(server.requests) < 20 else None
    )
    assert main(["submit", *OPTIMIZE, "--wait", "--endpoint", server.url]) == 0
    assert "trying again" in capsys.readouterr().err


def test_wait_ends_if_the_server_stays_unavailable(server, monkeypatch, capsys):
    server.script = [("RUNNING", {})]
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: setattr(server, "down", 10**6))
    assert main(["submit", *OPTIMIZE, "--wait", "--endpoint", server.url]) == 1
    assert "503" in capsys.readouterr().err


def test_ctrl_c_does_not_stop_the_run(server):
    server.script = [("RUNNING", {})]
    words = [sys.executable, "-m", "tfopt.run", "submit", *OPTIMIZE, "--wait", "--endpoint", server.url]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not any(line.startswith("GET /apis/v2beta1/runs/") for line in server.requests):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the run continues" in out
    assert not [line for line in server.requests if "terminate" in line or line.startswith("DELETE")]


class InterruptedFinalizer:
    """Call the handler of SIGINT in a finalizer, where Python ignores the KeyboardInterrupt.

    A real signal would end the process of all later tests if a library had removed Python's handler.
    """

    def __del__(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        assert callable(handler)
        handler(signal.SIGINT, None)


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, as in a command; earlier tests may have left another handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before or signal.SIG_DFL)


@pytest.mark.usefixtures("_interrupts")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("polls_that_fail", [0, 2])
def test_an_interrupt_that_python_ignores_ends_the_wait(polls_that_fail, server, monkeypatch, capsys):
    server.script = [("RUNNING", {}), ("RUNNING", {"train": "RUNNING"}), ("SUCCEEDED", {})]
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 1:
            server.down = polls_that_fail
            InterruptedFinalizer()

    monkeypatch.setattr(submit.time, "sleep", pause)
    assert main(["submit", *OPTIMIZE, "--wait", "--endpoint", server.url]) == 130
    assert "the run continues" in capsys.readouterr().out
    assert len(pauses) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_token_file_is_read_for_each_request(server, monkeypatch, tmp_path):
    server.token = "new"
    server.script = [("RUNNING", {}), ("SUCCEEDED", {})]
    token = tmp_path / "token"
    token.write_text("new\n")
    words = ["submit", *OPTIMIZE, "--wait", "--endpoint", server.url, "--token-file", str(token)]
    rotated = []

    def rotate(seconds):
        server.token = f"newer{len(rotated)}"
        token.write_text(server.token)
        rotated.append(seconds)

    monkeypatch.setattr(submit.time, "sleep", rotate)
    assert main(words) == 0
    assert rotated


def test_an_expired_token_is_an_error_that_explains_how_to_get_one(server, tmp_path, capsys):
    server.token = "new"
    (tmp_path / "token").write_text("old")
    words = ["submit", *OPTIMIZE, "--endpoint", server.url, "--token-file", str(tmp_path / "token")]
    assert main(words) == 1
    output = capsys.readouterr().err
    assert "401" in output
    assert "kubectl create token" in output
    assert not server.kinds["runs"]


def test_wait_ends_at_once_if_the_token_expires(server, monkeypatch, capsys):
    server.script = [("RUNNING", {})]
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: setattr(server, "token", "another"))
    monkeypatch.setenv("KFP_TOKEN", "first")
    server.token = "first"
    assert main(["submit", *OPTIMIZE, "--wait", "--endpoint", server.url]) == 1
    assert "401" in capsys.readouterr().err
    assert len([line for line in server.requests if line.startswith("GET /apis/v2beta1/runs/")]) == 2


def test_an_unreachable_endpoint_is_reported_in_seconds(capsys):
    started = time.monotonic()
    assert main(["submit", *OPTIMIZE, "--endpoint", "http://127.0.0.1:9"]) == 1
    assert time.monotonic() - started < 10
    output = capsys.readouterr().err
    assert "Connection refused" in output
    assert "port-forward" in output


def test_a_multi_user_server_needs_a_namespace(server, capsys):
    server.multi_user = True
    assert main(["submit", *OPTIMIZE, "--endpoint", server.url]) == 1
    assert "--namespace" in capsys.readouterr().err
    assert main(["submit", *OPTIMIZE, "--endpoint", server.url, "--namespace", "ml-team"]) == 0
    (experiment,) = server.kinds["experiments"].values()
    assert experiment["namespace"] == "ml-team"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optimize", "--set", "model=my_model/", "--set", "examples=s3://b/e"], "the cluster can read"),
        (["optimize", "--set", "examples=s3://b/e"], "--set model=…"),
        ([*OPTIMIZE, "--set", "epochs=3"], "optimize: epochs"),
        ([*OPTIMIZE, "--set", 'goals=["accuracy at least 1"]'], "goals"),
        ([*OPTIMIZE, "--image", "My Image"], "an image reference"),
        ([*OPTIMIZE, "--kfp-option", "tain:cpu=2"], "a step of optimize"),
        (["no_such", "--set", "a=b"], "a shipped pipeline"),
    ],
)
def test_wrong_arguments_are_reported_before_the_first_request(words, message, server, capsys):
    assert main(["submit", *words, "--endpoint", server.url]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert all(part in error for part in ("received:", "expected:", "how to fix:"))
    assert server.requests == []


def test_an_endpoint_that_is_not_a_kfp_server_is_reported(capsys, tmp_path):
    assert main(["submit", *OPTIMIZE, "--endpoint", "kfp.example"]) == 1
    assert "--endpoint https://kfp.example" in capsys.readouterr().err
    (Path(tmp_path) / "apis" / "v2beta1").mkdir(parents=True)
    (Path(tmp_path) / "apis" / "v2beta1" / "healthz").write_text("<html>Log in</html>")
    words = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "-d", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as login:
        port = login.stdout.readline().split("port ")[1].split()[0]
        assert main(["submit", *OPTIMIZE, "--endpoint", f"http://127.0.0.1:{port}"]) == 1
        assert main(["submit", *OPTIMIZE, "--endpoint", f"http://127.0.0.1:{port}/elsewhere"]) == 1
        login.terminate()
    output = capsys.readouterr().err
    assert "login page" in output
    assert "404" in output


def test_kubeflows_own_command_line_runs_a_compiled_file(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # kfp reads its settings there
    assert main(["compile", "optimize", "-o", str(tmp_path / "optimize.yaml")]) == 0

    def kfp(*words: str) -> Result:
        return CliRunner().invoke(cli, ["--endpoint", server.url, *words], obj={})

    create = ["run", "create", "-e", "digits", "-f", str(tmp_path / "optimize.yaml")]
    values = ["model_uri=s3://bucket/model", "examples_uri=gs://bucket/examples", "batch_sizes=[1, 8]"]
    refused = kfp(*create, *values[:1])
    assert refused.exit_code == 1
    assert "examples_uri" in str(refused.exception)
    assert kfp(*create, *values).exit_code == 0
    (run,) = server.kinds["runs"].values()
    assert run["runtime_config"]["parameters"]["model_uri"] == "s3://bucket/model"
    assert "select-model" in run["pipeline_spec"]["pipeline_spec"]["root"]["dag"]["tasks"]
    assert "kubernetes" in run["pipeline_spec"]["platform_spec"]["platforms"]
    assert not server.uploads
    assert kfp("pipeline", "create", "-p", "optimize", str(tmp_path / "optimize.yaml")).exit_code == 0
    (uploaded,) = server.uploads.values()
    assert uploaded == (tmp_path / "optimize.yaml").read_text()

"""Run pipelines under KFP's own driver and launcher, and compare what they record with what a local run records."""

import json
from pathlib import Path

import pytest
from kfp import dsl
from kfp.compiler import Compiler

from tests.kfp_backend.backend import NAMESPACE
from tests.kfp_backend.runs import COUNTS, FAILING, VALUES, content, run_locally, upload_rows, write_pipeline
from tfopt.cli.main import main
from tfopt.kfp import Steps, submit
from tfopt.kfp.client import Server

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


@pytest.fixture
def data(store, tmp_path) -> tuple[Path, str]:
    """Return a file of nine lines, and its address in the bucket of the runs."""
    return upload_rows(store, tmp_path, "s3")


@pytest.fixture
def run_on_kfp(backend, tmp_path, monkeypatch, capsys):
    """Return a function that runs ``tfopt submit --wait``; it returns the exit code and the run's id.

    Its attribute ``facts`` has all that the last command printed.
    """
    monkeypatch.setattr(submit.time, "sleep", backend.pause)
    monkeypatch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "no-context.json"))

    def run(pipeline: str, *words: str) -> tuple[int, str]:
        with backend.running_workflows():
            code = main(
                ["submit", write_pipeline(tmp_path, pipeline), "--endpoint", backend.url, "--wait", "--json", *words]
            )
        run.facts = json.loads(capsys.readouterr().out)
        return code, run.facts["run"]

    return run


def _set(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def test_a_run_writes_and_records_what_a_local_run_writes_and_records(run_on_kfp, recorded, store, data, tmp_path):
    local = run_locally(tmp_path, COUNTS, _set([f"data={data[0]}", *VALUES]))
    code, run_id = run_on_kfp(COUNTS, *_set([f"data={data[1]}", *VALUES]))
    assert code == 0
    tasks = recorded(run_id)
    for step, expected in local.items():
        assert tasks[step]["state"] == "COMPLETE"
        output = tasks[step]["outputs"][expected["output"]]
        assert content(store, output["uri"]) == expected["files"]
        assert output["metadata"].get("count", 0) == expected["count"]
        assert output["type"] == "system.Artifact"
    assert json.loads(local["first"]["files"]["report.json"])["notes"] == ["a", "b: {{$}}", 'ü"x']
    assert json.loads(local["total"]["files"]["report.json"])["count"] == 7 + 18 + 7 + 3
    assert tasks["data"]["outputs"]["artifact"]["uri"] == data[1]


def test_unchanged_steps_are_reused_unless_their_source_may_have_changed(backend, run_on_kfp, recorded, data):
    def components() -> list[str]:
        return [ran.component for ran in backend.ran if ran.component]

    for options, reused in (([], False), (["--kfp-option", "data:reuse=yes"], True)):
        states = []
        for _ in range(2):
            before = len(components())
            code, run_id = run_on_kfp(COUNTS, "--set", f"data={data[1]}", "--set", "limit=8", *options)
            assert code == 0
            states.append({name: task["state"] for name, task in recorded(run_id).items()})
        ran = components()[before:]
        assert ran == (["tests.toys:add"] if reused else ["tests.toys:count", "tests.toys:count", "tests.toys:add"])
        assert states[1]["first"] == ("CACHED" if reused else "COMPLETE")
        assert states[1]["total"] == "COMPLETE"


def test_a_run_costs_the_time_of_its_steps_except_of_cached_ones(backend, run_on_kfp, data):
    words = ["--set", f"data={data[1]}", "--set", "limit=9", "--kfp-option", "data:reuse=yes", "--price", "3600"]
    seconds = []
    for _ in range(2):
        assert run_on_kfp(COUNTS, *words)[0] == 0
        assert run_on_kfp.facts["cost"]["is_bound"]
        seconds.append(run_on_kfp.facts["cost"]["total"])  # at a price of 1 for a second
    everything, total = seconds
    assert 3 <= everything <= 60
    assert 0 < total < everything  # `first` and `second` are cached, `total` is not
    server = Server(backend.url)
    run = server.client.get_run(run_on_kfp.facts["run"])
    ids = (
        run.experiment_id,
        run.pipeline_version_reference.pipeline_id,
        run.pipeline_version_reference.pipeline_version_id,
    )
    assert submit.find_last_run(server, submit.Upload(*ids, {}, {})).run_id == run.run_id  # with an expected cost


@pytest.mark.parametrize(
    ("how", "logged"),
    [
        ("refuse", "how to fix"),
        ("crash", "a bug"),
        ("kill", "SIGKILL"),
        ("leave", "ended the process with 0"),
        ("forget", "report"),
    ],
)
def test_a_failed_step_is_retried_fails_the_run_and_uploads_only_its_log(
    how, logged, backend, run_on_kfp, recorded, store, data
):
    before = len(backend.ran)
    code, run_id = run_on_kfp(
        FAILING, "--set", f"data={data[1]}", "--set", f"how={how}", "--kfp-option", "first:retries=1"
    )
    assert code == 1
    attempts = [ran for ran in backend.ran[before:] if ran.component]
    assert [ran.component for ran in attempts] == ["tests.toys:fail"] * 2
    assert all(logged in ran.log for ran in attempts)
    tasks = recorded(run_id)
    assert tasks["first"]["state"] == "FAILED"
    assert "after" not in tasks
    assert set(tasks["first"]["outputs"]) == {"executor-logs"}
    (log,) = content(store, tasks["first"]["outputs"]["executor-logs"]["uri"]).values()
    assert logged in log
    folder = tasks["first"]["outputs"]["executor-logs"]["uri"].rpartition("/")[0]
    assert set(content(store, folder)) == {"executor-logs-0", "executor-logs-1"}


def test_options_of_steps_reach_their_pods(backend, run_on_kfp, data, tmp_path):
    backend.claims["models"] = tmp_path / "models"
    backend.cluster.add_secret("credentials", key="value of the secret")
    options = {
        **{"cpu": "2", "memory": "1Gi", "gpu": "1", "gpu_type": "amd.com/gpu", "image": "registry.example/rocm:1"},
        **{"env.NAME": "a=b", "node.pool": "gpu", "toleration": "dedicated=gpu:NoSchedule", "timeout": "10m"},
        **{"secret.API_TOKEN": "credentials/key", "secret_files.credentials": "/secrets", "volume.models": "/models"},
        **{"pull_secret": "registry", "user": "10001:20"},
    }
    words = [word for key, value in options.items() for word in ("--kfp-option", f"first:{key}={value}")]
    before = len(backend.ran)
    code, _ = run_on_kfp(COUNTS, "--set", f"data={data[1]}", "--kfp-option", "service_account=tfopt-runner", *words)
    assert code == 0
    (first,) = [ran for ran in backend.ran[before:] if ran.container.spec["image"] == options["image"]]
    spec, pod = first.container.spec, first.container.pod
    limits = {"cpu": "2", "memory": "1Gi", "amd.com/gpu": "1"}
    assert spec["image"] == "registry.example/rocm:1"
    assert spec["resources"] == {"limits": limits, "requests": {"cpu": "2", "memory": "1Gi"}}
    assert {"name": "NAME", "value": "a=b"} in spec["env"]
    token = {"secretKeyRef": {"name": "credentials", "key": "key", "optional": False}}
    assert {"name": "API_TOKEN", "valueFrom": token} in spec["env"]
    mounted = {mount["mountPath"]: mount["name"] for mount in spec["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes[mounted["/models"]]["persistentVolumeClaim"]["claimName"] == "models"
    assert volumes[mounted["/secrets"]]["secret"]["secretName"] == "credentials"
    assert pod["nodeSelector"] == {"pool": "gpu"}
    (toleration,) = pod["tolerations"]
    assert toleration == {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    assert pod["activeDeadlineSeconds"] == 600
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    ids = {"runAsUser": 10001, "runAsGroup": 20, "runAsNonRoot": True}
    assert spec["securityContext"].items() >= ids.items()
    (workflow,) = backend.cluster.of_kind("workflows")[-1:]
    assert workflow["spec"]["serviceAccountName"] == "tfopt-runner"


def test_a_step_gets_what_kfp_collected_from_a_loop(backend, recorded, store, data, tmp_path):
    ours = Steps("registry.example/tfopt-{kind}:1")

    @dsl.pipeline(name="loop")
    def loop(data_uri: str) -> None:
        rows = dsl.importer(artifact_uri=data_uri, artifact_class=dsl.Artifact).output
        with dsl.ParallelFor([1.0, 2.0, 3.0]) as scale:
            counted = getattr(ours, "tests.toys:count")(data=rows, scale=scale).outputs["report"]
        getattr(ours, "tests.toys:add")(reports=dsl.Collected(counted))

    Compiler().compile(loop, str(tmp_path / "loop.yaml"))
    from kfp import Client

    backend.leave_out_workflows()
    run = Client(backend.url).create_run_from_pipeline_package(
        str(tmp_path / "loop.yaml"), {"data_uri": data[1]}, experiment_name="loops"
    )
    backend.run_workflows()
    total = recorded(run.run_id)["add"]
    assert total["state"] == "COMPLETE"
    report = json.loads(content(store, total["outputs"]["total"]["uri"])["report.json"])
    assert sorted(report["parts"]) == [36, 72, 108]


def test_a_schedule_is_created_replaced_paused_and_deleted(backend, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "no-context.json"))
    of_the_schedule = ["schedule", write_pipeline(tmp_path, COUNTS), "--name", "digits", "--endpoint", backend.url]

    def enabled() -> list[bool]:
        return [schedule["spec"].get("enabled", False) for schedule in backend.cluster.of_kind("scheduledworkflows")]

    create = [*of_the_schedule, "--cron", "0 0 3 * * 1", "--set", "data=s3://mlpipeline/rows.csv"]
    assert main(create) == 0
    (created,) = backend.cluster.of_kind("scheduledworkflows")
    assert created["spec"]["trigger"]["cronSchedule"]["cron"] == "0 0 3 * * 1"
    assert (created["spec"]["maxConcurrency"], created["spec"]["noCatchup"]) == (1, True)
    assert created["metadata"]["namespace"] == NAMESPACE
    assert main([*of_the_schedule, "--pause"]) == 0
    assert enabled() == [False]
    assert main([*create, "--set", "limit=3"]) == 0
    assert enabled() == [False], "a replaced schedule stays paused"
    assert main([*of_the_schedule, "--resume"]) == 0
    assert enabled() == [True]
    capsys.readouterr()
    assert main([*of_the_schedule, "--list"]) == 0
    assert "digits" in capsys.readouterr().out
    assert main([*of_the_schedule, "--delete"]) == 0
    assert enabled() == []

"""A pipeline written with Kubeflow's SDK, files of other SDKs, and the pipelines `optimize` and `tune`, in pods."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import kfp
import numpy as np
import pytest
from kfp import dsl, kubernetes
from kfp.compiler import Compiler

from tests.cluster.conftest import CLAIM, set_values, upload_folder, wait_for
from tests.cluster.images import REPOSITORY
from tests.cluster.kubeflow import address_of
from tests.cluster.node import SDKS
from tests.cluster.submission import IMAGE, Run, Submission
from tests.components.train_modules import DIGITS, write
from tests.kfp_backend.runs import COUNTS, VALUES, content, run_locally, write_pipeline
from tests.recorded_runs import MEASURED, without
from tfopt.artifacts import Decision
from tfopt.kfp import Steps

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3000), pytest.mark.usefixtures("servers")]
PODS = (
    "cpu=600m",
    "retries=2",
    "memory=2Gi",
    "benchmark:memory=3Gi",
    f"push_model:volume.{CLAIM}=/models",
    f"select_model:volume.{CLAIM}=/models",
)


@dsl.component(base_image=IMAGE.format(kind="tf"), install_kfp_package=False)
def total_of(report: dsl.Input[dsl.Artifact]) -> int:
    """Return the count of a report."""
    import json
    import pathlib

    return int(json.loads(pathlib.Path(report.path, "report.json").read_text())["count"])


@dsl.component(base_image=IMAGE.format(kind="tf"), install_kfp_package=False)
def ended(note: dsl.Output[dsl.Artifact]) -> None:
    """Write that the tasks before it ended; their state is in the run: KFP's driver (2.16.1) passes RUNNING here."""
    import pathlib

    pathlib.Path(note.path).write_text("ended")


def own(fails: bool) -> dsl.base_component.BaseComponent:
    """Return a pipeline with a loop, what it collects, a condition on it, and a task that always runs at the end."""
    ours = Steps(IMAGE)

    def allowed(task: dsl.PipelineTask) -> dsl.PipelineTask:
        kubernetes.set_security_context(task, run_as_non_root=True)
        return task.set_caching_options(False)

    @dsl.pipeline(name="own")
    def pipeline(data_uri: str, least: int = 100) -> None:
        with dsl.ExitHandler(allowed(ended())):
            rows = dsl.importer(artifact_uri=data_uri, artifact_class=dsl.Artifact).output
            with dsl.ParallelFor([1.0, 2.0, 3.0]) as scale:
                counted = getattr(ours, "tests.toys:count")(data=rows, scale=scale).outputs["report"]
            total = getattr(ours, "tests.toys:add")(reports=dsl.Collected(counted)).outputs["total"]
            number = allowed(total_of(report=total)).output
            with dsl.If(number > least, name="more"):
                getattr(ours, "tests.toys:add")(reports=[total], start=1)
                if fails:
                    getattr(ours, "tests.toys:fail")(data=rows).set_retry(1, backoff_duration="1s")
            with dsl.Else(name="less"):
                getattr(ours, "tests.toys:add")(reports=[total], start=2)

    return pipeline


def start(file: Path, **values: object) -> Run:
    client = kfp.Client(f"http://{address_of('ml-pipeline', 8888)}")
    return Run(client.create_run_from_pipeline_package(str(file), values, experiment_name="own").run_id)


def end_of(run: Run, seconds: float = 900) -> str:
    """Return the state in which a run ended."""
    return wait_for(lambda: run.state() in ("SUCCEEDED", "FAILED") and run.state(), seconds, pause=3)


def report_of(store, task: dict) -> dict:
    return json.loads(content(store, task["outputs"]["total"]["uri"])["report.json"])


def test_a_pipeline_of_ones_own_with_loop_condition_and_exit_handler(store, data, tmp_path):
    runs = {}
    for fails in (False, True):
        Compiler().compile(own(fails), str(tmp_path / f"{fails}.yaml"))
        runs[fails] = start(tmp_path / f"{fails}.yaml", data_uri=data[1])
    assert {fails: end_of(run) for fails, run in runs.items()} == {False: "SUCCEEDED", True: "FAILED"}
    for fails, run in runs.items():
        tasks = run.tasks()
        total = report_of(store, tasks["add"])
        assert (total["count"], sorted(total["parts"])) == (216, [36, 72, 108])
        assert report_of(store, tasks["add-2"])["count"] == 217
        assert tasks.get("add-3", {}).get("state") != "COMPLETE"
        (note,) = content(store, tasks["ended"]["outputs"]["note"]["uri"]).values()
        assert note == "ended"
        if fails:
            assert "report" not in tasks["fail"]["outputs"]


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_a_file_of_each_end_of_the_range_of_sdks_runs_with_its_command_line(end, store, data, tmp_path):
    sdk = SDKS / end
    if not sdk.is_dir():
        pytest.skip("no SDKs: `make test-cluster` installs them, outside of the node's network")
    environment = {**os.environ, "PYTHONPATH": f"{sdk}:{REPOSITORY}"}
    file = tmp_path / "counts.yaml"
    words = [write_pipeline(tmp_path, COUNTS), "-o", str(file), "--image", IMAGE]
    words += ["--kfp-option", "cpu=500m", "--kfp-option", "memory=1Gi"]
    subprocess.run([sys.executable, "-m", "tfopt.cli.main", "compile", *words], check=True, env=environment)
    endpoint = f"http://{address_of('ml-pipeline', 8888)}"
    words = [f"data_uri={data[1]}", *VALUES]
    command = [str(sdk / "bin" / "kfp"), "--output", "json", "--endpoint", endpoint, "run", "create"]
    command += ["--experiment-name", "sdks", "--run-name", end, "--package-file", str(file), *words]
    printed = subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
    run = Run(json.loads(printed[printed.index("{") :])["run_id"])
    assert end_of(run) == "SUCCEEDED"
    tasks = run.tasks()
    for step, expected in run_locally(tmp_path, COUNTS, set_values(f"data={data[0]}", *VALUES)).items():
        assert content(store, tasks[step]["outputs"][expected["output"]]["uri"]) == expected["files"]


def decisions(store, submitted: Submission, local: Path, folder: Path) -> list[dict]:
    """Return the decision of a run in pods and of a run on this machine, without measured values."""
    uri = submitted.tasks()["select_model"]["outputs"]["decision"]["uri"]
    folder.mkdir()
    for name, text in content(store, uri).items():
        (folder / name).write_text(text)
    read = [Decision(path).read() for path in (folder, local)]
    for decision in read:
        decision["history"]["trends"] = [
            trend for trend in decision["history"]["trends"] if trend["metric"] not in MEASURED
        ]
    return [without(decision, {*MEASURED, "summary"}) for decision in read]


def run_here(pipeline: str, root: Path, values: dict[str, object]) -> Path:
    """Run a pipeline on this machine, and return its decision."""
    words = set_values(*(f"{key}={value}" for key, value in values.items()))
    command = [sys.executable, "-m", "tfopt.run", "run", pipeline, "--json", "--root", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["select_model"]["outputs"]["decision"])


def in_pods(folder: Path, pipeline: str, values: dict[str, object], *options: str) -> Submission:
    words = set_values(*(f"{key}={value}" for key, value in values.items()))
    submitted = Submission(folder, pipeline, *words, options=(*PODS, *options))
    assert submitted.wait(2400) == 0, submitted.errors()
    return submitted


def test_optimize_decides_and_pushes_as_on_this_machine(store, volume, digits_model, digits_examples, tmp_path):
    values = {"label": "label", "objective": "size", "seconds": 0.5}
    sources = {"model": digits_model, "examples": digits_examples}
    there = {name: upload_folder(store, folder, f"optimize/{name}") for name, folder in sources.items()}
    submitted = in_pods(tmp_path, "optimize", {**values, **there, "destination": "/models/optimized"})
    local = run_here("optimize", tmp_path / "root", {**values, **sources, "destination": tmp_path / "optimized"})
    on_kfp, here = decisions(store, submitted, local, tmp_path / "decision")
    assert on_kfp == here
    pushed = [
        {file.name for file in folder.rglob("*")} for folder in (volume / "optimized/1", tmp_path / "optimized/1")
    ]
    assert pushed[0] == pushed[1]


def test_tune_searches_and_pushes_and_its_second_run_reuses_the_recipe(store, volume, tmp_path):
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    np.savetxt(tmp_path / "rows.csv", np.c_[images, labels], "%d", ",")
    write(tmp_path / "model.py", DIGITS)
    values = {"pack": "image=8x8x1", "epochs": 4, "seconds": 0.4, "objective": "size"}
    values |= {"formats": '["tflite"]', "trials": 3, "destination": "/models/tuned"}
    values["goals"] = '["quality max_degradation 5%"]'  # which 169 records can prove
    for name in ("rows.csv", "model.py"):
        store.upload_file(str(tmp_path / name), "mlpipeline", f"tune/{name}")
    sources = {"data": "minio://mlpipeline/tune/rows.csv", "module": "minio://mlpipeline/tune/model.py"}
    recipes = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        volumes = (f"{step}:volume.{CLAIM}=/models" for step in ("train", "tune_recipe"))
        submitted = in_pods(folder, "tune", {**values, **sources}, *volumes)
        recipe = content(store, submitted.tasks()["tune_recipe"]["outputs"]["recipe"]["uri"])
        recipes.append(json.loads(recipe["recipe.json"]))
    assert [recipe["reused"] for recipe in recipes] == [False, True]
    assert recipes[0]["winner"]["choices"] == recipes[1]["winner"]["choices"]
    assert (volume / "tuned/1").is_dir()
    shutil.rmtree(volume / "tuned")

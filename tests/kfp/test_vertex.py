"""Test ``tfopt compile --target vertex`` with the constructor of Vertex AI's client, which parses and binds a pipeline.

No pipeline was run on Vertex AI.
"""

import json
from pathlib import Path

import pytest
import yaml
from kfp import dsl
from kfp.compiler import Compiler

from tfopt.cli.main import main
from tfopt.dag import tracing
from tfopt.kfp import Steps

IMAGE = "europe-west1-docker.pkg.dev/project/models/tfopt-{kind}:1"
SOURCES = {"examples": "gs://bucket/examples", "model": "gs://bucket/model", "data": "gs://bucket/data.csv"}


def compile_for_vertex(folder: Path, pipeline: str, *more: str) -> Path:
    file = folder / "a pipeline.yaml"
    assert main(["compile", pipeline, "--target", "vertex", "--image", IMAGE, "-o", str(file), *more]) == 0
    return file


def job_of(file: Path, values: dict):
    """Return the resource that the client would send."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    job = aiplatform.PipelineJob(
        display_name="a run", template_path=str(file), pipeline_root="gs://bucket/runs", project="project",
        location="europe-west1", credentials=AnonymousCredentials(), parameter_values=values,
    )  # fmt: skip
    return job._gca_resource  # the public attribute needs a job that was sent


@pytest.mark.parametrize("pipeline", tracing.pipelines())
def test_the_client_accepts_every_shipped_pipeline(pipeline, tmp_path):
    dag = tracing.load(pipeline).with_sources({})
    gpu = [] if pipeline != "optimize_gpu" else ["--kfp-option", "gpu_type=NVIDIA_L4"]
    file = compile_for_vertex(tmp_path, pipeline, *gpu)
    (document,) = yaml.safe_load_all(file.read_text())
    inputs = document["root"]["inputDefinitions"]["parameters"]
    required = [name for name, facts in inputs.items() if not facts.get("isOptional") and "defaultValue" not in facts]
    values = {name: SOURCES.get(name.removesuffix("_uri"), "gs://bucket/pushed") for name in required}
    job = job_of(file, values)
    tasks = json.loads(type(job).to_json(job))["pipelineSpec"]["root"]["dag"]["tasks"]
    components = [task["componentRef"]["name"] for task in tasks.values()]
    assert len([name for name in components if "importer" not in name]) == len(dag.steps)


def test_resources_and_accelerators_are_in_the_pipeline(tmp_path):
    options = (
        "train:gpu=1",
        "train:image=gpu",
        "train:gpu_type=NVIDIA_L4",
        "train:cpu=8",
        "train:retries=4",
        "env.A=b",
    )
    file = compile_for_vertex(tmp_path, "retrain", *(word for option in options for word in ("--kfp-option", option)))
    document = yaml.safe_load(file.read_text())
    container = document["deploymentSpec"]["executors"]["exec-train"]["container"]
    resources = container["resources"]
    assert (resources["accelerator"]["resourceType"], resources["cpuLimit"]) == ("NVIDIA_L4", 8.0)
    assert document["root"]["dag"]["tasks"]["train"]["retryPolicy"]["maxRetryCount"] == 4
    assert {"name": "A", "value": "b"} in container["env"]


def test_the_largest_machine_is_accepted(tmp_path):
    file = compile_for_vertex(tmp_path, "retrain", "--kfp-option", "cpu=96000m", "--kfp-option", "memory=580Gi")
    document = yaml.safe_load(file.read_text())
    assert document["deploymentSpec"]["executors"]["exec-train"]["container"]["resources"]["cpuLimit"] == 96


def test_the_client_accepts_an_own_pipeline_with_our_steps(tmp_path):
    ours = Steps(IMAGE, target="vertex")

    @dsl.pipeline(name="own")
    def own(model_uri: str, examples_uri: str) -> None:
        model = dsl.importer(artifact_uri=model_uri, artifact_class=dsl.Model).output
        examples = dsl.importer(artifact_uri=examples_uri, artifact_class=dsl.Dataset).output
        ours.benchmark(baseline=model, candidates=[model], examples=examples)
        ours.convert_tensorrt(model=model, examples=examples).set_accelerator_type("NVIDIA_L4")

    file = tmp_path / "own.yaml"
    Compiler().compile(own, str(file))
    (document,) = yaml.safe_load_all(file.read_text())
    executors = document["deploymentSpec"]["executors"]
    assert executors["exec-benchmark"]["container"]["resources"]["cpuLimit"] == 2
    assert executors["exec-convert-tensorrt"]["container"]["resources"]["accelerator"]["resourceType"] == "NVIDIA_L4"
    assert job_of(file, {"model_uri": SOURCES["model"], "examples_uri": SOURCES["examples"]}).pipeline_spec


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--kfp-option", "train:volume.models=/models"], "options without Kubernetes"),
        (["--kfp-option", "timeout=1h"], "options without Kubernetes"),
        (["--kfp-option", "root=s3://bucket/runs"], "an address gs://"),
        (["--set", "data=s3://bucket/data.csv"], "an address gs://"),
        (["--kfp-option", "train:gpu=1", "--kfp-option", "train:image=gpu"], "train:gpu_type=NVIDIA_L4"),
        (["--image", "tfopt-{kind}:1"], "docker.pkg.dev/my-project"),
        (["--kfp-option", "train:cpu=96.5"], "pass --kfp-option train:cpu=96, or less"),
        (["--kfp-option", "train:memory=1Ti"], "at most 624G"),
    ],
)
def test_refused(words, error, tmp_path, capsys):
    image = [] if "--image" in words else ["--image", IMAGE]
    assert main(["compile", "retrain", "--target", "vertex", *image, *words, "-o", str(tmp_path / "p.yaml")]) == 1
    assert error in capsys.readouterr().err
    assert not (tmp_path / "p.yaml").exists()

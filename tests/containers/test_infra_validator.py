"""Test stock InfraValidator and Pusher after our steps: each model is loaded and called in a server's container.

TensorFlow Serving's image needs a registry. Where none responds, the image of the tests' own server is run: it loads a
SavedModel with the same TensorFlow and implements the same gRPC services.
"""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from sklearn.datasets import load_iris

from tests.stock_trainer import FEATURES

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]
SERVER = Path(__file__).parents[1] / "stand_in_server.py"
DOCKERFILE = """
FROM {image}
USER root
EXPOSE 8500
COPY stand_in_server.py /
ENTRYPOINT ["python", "/stand_in_server.py", "--host=0.0.0.0"]
"""


@pytest.fixture(scope="module")
def server_image(image) -> tuple[str, str]:
    """Return name and tag of an image of TensorFlow Serving, or of the tests' server."""
    name, tag = "tensorflow/serving", "2.19.1"
    if subprocess.run(["docker", "pull", "--quiet", f"{name}:{tag}"], capture_output=True).returncode == 0:
        return name, tag
    dockerfile = DOCKERFILE.format(image=image("tfx"))
    command = ["docker", "build", "--quiet", "--tag", "tfopt-test-server:1", "--file", "-", str(SERVER.parent)]
    subprocess.run(command, input=dockerfile, text=True, check=True)
    return "tfopt-test-server", "1"


@pytest.fixture(scope="module")
def run(server_image, tmp_path_factory) -> SimpleNamespace:
    """Run CsvExampleGen, Trainer, fold_batch_norm, InfraValidator and Pusher on Beam; return the folder."""
    from tfx.components import CsvExampleGen, InfraValidator, Pusher, Trainer
    from tfx.orchestration import metadata, pipeline
    from tfx.orchestration.beam.beam_dag_runner import BeamDagRunner
    from tfx.proto import infra_validator_pb2, pusher_pb2, trainer_pb2

    from tfopt.tfx import steps

    folder = tmp_path_factory.mktemp("infra")
    iris = load_iris()
    rows = [",".join([*FEATURES, "species"])]
    rows += [",".join(map(str, [*row, label])) for row, label in zip(iris.data, iris.target, strict=True)]
    (folder / "csv").mkdir()
    (folder / "csv" / "iris.csv").write_text("\n".join(rows) + "\n")
    generated = CsvExampleGen(str(folder / "csv"))
    examples = generated.outputs["examples"]
    trainer = Trainer(
        run_fn="tests.stock_trainer.run_fn",
        examples=examples,
        train_args=trainer_pb2.TrainArgs(num_steps=1),
        eval_args=trainer_pb2.EvalArgs(num_steps=1),
    )
    folded = steps.fold_batch_norm(model=trainer.outputs["model"], examples=examples)
    optimized = steps.optimize_graph(model=folded.outputs["folded"], examples=examples)
    model = optimized.outputs["optimized"]
    name, tag = server_image
    requests = infra_validator_pb2.TensorFlowServingRequestSpec(signature_names=["serving_default"])
    validator = InfraValidator(
        model=model,
        examples=examples,
        serving_spec=infra_validator_pb2.ServingSpec(
            tensorflow_serving=infra_validator_pb2.TensorFlowServing(image_name=name, tags=[tag]),
            local_docker=infra_validator_pb2.LocalDockerConfig(client_base_url=os.environ.get("DOCKER_HOST", "")),
        ),
        request_spec=infra_validator_pb2.RequestSpec(tensorflow_serving=requests, num_examples=10),
        validation_spec=infra_validator_pb2.ValidationSpec(max_loading_time_seconds=120, num_tries=1),
    )
    place = pusher_pb2.PushDestination.Filesystem(base_directory=str(folder / "pushed"))
    pusher = Pusher(
        model=model,
        infra_blessing=validator.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(filesystem=place),
    )
    BeamDagRunner().run(
        pipeline.Pipeline(
            pipeline_name="infra",
            pipeline_root=str(folder / "artifacts"),
            components=[generated, trainer, folded, optimized, validator, pusher],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(folder / "metadata.sqlite")),
        )
    )
    return SimpleNamespace(folder=folder, artifacts=folder / "artifacts")


def test_infra_validator_blesses_the_optimized_model_and_pusher_pushes_it(run):
    (blessing,) = (run.artifacts / "InfraValidator" / "blessing").iterdir()
    assert [file.name for file in blessing.iterdir()] == ["INFRA_BLESSED"]
    (pushed,) = (run.folder / "pushed").glob("*/saved_model.pb")
    (optimized,) = (run.artifacts / "optimize_graph" / "optimized").glob("*/Format-Serving/saved_model.pb")
    assert pushed.read_bytes() == optimized.read_bytes()

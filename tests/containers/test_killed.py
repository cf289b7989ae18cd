"""Test that a container that is killed during its step leaves no output, and that the step can be run again."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.containers.conftest import docker_command, run
from tfopt.artifacts import Model

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]


@pytest.fixture
def folder(tmp_path, digits_examples) -> Path:
    """Create a folder that all users can write to, with the 8x8 digits and a module that trains slowly enough."""
    tmp_path.chmod(0o777)
    subprocess.run(["cp", "-r", digits_examples, tmp_path / "examples"], check=True)
    (tmp_path / "module.py").write_text(
        "import keras\n\n\ndef build_model():\n"
        "    image = keras.Input((8, 8, 1), name='image')\n"
        "    digit = keras.layers.Dense(10, activation='softmax')(keras.layers.Flatten()(image))\n"
        "    model = keras.Model(image, digit)\n"
        "    model.compile('adam', 'sparse_categorical_crossentropy')\n"
        "    return model\n"
    )
    return tmp_path


def test_a_killed_step_leaves_no_output_and_can_run_again(image, folder):
    words = docker_command(image("tf"), *_step(folder, epochs=10_000), mounts=(folder,))
    with subprocess.Popen(
        [*words[:2], "--name", f"tfopt-{folder.name}", *words[2:]], stderr=subprocess.PIPE, text=True
    ) as container:
        assert any(line.startswith("epoch 2/") for line in container.stderr)
        subprocess.run(["docker", "kill", f"tfopt-{folder.name}"], check=True, capture_output=True)
        assert container.wait(60) == 137
    (stage,) = (folder / "step").iterdir()
    assert re.fullmatch(r"\.trained\.partial-\w+-\d+-\w+", stage.name)

    again = run(image("tf"), *_step(folder, epochs=1), mounts=(folder,))
    assert again.returncode == 0, again.stderr
    assert {file.name for file in (folder / "step").iterdir()} == {"trained", "executor_output.json"}
    Model(folder / "step" / "trained").check()


def test_a_failing_step_ends_with_1_explains_the_fix_and_writes_nothing(image, folder):
    failed = run(image("tf"), *_step(folder, epochs=0), mounts=(folder,))
    assert failed.returncode == 1
    assert "how to fix:" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (folder / "step").exists()


def _step(folder: Path, epochs: int) -> list[str]:
    """Return the container's command with an ExecutorInput like that of KFP."""

    def entries(**uris: str) -> dict[str, object]:
        return {name: {"artifacts": [{"name": name, "uri": uri, "metadata": {}}]} for name, uri in uris.items()}

    message = {
        "inputs": {
            "parameterValues": {"epochs": epochs, "patience": epochs},
            "artifacts": entries(examples=f"{folder}/examples", module=f"{folder}/module.py"),
        },
        "outputs": {
            "outputFile": f"{folder}/step/executor_output.json",
            "artifacts": entries(trained=f"{folder}/step/trained"),
        },
    }
    return ["python", "-m", "tfopt.run", "train", "--executor-input", json.dumps(message)]

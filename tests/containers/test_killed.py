"""A container killed in the middle of its step leaves no output, and the step can be run again in its place."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.containers.conftest import contained, run
from tfopt.artifacts import Model

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]


@pytest.fixture
def folder(tmp_path, digits_examples) -> Path:
    """A folder that anybody may write to, with the 8x8 digits and a module that learns them slowly enough."""
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


def test_a_killed_step_leaves_no_output_and_runs_again_in_its_place(image, folder):
    words = contained(image("tf"), *_step(folder, epochs=10_000), mounts=(folder,))
    with subprocess.Popen(
        [*words[:2], "--name", f"tfopt-{folder.name}", *words[2:]], stderr=subprocess.PIPE, text=True
    ) as container:
        said = iter(container.stderr)
        assert any(line.startswith("epoch 2/") for line in said)
        subprocess.run(["docker", "kill", f"tfopt-{folder.name}"], check=True, capture_output=True)
        assert container.wait(60) == 137
    (left,) = (folder / "step").iterdir()
    assert re.fullmatch(r"\.trained\.partial-\w+-1-\w+", left.name)

    again = run(image("tf"), *_step(folder, epochs=1), mounts=(folder,))
    assert again.returncode == 0, again.stderr
    assert {file.name for file in (folder / "step").iterdir()} == {"trained", "executor_output.json"}
    Model(folder / "step" / "trained").check()


def test_a_failing_step_ends_with_1_says_what_to_do_and_writes_nothing(image, folder):
    failed = run(image("tf"), *_step(folder, epochs=0), mounts=(folder,))
    assert failed.returncode == 1
    assert "how to fix:" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (folder / "step").exists()


def _step(folder: Path, epochs: int) -> list[str]:
    """The container's command, with the ExecutorInput that KFP would give it."""

    def listed(**uris: str) -> dict[str, object]:
        return {name: {"artifacts": [{"name": name, "uri": uri, "metadata": {}}]} for name, uri in uris.items()}

    message = {
        "inputs": {
            "parameterValues": {"epochs": epochs, "patience": epochs},
            "artifacts": listed(examples=f"{folder}/examples", module=f"{folder}/module.py"),
        },
        "outputs": {
            "outputFile": f"{folder}/step/executor_output.json",
            "artifacts": listed(trained=f"{folder}/step/trained"),
        },
    }
    return ["python", "-m", "tfopt.run", "train", "--executor-input", json.dumps(message)]

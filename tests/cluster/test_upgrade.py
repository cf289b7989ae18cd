"""The last release and this version in one cluster: one store, one cache, one destination, forth and back."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cluster.conftest import CLAIM, set_values, upload_folder
from tests.cluster.images import KINDS, REPOSITORY, write_image
from tests.cluster.registry import registry
from tests.cluster.submission import IMAGE, Submission, containers

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3000), pytest.mark.usefixtures("servers")]
BRIEF = '''
from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Group, Input
from tfopt.pipelines.optimize import Selection, select_and_push
from tfopt.trace import Steps


def brief(steps: Steps, model: Input[SavedModel], examples: Input[Examples], *, selection: Group[Selection]) -> None:
    """Make one candidate, measure it against the model, select one of the two, and push it.

    Args:
        steps: Adds the steps.
        model: A trained model.
        examples: For calibration and measurement.
        selection: Parameters of the measurement, the selection and the push.
    """
    exported = steps.export_tflite(model=model, examples=examples, precision="float32")
    select_and_push(steps, model, [exported.outputs["exported"]], examples, selection)
'''
VOLUMES = (f"push_model:volume.{CLAIM}=/models", f"select_model:volume.{CLAIM}=/models")
OPTIONS = ("cpu=600m", "retries=2", "memory=2Gi", "model:reuse=yes", "examples:reuse=yes", *VOLUMES)


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    """Return a folder with the packages of the newest release, as git has it."""
    version = re.search(r"^## (\d\S+)", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    log = ["git", "log", "-1", "--format=%H", f"-S## {version} (", "--", "CHANGELOG.md"]
    commit = subprocess.run(log, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.strip()
    if not commit:
        pytest.skip(f"the history of git does not have release {version}")
    archive = ["git", "archive", commit, "tfopt", "components", "pipelines"]
    packed = subprocess.run(archive, cwd=REPOSITORY, check=True, capture_output=True).stdout
    folder = tmp_path_factory.mktemp("release")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return folder


def changed_copy(model: Path, folder: Path) -> Path:
    """Write a model with other weights."""
    import keras

    from tfopt import keras_models

    changed = keras.models.load_model(model / "Format-Keras" / "model.keras")
    changed.set_weights([weights * 1.01 for weights in changed.get_weights()])
    keras_models.save(changed, folder)
    return folder


def test_a_release_and_this_version_share_store_cache_and_destination(
    release, volume, store, digits_model, digits_examples, tmp_path
):
    archive = write_image(tmp_path, KINDS["tf"], trees={"/release": release}, code="/release")
    models = {"release": digits_model, "this": changed_copy(digits_model, tmp_path / "changed")}
    addresses = {name: upload_folder(store, folder, f"upgrade/{name}") for name, folder in models.items()}
    examples = upload_folder(store, digits_examples, "upgrade/examples")
    exports = []
    with registry(archive) as pulled:
        versions = {"release": (pulled, release), "this": (IMAGE, REPOSITORY)}
        for number, name in enumerate(("release", "this", "release"), 1):
            values = {"model": addresses[name], "examples": examples, "destination": "/models/upgraded"}
            values |= {"label": "label", "objective": "size", "seconds": 0.5 + number / 10}
            image, code = versions[name]
            folder = tmp_path / str(number)
            folder.mkdir()
            words = set_values(*(f"{key}={value}" for key, value in values.items()))
            submitted = Submission(folder, BRIEF, *words, options=OPTIONS, image=image, code=code)
            assert submitted.wait(900) == 0, submitted.errors()
            images = {each["image"] for pod in submitted.all_pods() for each in containers(pod)}
            if number < 3:  # the third takes what ran in the image `beam` from the cache
                assert {image.format(kind=kind) for kind in ("tf", "beam")} <= images
            exports.append(submitted.tasks()["export_tflite"]["state"])
    assert exports == ["COMPLETE", "COMPLETE", "CACHED"]
    destination = volume / "upgraded"
    assert (destination / "1/model.tflite").read_bytes() == (destination / "3/model.tflite").read_bytes()
    records = [json.loads(file.read_text()) for file in (destination / "history").glob("*.json")]
    assert sorted(record["version"] for record in records) == [1, 2, 3]

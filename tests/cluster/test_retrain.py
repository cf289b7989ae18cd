"""Run the pipeline `retrain` on real digits in pods, and compare what it records with a run on this machine."""

import shutil
from typing import Any

import pytest

from tests.cluster.conftest import CLAIM, set_values
from tests.cluster.submission import Submission
from tests.kfp_backend.test_retrain import (  # fixtures and tests, here with the fixture `on_kfp` below  # noqa: F401
    DESTINATION,
    VALUES,
    folder,
    on_beam,
    test_decisions_are_equal,
    test_examples_are_the_same_bytes,
    test_kfp_has_the_files_and_the_metadata_of_a_local_run,
    test_kfp_records_nothing_beyond_the_metadata_of_a_local_run_but_what_is_its_own,
    test_the_claim_has_the_pushed_version,
    test_the_interface_gets_the_confusion_matrix_of_each_model_and_the_reports,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600), pytest.mark.usefixtures("servers")]
SIZES = ("cpu=800m", "memory=3Gi", "retries=2")


@pytest.fixture(scope="module")
def on_kfp(volume, store, folder, tmp_path_factory) -> dict[str, dict[str, Any]]:  # noqa: F811
    """Run `retrain` with ``tfopt submit``, and return what KFP recorded of each step."""
    for file in ("mnist_5k.csv.gz", "model.py"):
        store.upload_file(str(folder / file), "mlpipeline", f"retrain/{file}")
    sources = ["data=minio://mlpipeline/retrain/mnist_5k.csv.gz", "module=minio://mlpipeline/retrain/model.py"]
    volumes = tuple(f"{step}:volume.{CLAIM}=/models" for step in ("push_model", "select_model", "train"))
    words = set_values(*sources, *VALUES, f"destination={DESTINATION}")
    submitted = Submission(tmp_path_factory.mktemp("submit"), "retrain", *words, options=(*SIZES, *volumes))
    assert submitted.wait(3000) == 0, submitted.errors()
    shutil.copytree(volume, folder / "claim")
    return submitted.tasks()

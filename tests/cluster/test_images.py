"""Steps in the images that `make images` builds: ``CLUSTER_BIN/images.tar`` has them (docs/kubeflow.md).

An admission policy gives their pods a runtime without this machine's folders, which other containers of the node have.
"""

import os
import subprocess
from pathlib import Path

import pytest

import tfopt
from tests.cluster.conftest import CLAIM, set_values, upload_folder
from tests.cluster.images import CHECKSUMS
from tests.cluster.kubeflow import apply
from tests.cluster.node import VARIABLE
from tests.cluster.submission import Submission, containers
from tests.cluster.test_upgrade import BRIEF

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3000), pytest.mark.usefixtures("servers")]
RUNTIME = "whole"
PREFIX = "tfopt-"  # as the files in deploy/kfp name them
ADMISSION = "admissionregistration.k8s.io/v1beta1"
VOLUMES = (f"push_model:volume.{CLAIM}=/models", f"select_model:volume.{CLAIM}=/models")
OPTIONS = ("cpu=800m", "retries=1", "memory=2Gi", "export_tflite:image=tfx", *VOLUMES, *(f"env.{v}" for v in CHECKSUMS))


@pytest.fixture(scope="module")
def images(servers) -> None:
    """Load the images into containerd, and have their pods started with the runtime ``whole``."""
    archive = Path(os.environ[VARIABLE]) / "images.tar"
    if not archive.is_file():
        pytest.skip(f"no {archive}: make images KINDS='tf beam tfx' ARCHIVE={archive}")
    subprocess.run(["ctr", "--namespace", "k8s.io", "images", "import", str(archive)], check=True)
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    condition = f"object.spec.containers.exists(each, each.image.startsWith('{PREFIX}'))"
    change = {"expression": f"Object{{spec: Object.spec{{runtimeClassName: '{RUNTIME}'}}}}"}
    policy = {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [pods]},
        "matchConditions": [{"name": "image", "expression": condition}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": change}],
    }
    name = {"name": RUNTIME}
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": name, "handler": RUNTIME}
    described = {"apiVersion": ADMISSION, "kind": "MutatingAdmissionPolicy", "metadata": name, "spec": policy}
    binding = {"apiVersion": ADMISSION, "kind": "MutatingAdmissionPolicyBinding", "metadata": name}
    apply([runtime, described, {**binding, "spec": {"policyName": RUNTIME}}])


@pytest.mark.usefixtures("images")
def test_steps_run_in_the_image_of_their_kind_to_a_pushed_version(
    volume, store, digits_model, digits_examples, tmp_path
):
    sources = {"model": digits_model, "examples": digits_examples}
    values = {name: upload_folder(store, folder, f"images/{name}") for name, folder in sources.items()}
    values |= {"destination": "/models/built", "label": "label", "objective": "size", "seconds": 0.5}
    words = set_values(*(f"{key}={value}" for key, value in values.items()))
    image = f"{PREFIX}{{kind}}:{tfopt.__version__}"
    submitted = Submission(tmp_path, BRIEF, *words, options=OPTIONS, image=image)
    assert submitted.wait(1800) == 0, submitted.errors()
    pods = [pod for pod in submitted.all_pods() if any(PREFIX in each["image"] for each in containers(pod))]
    assert {pod["spec"]["runtimeClassName"] for pod in pods} == {RUNTIME}
    used = {each["image"] for pod in pods for each in containers(pod)}
    assert {image.format(kind=kind) for kind in ("tf", "beam", "tfx")} <= used
    assert (volume / "built/1/model.tflite").stat().st_size < sum(
        file.stat().st_size for file in Path(digits_model).rglob("*") if file.is_file()
    )

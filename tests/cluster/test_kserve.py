"""The InferenceService of `push_model --register kserve=FILE`: KServe's own CRD, its controller, and an answer.

The controller runs without Knative (`Standard`). The image of its runtime for Triton is one of the tests: Triton with
the Python backends of `tests.triton`, because no package has NVIDIA's backends.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.cluster.certificates import Authority
from tests.cluster.conftest import create_volume, get, wait_for
from tests.cluster.images import write_image
from tests.cluster.kubeflow import apply, kubectl, manifests
from tests.cluster.node import FOLDER, TRITON, VARIABLE
from tests.components.pushes import version
from tests.components.test_push_model import push
from tests.components.test_validate_serving import FACTOR, product
from tfopt.components.push_model.registrations import kserve

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.usefixtures("node")]
LAYOUTS = [*kserve.RUNTIMES, ("triton", "saved_model"), ("triton", "onnx")]
PORT = 9443  # of the controller's webhooks
IMAGE = "registry.example/tritonserver:2.51"
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def definitions(node) -> Path:
    """Apply KServe's definitions; return the folder of its manifests."""
    folder = manifests() / "kserve"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder} with KServe's config (tests/cluster/build.sh)")
    for file in (folder / "crd/full").rglob("serving.kserve.io_*.yaml"):
        kubectl("apply", "--server-side", "-f", str(file))
    wait_for(lambda: "inferenceservices" in kubectl("api-resources", "--api-group=serving.kserve.io"))
    return folder


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize(("layout", "format"), LAYOUTS)
def test_the_api_server_accepts_every_manifest_and_keeps_all_of_its_fields(layout, format, namespace, tmp_path):
    file = tmp_path / "digits.yaml"
    environment = {"OMP_NUM_THREADS": "2"}
    kserve.register(str(file), version(layout=layout, format=format, environment=environment))
    kubectl("apply", "--validate=strict", "--namespace", namespace, "-f", str(file))
    stored = yaml.safe_load(kubectl("get", "inferenceservice", "digits", "--namespace", namespace, "--output", "yaml"))
    written = yaml.safe_load(file.read_text())
    assert stored["spec"] == written["spec"]
    assert stored["metadata"]["annotations"].items() >= written["metadata"]["annotations"].items()


@pytest.mark.usefixtures("definitions")
def test_a_field_that_kserve_does_not_declare_is_refused(namespace, tmp_path):
    file = tmp_path / "digits.yaml"
    kserve.register(str(file), version(layout="tf_serving", format="saved_model"))
    manifest = yaml.safe_load(file.read_text())
    manifest["spec"]["predictor"]["model"]["runtimeName"] = "kserve-tensorflow-serving"
    file.write_text(yaml.safe_dump(manifest))
    with pytest.raises(RuntimeError, match="runtimeName"):
        kubectl("apply", "--validate=strict", "--namespace", namespace, "-f", str(file))


@pytest.fixture
def controller(definitions, tmp_path) -> Iterator[Path]:
    """Run KServe's controller and its webhooks as a process of the node; return the file of its log."""
    program = Path(os.environ[VARIABLE]) / "kserve-manager"
    if not program.is_file():
        pytest.skip(f"no program {program} (tests/cluster/build.sh)")
    certificates = tmp_path / "k8s-webhook-server" / "serving-certs"  # below the folder for temporary files
    certificates.parent.mkdir()
    Authority(certificates).issue("tls", "kserve", hosts=("127.0.0.1",))
    apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kserve"}}])
    (settings,) = yaml.safe_load_all((definitions / "configmap/inferenceservice.yaml").read_text())
    settings["data"]["deploy"] = json.dumps({"defaultDeploymentMode": "Standard"})
    ingress = json.loads(settings["data"]["ingress"])
    settings["data"]["ingress"] = json.dumps(ingress | {"disableIngressCreation": True})
    apply([settings], "kserve")
    log = tmp_path / "kserve.log"
    command = [str(program), "--metrics-addr=0", "--health-probe-addr=0", f"--webhook-port={PORT}"]
    with log.open("w") as file:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    hooks = webhooks(definitions, certificates)
    try:
        wait_for(lambda: process.poll() is not None or _listens(), 120)
        assert process.poll() is None, log.read_text()[-3000:]
        apply(hooks)
        yield log
    finally:
        process.kill()
        for hook in hooks:
            kubectl("delete", hook["kind"], hook["metadata"]["name"], "--ignore-not-found")


def webhooks(folder: Path, certificates: Path) -> list[dict]:
    """Return KServe's webhooks of InferenceServices and pods, at the address of the process."""
    authority = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
    name = "inferenceservice.serving.kserve.io"
    read = yaml.safe_load_all((folder / "webhook/manifests.yaml").read_text())
    hooks = [item for item in read if item and item["metadata"]["name"] == name]
    for hook in (hook for item in hooks for hook in item["webhooks"]):
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{PORT}{path}", "caBundle": authority}
    return hooks


def _listens() -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", PORT)) == 0


@pytest.fixture
def runtime(definitions, tmp_path) -> None:
    """Apply KServe's runtime for Triton, with an image of the tests."""
    if not TRITON.is_dir():
        pytest.skip("no Triton: `make test-cluster` downloads it, outside of the node's network")
    server = TRITON / "pytriton/tritonserver"
    trees = {str(TRITON): TRITON, "/bin-of-image/tritonserver": server / "bin/tritonserver"}
    trees["/opt/tritonserver/backends"] = server / "backends"
    archive = write_image(tmp_path, IMAGE, trees=trees)
    subprocess.run(["ctr", "--namespace", "k8s.io", "images", "import", str(archive)], check=True)
    archive.unlink()
    (manifest,) = yaml.safe_load_all((definitions / "runtimes/kserve-tritonserver.yaml").read_text())
    (container,) = manifest["spec"]["containers"]
    container |= {"image": IMAGE, "resources": {"requests": {"cpu": "100m", "memory": "300Mi"}}}
    apply([manifest])


def test_kserve_serves_a_pushed_version_and_then_the_next_one(controller, runtime, tmp_path):
    namespace = "served"
    apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
    volume = create_volume("repositories", namespace)
    registered = tmp_path / "digits.yaml"
    try:
        for number, factor in enumerate((FACTOR, 2 * FACTOR), 1):
            folder = tmp_path / str(number)
            folder.mkdir()
            register = {"register": [f"kserve={registered}"], "destination_uri": "pvc://repositories/first/digits"}
            push(product(folder, factor), volume / "first" / "digits", layout="triton", **register)
            subprocess.run(["chmod", "-R", "a+rX", str(volume)], check=True)
            kubectl("apply", "--validate=strict", "--namespace", namespace, "-f", str(registered))
            outputs = wait_for(lambda number=number: answer(namespace, number), 300, pause=3)
            np.testing.assert_allclose(outputs, (ROWS @ factor).ravel(), rtol=1e-5)
        service = get("inferenceservice", "digits", namespace)
        print(service["status"]["conditions"], controller.read_text()[-1500:])
        (pod,) = pods(namespace)
        (container,) = (each for each in pod["spec"]["containers"] if each["name"] == "kserve-container")
        assert container["image"] == IMAGE
        assert container["args"][:2] == ["tritonserver", "--model-store=/mnt/models"]
    finally:
        kubectl("delete", "inferenceservice", "digits", "--namespace", namespace, "--ignore-not-found")
        kubectl("delete", "namespace", namespace, "--wait=false")
        kubectl("delete", "persistentvolume", "repositories", "--wait=false")
        shutil.rmtree(FOLDER / "repositories", ignore_errors=True)


def pods(namespace: str) -> list[dict]:
    """Return the pods of the service that are ready and not about to end."""
    selector = "serving.kserve.io/inferenceservice=digits"
    items = json.loads(kubectl("get", "pods", "--namespace", namespace, "--selector", selector, "--output", "json"))
    ready = {"type": "Ready", "status": "True"}.items()
    return [
        pod
        for pod in items["items"]
        if "deletionTimestamp" not in pod["metadata"]
        and any(ready <= condition.items() for condition in pod["status"].get("conditions", []))
    ]


def answer(namespace: str, number: int) -> list[float] | None:
    """Return the outputs of the only pod, if it is that of a version; None while there is none."""
    ready = pods(namespace)
    if [pod["metadata"]["annotations"]["tfopt/version"] for pod in ready] != [str(number)]:
        return None
    (pod,) = ready
    tensor = {"name": "x", "shape": list(ROWS.shape), "datatype": "FP32", "data": ROWS.ravel().tolist()}
    url = f"http://{pod['status']['podIP']}:8080/v2/models/digits/infer"
    request = urllib.request.Request(url, json.dumps({"inputs": [tensor]}).encode())
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            (output,) = json.load(response)["outputs"]
    except OSError as error:
        print(error)
        return None
    return output["data"]

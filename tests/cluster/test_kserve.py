"""The InferenceService that `push_model --register kserve=FILE` writes, against the schema of KServe's own CRD."""

import pytest
import yaml

from tests.cluster.conftest import wait_for
from tests.cluster.kubeflow import kubectl, manifests
from tests.components.pushes import version
from tfopt.components.push_model.registrations import kserve

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.usefixtures("node")]
LAYOUTS = [*kserve.RUNTIMES, ("triton", "saved_model"), ("triton", "onnx")]


@pytest.fixture(scope="module")
def _definition(node):
    folder = manifests() / "kserve"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder} with KServe's config/crd (tests/cluster/build.sh)")
    (file,) = folder.glob("full/serving.kserve.io_inferenceservices.yaml")
    kubectl("apply", "--server-side", "-f", str(file))
    wait_for(lambda: "inferenceservices" in kubectl("api-resources", "--api-group=serving.kserve.io"))


@pytest.mark.usefixtures("_definition")
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


@pytest.mark.usefixtures("_definition")
def test_a_field_that_kserve_does_not_declare_is_refused(namespace, tmp_path):
    file = tmp_path / "digits.yaml"
    kserve.register(str(file), version(layout="tf_serving", format="saved_model"))
    manifest = yaml.safe_load(file.read_text())
    manifest["spec"]["predictor"]["model"]["runtimeName"] = "kserve-tensorflow-serving"
    file.write_text(yaml.safe_dump(manifest))
    with pytest.raises(RuntimeError, match="runtimeName"):
        kubectl("apply", "--validate=strict", "--namespace", namespace, "-f", str(file))

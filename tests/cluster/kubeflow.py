"""KFP's servers and Argo's controller in the test cluster: with their own manifests, service accounts and permissions.

Not theirs are the images, which hold the same programs, and the stores: MariaDB, moto's S3 server and ML Metadata's
store of the package ``ml-metadata`` run in one pod.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.images import ARGO_EXECUTOR, KINDS, PROGRAMS
from tests.cluster.node import VARIABLE

NAMESPACE = "kubeflow"
PROFILE = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}
KEYS = {"accesskey": "test-access", "secretkey": "test-secret"}
STORES = "stores"
_IMAGES = {name.rpartition("/")[2].partition(":")[0]: name for name in PROGRAMS}
# The command of each of KFP's servers as its image has it, by deployment.
_SERVERS = {
    "ml-pipeline": ("kfp-apiserver", "apiserver --config=/tmp --logtostderr=true"),
    "ml-pipeline-persistenceagent": (
        "kfp-persistence-agent",
        "persistence_agent --logtostderr=true --namespace=$NAMESPACE --numWorker $NUM_WORKERS"
        " --ttlSecondsAfterWorkflowFinish=$TTL_SECONDS_AFTER_WORKFLOW_FINISH --executionType Workflow",
    ),
    "ml-pipeline-scheduledworkflow": (
        "kfp-scheduled-workflow",
        "scheduledworkflow --logtostderr=true --namespace=$NAMESPACE",
    ),
}
_SETTINGS = {
    "DBDriverName": "mysql",
    # GroupConcatMaxLen: bytes of all tasks of a run
    "DBConfig": {"MySQLConfig": {"Driver": "mysql", "GroupConcatMaxLen": "4194304"}, "ConMaxLifeTime": "120s"},
    "ObjectStoreConfig": {"PipelinePath": "pipelines", "Region": "us-east-1"},
    "InitConnectionTimeout": "300s",
    "DEFAULTPIPELINERUNNERSERVICEACCOUNT": "pipeline-runner",
    "CacheEnabled": "true",
}
_DATABASE = """
rm -rf /tmp/data
mariadb-install-db --no-defaults --datadir=/tmp/data --auth-root-authentication-method=normal --skip-test-db >/dev/null
exec /usr/sbin/mariadbd --no-defaults --datadir=/tmp/data --socket=/tmp/socket --bind-address=0.0.0.0 \\
  --skip-name-resolve --skip-grant-tables
"""


def manifests() -> Path:
    """Return the folder with the manifests of KFP, Argo and KServe."""
    return Path(os.environ[VARIABLE]) / "manifests"


def what_is_missing() -> str | None:
    """Return why KFP's servers cannot be started; None if they can."""
    folder = Path(os.environ[VARIABLE])
    absent = [name for name in PROGRAMS.values() if not (folder / name).is_file()]
    absent += [f"manifests/{name}" for name in ("kfp", "argo") if not (folder / "manifests" / name).is_dir()]
    return f"{VARIABLE}={folder}: no {', '.join(absent)} (tests/cluster/build.sh lists them)" if absent else None


def kubectl(*words: str, text: str | None = None) -> str:
    """Return what kubectl prints; raise RuntimeError if it fails."""
    done = subprocess.run(["kubectl", *words], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr}")
    return done.stdout


def apply(objects: list[dict[str, Any]], namespace: str = NAMESPACE) -> None:
    """Create or change objects; Kubernetes' own list of objects has no namespace."""
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl("apply", "--server-side", "--force-conflicts", "--namespace", namespace, "-f", "-", text=content)


def install() -> None:
    """Create the namespace ``kubeflow`` with the profile ``restricted``, the servers, and the accounts of steps."""
    folder = manifests()
    apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": PROFILE}}])
    for path in (folder / "argo/base/crds/minimal", folder / "kfp/base/pipeline/cluster-scoped"):
        kubectl("apply", "--server-side", "-k", str(path))
    apply(_stores())
    apply(_argo(folder))
    apply([_server(item) for item in _built(folder / "kfp/base/installs/generic") if _is_used(item)])
    kubectl("apply", "-k", str(Path(__file__).parents[2] / "deploy/kubernetes/overlays/single-user"))
    for name in (STORES, "workflow-controller", *_SERVERS):
        kubectl("rollout", "status", f"deployment/{name}", "--namespace", NAMESPACE, "--timeout=300s")


def _built(folder: Path) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all(kubectl("kustomize", str(folder))) if item]


def _is_used(item: dict[str, Any]) -> bool:
    return item["kind"] != "Deployment" or item["metadata"]["name"] in _SERVERS


def _server(item: dict[str, Any]) -> dict[str, Any]:
    """Return one of KFP's objects with our images, and small requests of memory."""
    if item["kind"] != "Deployment":
        return item
    image, command = _SERVERS[item["metadata"]["name"]]
    (container,) = item["spec"]["template"]["spec"]["containers"]
    settings = f"echo '{json.dumps(_SETTINGS)}' > /tmp/config.json; "
    container["command"] = ["/bin/sh", "-c", f"{settings if image == 'kfp-apiserver' else ''}exec {command}"]
    container["image"] = _IMAGES[image]
    container["resources"] = {"requests": {"cpu": "100m", "memory": "100Mi"}}
    for probe in ("livenessProbe", "readinessProbe"):
        container.get(probe, {})["timeoutSeconds"] = (
            30  # on a busy machine a restart would fail the drivers of all runs
        )
    if image == "kfp-apiserver":
        replaced = {
            "V2_DRIVER_IMAGE": _IMAGES["kfp-driver"],
            "V2_LAUNCHER_IMAGE": _IMAGES["kfp-launcher"],
        }
        for entry in container["env"]:
            if entry["name"] in replaced:
                entry["value"] = replaced[entry["name"]]
    return item


def _argo(folder: Path) -> list[dict[str, Any]]:
    base = folder / "argo/base/workflow-controller"
    objects = [
        yaml.safe_load((base / f"workflow-controller-{name}.yaml").read_text()) for name in ("priorityclass", "sa")
    ]
    roles = folder / "argo/namespace-install/workflow-controller-rbac"
    objects += [
        yaml.safe_load((roles / f"workflow-controller-{name}.yaml").read_text()) for name in ("role", "rolebinding")
    ]
    for binding in objects:
        for subject in binding.get("subjects", []):
            subject["namespace"] = NAMESPACE
    patch = (folder / "kfp/third-party/argo/base/workflow-controller-configmap-patch.yaml").read_text()
    patch = patch.replace("$(kfp-namespace)", NAMESPACE).replace("$(kfp-artifact-bucket-name)", "mlpipeline")
    deployment = yaml.safe_load((base / "workflow-controller-deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    pod["securityContext"]["seccompProfile"] = {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    words = ["--configmap", "workflow-controller-configmap", "--executor-image", ARGO_EXECUTOR, "--namespaced"]
    container |= {"image": _IMAGES["workflow-controller"], "args": words}
    # Without a request it gets nearly no CPU next to steps that use all of it, and loses its lease.
    container["resources"] = {"requests": {"cpu": "200m", "memory": "100Mi"}}
    return [*objects, yaml.safe_load(patch), deployment]


def _stores() -> list[dict[str, Any]]:
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    words = {
        "s3": ["python", "-m", "moto.server", "-H", "0.0.0.0", "-p", "9000"],
        "metadata": ["python", "-m", "tests.kfp_backend.metadata_server", "0.0.0.0:8080", "/tmp/metadata.sqlite"],
        "mysql": ["/bin/sh", "-ec", _DATABASE],
    }
    ports = {"s3": ("seaweedfs", 9000), "metadata": ("metadata-grpc-service", 8080), "mysql": ("mysql", 3306)}
    containers = [
        {
            "name": name,
            "image": KINDS["tf"],
            "command": command,
            # moto takes the first word of a host's name for a bucket
            "env": [{"name": "S3_IGNORE_SUBDOMAIN_BUCKETNAME", "value": "true"}],
            "securityContext": security,
            "readinessProbe": {"tcpSocket": {"port": ports[name][1]}, "periodSeconds": 2},
            "resources": {"requests": {"cpu": "10m", "memory": "200Mi"}},
        }
        for name, command in words.items()
    ]
    pod = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "automountServiceAccountToken": False,
        "containers": containers,
    }
    labels = {"app": STORES}
    template = {"metadata": {"labels": labels}, "spec": pod}
    specification = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": STORES}, "spec": specification}
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": labels, "ports": [{"port": port}]},
        }
        for name, port in ports.values()
    ]
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "mlpipeline-minio-artifact"},
        "stringData": KEYS,
    }
    return [deployment, *services, secret]


def address_of(service: str, port: int) -> str:
    """Return HOST:PORT of the pod behind a service."""
    endpoints = json.loads(kubectl("get", "endpoints", service, "--namespace", NAMESPACE, "--output", "json"))
    (subset,) = endpoints["subsets"]
    return f"{subset['addresses'][0]['ip']}:{port}"

"""Write the configuration of a node's programs, and return their commands."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.certificates import Authority, write_key
from tests.cluster.images import PAUSE, REPOSITORY

NODE = "node1"
API = "10.96.0.1"  # of the service `kubernetes`: an address of the loopback device, so nothing has to forward it
ADDRESS = "10.245.0.1"  # of the node: the pods' gateway, and their DNS server
PODS = "10.245.0.0/24"
CGROUP = "tfopt-cluster"
PODS_MEMORY = 8 << 30  # what all pods together can have; the kernel enforces it
# Folders of this machine that each container has, read-only: its system, Python's packages, and this repository.
MOUNTS = tuple(
    dict.fromkeys(
        [
            "/usr",
            "/etc/ssl",
            "/etc/alternatives",
            sys.base_prefix,
            str(Path(sys.prefix).resolve()),
            sys.prefix,
            str(REPOSITORY),
        ]
    )
)
# Folders that programs write to, whatever their configuration says: the node has empty ones of its own.
PRIVATE = ("/run", "/var/log", "/var/lib", "/opt")
USERS = {
    "admin": ("admin", "system:masters"),
    "kube-scheduler": ("system:kube-scheduler", None),
    "kube-controller-manager": ("system:kube-controller-manager", None),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}


def write_configuration(folder: Path) -> None:
    """Write certificates, kubeconfigs and the configuration of each program below the folder."""
    pki = folder / "pki"
    authority = Authority(pki)
    write_key(pki / "accounts.key")
    kubernetes = [f"kubernetes.default{suffix}" for suffix in ("", ".svc", ".svc.cluster.local")]
    authority.issue("api", "kube-apiserver", hosts=("127.0.0.1", API, ADDRESS, "kubernetes", *kubernetes))
    authority.issue("api-of-kubelet", "kube-apiserver-kubelet-client", "system:masters")
    authority.issue("kubelet-server", NODE, hosts=(NODE, ADDRESS))
    for name, (user, group) in USERS.items():
        authority.issue(name, user, group)
        (folder / f"{name}.kubeconfig").write_text(json.dumps(_kubeconfig(pki, name)))
    (folder / "resolv.conf").touch()
    (folder / "containerd.toml").write_text(_containerd(folder))
    (folder / "cni").mkdir()
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(_network()))
    (folder / "container.json").write_text(json.dumps(_container()))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(folder)))


def _kubeconfig(pki: Path, user: str) -> object:
    cluster = {"server": f"https://{API}", "certificate-authority": str(pki / "ca.crt")}
    certificate = {"client-certificate": str(pki / f"{user}.crt"), "client-key": str(pki / f"{user}.key")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": certificate}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        "current-context": "test",
    }


def _containerd(folder: Path) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE no process may lower its own value.
    # Runtime `whole`: for images with a system of their own, without this machine's folders (test_images.py).
    return f"""
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{folder}/container.json"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.whole]
      runtime_type = "io.containerd.runc.v2"
"""


def _network() -> object:
    addresses = {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _container() -> object:
    """Return containerd's default container with this machine's folders."""
    printed = subprocess.run(["ctr", "oci", "spec"], check=True, capture_output=True).stdout
    default = json.loads(printed)
    read_only = ["rbind", "ro", "nosuid", "nodev"]
    folders = [path for path in MOUNTS if Path(path).is_dir()]
    default["mounts"] += [
        {"destination": path, "type": "bind", "source": path, "options": read_only} for path in folders
    ]
    return default


def _kubelet(folder: Path) -> object:
    pki = folder / "pki"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "enforceNodeAllocatable": ["pods"],
        "systemReserved": {"memory": str(max(memory - PODS_MEMORY, 0))},
        "imageGCHighThresholdPercent": 100,  # never: on a full disk it would remove images that are in no registry
        "evictionHard": {"nodefs.available": "1%", "memory.available": "100Mi"},
        "oomScoreAdj": 0,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet-server.key",
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/resolv.conf",
        "readOnlyPort": 0,
        "syncFrequency": "10s",
        # by default a server that tests killed several times stays away for five minutes
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "5s"},
        "volumePluginDir": f"{folder}/volume-plugins",
    }


def commands(folder: Path, programs: Path) -> dict[str, list[str]]:
    """Return the command of each program, in the order of their start."""
    pki = folder / "pki"
    # In memory (PRIVATE): on a disk that is busy, Argo's controller could not renew its lease in time.
    data, etcd = "/var/lib/etcd", "http://127.0.0.1:2379"
    peers = "http://127.0.0.1:2380"
    addresses = [f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peers}"]
    addresses += [f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}"]
    accounts = [
        f"--service-account-key-file={pki}/accounts.pub",
        f"--service-account-signing-key-file={pki}/accounts.key",
    ]
    kubelets = [
        f"--kubelet-client-certificate={pki}/api-of-kubelet.crt",
        f"--kubelet-client-key={pki}/api-of-kubelet.key",
    ]
    api = ["--secure-port=443", "--bind-address=0.0.0.0", f"--advertise-address={ADDRESS}", f"--etcd-servers={etcd}"]
    api += [f"--tls-cert-file={pki}/api.crt", f"--tls-private-key-file={pki}/api.key", f"--client-ca-file={pki}/ca.crt"]
    api += [*accounts, "--service-account-issuer=https://kubernetes.default.svc", *kubelets]
    api += [f"--kubelet-certificate-authority={pki}/ca.crt", "--kubelet-preferred-address-types=InternalIP"]
    api += [
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--feature-gates=MutatingAdmissionPolicy=true",
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
    ]
    alone = ["--leader-elect=false", f"--cert-dir={folder}/certificates"]
    controllers = ["--use-service-account-credentials", f"--service-account-private-key-file={pki}/accounts.key"]
    kubelet = [f"--config={folder}/kubelet.json", f"--root-dir={folder}/kubelet", f"--cert-dir={folder}/certificates"]
    return {
        "etcd": [f"{programs}/etcd", f"--data-dir={data}", *addresses],
        "kube-apiserver": [f"{programs}/kube-apiserver", *api],
        "containerd": ["containerd", "--config", f"{folder}/containerd.toml"],
        "names": [sys.executable, "-m", "tests.cluster.names", ADDRESS, f"{folder}/admin.kubeconfig"],
        "kube-scheduler": [f"{programs}/kube-scheduler", f"--kubeconfig={folder}/kube-scheduler.kubeconfig", *alone],
        "kube-controller-manager": [
            f"{programs}/kube-controller-manager",
            f"--kubeconfig={folder}/kube-controller-manager.kubeconfig",
            *alone,
            *controllers,
            f"--root-ca-file={pki}/ca.crt",
        ],
        "kubelet": [
            f"{programs}/kubelet",
            *kubelet,
            f"--kubeconfig={folder}/kubelet.kubeconfig",
            f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
        ],
    }

"""Options of ``--kfp-option``: how and where steps run on Kubernetes, which components and DAGs do not contain.

A component declares its resources (``@component(cpu=…, memory=…, gpu=…)``). An option changes them for all steps, or
for one step: ``[STEP:]KEY=VALUE``. See docs/adr/0006-resources.md.
"""

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from tfopt.artifacts.model_card import IMAGE
from tfopt.dag.dag import Dag
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.kfp.images import REFERENCE

Target = Literal["kubeflow", "vertex"]
KUBEFLOW: Final[Target] = "kubeflow"
VERTEX: Final[Target] = "vertex"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LABEL = r"(?:[a-z0-9.-]+/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_OBJECT = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_EFFECT = "(?:NoSchedule|PreferNoSchedule|NoExecute)"
_TIME = r"[1-9]\d*[smhd]"
GPU_TYPE = "nvidia.com/gpu"
IMAGE_USER, NON_ROOT = "image", "nonroot"  # the user that the image names: any, or any but root

# For each key the pattern of its value and an example; a key with a name after the dot may occur several times.
KEYS: dict[str, tuple[str, str]] = {
    "cpu": (r"\d+m|\d*\.?\d+", "cpu=4"),
    "memory": (r"\d+(?:[KMGT]i?)?", "memory=8Gi"),
    "gpu": (r"\d+", "gpu=1"),
    "gpu_type": (_LABEL, "gpu_type=nvidia.com/gpu"),
    "image": (REFERENCE, "image=gpu"),
    "retries": (r"\d+", "retries=2"),
    "wait": (_TIME, "wait=30s"),
    "timeout": (_TIME, "timeout=12h"),
    "env.NAME": (r".*", "env.OMP_NUM_THREADS=1"),
    "node.LABEL": (r"[\w.-]*", "node.pool=gpu"),
    "toleration": (rf"{_LABEL}(?:=[\w.-]*)?:{_EFFECT}", "toleration=pool=gpu:NoSchedule"),
    "secret.VARIABLE": (rf"{_OBJECT}/[\w.-]+", "secret.API_TOKEN=my-secret/token"),
    "secret_files.SECRET": (r"/.+", "secret_files.my-secret=/secrets"),
    "volume.CLAIM": (r"/.+", "volume.models=/models"),
    "pull_secret": (_OBJECT, "pull_secret=my-registry"),
    "user": (rf"[1-9]\d{{0,9}}(?::\d{{1,10}})?|{IMAGE_USER}|{NON_ROOT}", "user=10001:10001"),
    "reuse": (r"yes|no", "data:reuse=yes"),
    "root": (r"(?:gs|s3|minio)://.+", "root=s3://bucket/runs"),
    "service_account": (_OBJECT, "service_account=tfopt-runner"),
}
LISTS = {"toleration", "pull_secret"}
RUN_KEYS = {"root", "service_account"}  # of the run, not of a step


@dataclass(frozen=True)
class _Option:
    step: str | None
    key: str
    name: str
    value: str
    text: str


class Options:
    """The values of all ``--kfp-option`` arguments of a command.

    >>> options = Options(["cpu=2", "train:cpu=8", "env.A=b", "root=s3://bucket/runs"])
    >>> options.root, options.of("train")["cpu"], options.of("evaluate")["cpu"], options.of("train")["env"]
    ('s3://bucket/runs', '8', '2', {'A': 'b'})
    """

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        """Parse the arguments; raise ComponentError for an unknown key, or a value that its key does not allow."""
        self._options = [_parse(text) for text in arguments]

    @property
    def root(self) -> str | None:
        """The address for artifacts (``gs://``, ``s3://`` or ``minio://``); None for the cluster's default."""
        return self._last("root")

    @property
    def service_account(self) -> str | None:
        """The Kubernetes service account of the steps; None for the cluster's default."""
        return self._last("service_account")

    def check(self, dag: Dag) -> None:
        """Raise ComponentError if an option names a step or source that the DAG does not have."""
        for option in self._options:
            names = named_by(option.key, dag)
            if option.step and option.step not in names:
                kind = "source" if names is dag.sources else "step"
                received = f"--kfp-option {option.text}"
                raise ComponentError(received, f"a {kind} of {dag.name}", nearest(option.step, names))

    def of(self, step: str, placement: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Return the options of a step or source by key: a text, or a list or mapping of texts for repeatable keys.

        Options of another step (`placement`) replace those for all steps, but not those of the step itself.
        """
        values: dict[str, Any] = {}
        for scope, others in ((None, {}), (step, placement)):  # the later ones replace the earlier ones
            values |= copy.deepcopy(dict(others))
            for option in self._options:
                if option.step == scope and option.name:
                    values.setdefault(option.key, {})[option.name] = option.value
                elif option.step == scope and option.key in LISTS:
                    values.setdefault(option.key, []).append(option.value)
                elif option.step == scope:
                    values[option.key] = option.value
        return values

    def keys_of(self, step: str) -> set[str]:
        """Return the keys of the options for this step only."""
        return {option.key for option in self._options if option.step == step}

    def others(self, keys: Collection[str]) -> list[str]:
        """Return the options with other keys, as they were passed."""
        return [option.text for option in self._options if option.key not in keys]

    def _last(self, key: str) -> str | None:
        return next((option.value for option in reversed(self._options) if option.key == key), None)


def named_by(key: str, dag: Dag) -> Mapping[str, Any]:
    """Return what the first part of ``STEP:KEY=VALUE`` names: steps, or sources for the key ``reuse``."""
    return dag.sources if key == "reuse" else dag.steps


def apply(values: Mapping[str, Any], task: Any, target: Target = KUBEFLOW) -> None:
    """Set a KFP task's image, resources, retries and environment variables; on Kubeflow also settings of its pod."""
    task.set_container_image(values["image"])
    task.set_cpu_request(values["cpu"]).set_cpu_limit(values["cpu"])
    task.set_memory_request(values["memory"]).set_memory_limit(values["memory"])
    if values["gpu"] != "0":
        task.set_accelerator_type(values.get("gpu_type", GPU_TYPE)).set_accelerator_limit(values["gpu"])
    wait = f"{_seconds(values.get('wait', '30s'))}s"
    task.set_retry(int(values.get("retries", "2")), wait, 2.0, "600s")
    for name, value in {IMAGE: values["image"], **values.get("env", {})}.items():
        task.set_env_variable(name, value)
    if target == KUBEFLOW:
        _set_pod(values, task)


def _parse(text: str) -> _Option:
    left, equals, value = text.partition("=")
    step, colon, dotted = left.rpartition(":")
    key, _, name = dotted.partition(".")
    form = next((form for form in KEYS if form.partition(".")[0] == key), None)
    if form is None or not equals:
        raise ComponentError(f"--kfp-option {text}", "[STEP:]KEY=VALUE", nearest(key, KEYS))
    pattern, example = KEYS[form]
    if bool(name) != ("." in form) or not re.fullmatch(pattern, value) or (colon and key in RUN_KEYS):
        raise ComponentError(f"--kfp-option {text}", f"{form}=VALUE", f"write for example --kfp-option {example}")
    return _Option(step or None, key, name, value, text)


def _set_pod(values: Mapping[str, Any], task: Any) -> None:
    from kfp import kubernetes

    kubernetes.set_timeout(task, _seconds(values.get("timeout", "12h")))
    for text in values.get("toleration", []):  # as in `kubectl taint`: KEY=VALUE:EFFECT, or KEY:EFFECT for every value
        taint, _, effect = text.rpartition(":")
        key, equals, value = taint.partition("=")
        kubernetes.add_toleration(task, key, "Equal" if equals else "Exists", value if equals else None, effect)
    for variable, reference in values.get("secret", {}).items():
        secret, _, key = reference.partition("/")
        kubernetes.use_secret_as_env(task, secret, {key: variable})
    for secret, path in values.get("secret_files", {}).items():
        kubernetes.use_secret_as_volume(task, secret, path)
    for claim, path in values.get("volume", {}).items():
        kubernetes.mount_pvc(task, claim, path)
    if "pull_secret" in values:
        kubernetes.set_image_pull_secrets(task, values["pull_secret"])
    for label, value in values.get("node", {}).items():
        kubernetes.add_node_selector(task, label, value)
    # Kubernetes checks or sets: any user, any user but root, or this user and group. Servers from KFP 2.16 on add what
    # else its profile "restricted" demands; older ones ignore the setting.
    if values["user"] != IMAGE_USER:
        user, _, group = values["user"].partition(":")
        numbers = [int(id) if id.isdecimal() else None for id in (user, group)]
        kubernetes.set_security_context(task, *numbers, run_as_non_root=True)


def parse_time(option: str, text: str) -> int:
    """Return the seconds of a time such as 10m; raise ComponentError if it is none.

    >>> parse_time("--start-timeout", "10m")
    600
    """
    if not re.fullmatch(_TIME, text):
        raise ComponentError(f"{option} {text}", "a number with s, m, h or d", f"write for example {option} 10m")
    return _seconds(text)


def _seconds(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]]

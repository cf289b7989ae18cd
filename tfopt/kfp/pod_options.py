"""What ``--kfp-option`` says: how and where steps run on Kubernetes, which no component and no DAG should have to know.

A component declares what it needs (``@component(cpu=…, memory=…, gpu=…)``); an option changes it for all steps, or for
one: ``[STEP:]KEY=VALUE``. See docs/adr/0006-what-a-step-needs.md.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfopt.component import Component
from tfopt.dag.dag import Dag
from tfopt.errors import ComponentError, nearest

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LABEL = r"(?:[a-z0-9.-]+/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_OBJECT = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_TIME = r"[1-9]\d*[smhd]"

# What an option may be called, and what it may be set to; a NAME after the dot where there may be several.
KEYS: dict[str, tuple[str, str]] = {
    "cpu": (r"\d+m|\d*\.?\d+", "cpu=4"),
    "memory": (r"\d+(?:[KMGT]i?)?", "memory=8Gi"),
    "gpu": (r"\d+", "gpu=1"),
    "gpu_type": (_LABEL, "gpu_type=nvidia.com/gpu"),
    "retries": (r"\d+", "retries=2"),
    "wait": (_TIME, "wait=30s"),
    "timeout": (_TIME, "timeout=12h"),
    "env.NAME": (r".*", "env.OMP_NUM_THREADS=1"),
    "node.LABEL": (r"[\w.-]*", "node.pool=gpu"),
    "toleration": (
        rf"{_LABEL}(?:=[\w.-]*)?:(?:NoSchedule|PreferNoSchedule|NoExecute)",
        "toleration=pool=gpu:NoSchedule",
    ),
    "secret.VARIABLE": (rf"{_OBJECT}/[\w.-]+", "secret.API_TOKEN=my-secret/token"),
    "secret_files.SECRET": (r"/.+", "secret_files.my-secret=/secrets"),
    "volume.CLAIM": (r"/.+", "volume.models=/models"),
    "pull_secret": (_OBJECT, "pull_secret=my-registry"),
    "reuse": (r"yes|no", "data:reuse=yes"),
    "root": (r"(?:gs|s3|minio)://.+", "root=s3://bucket/runs"),
    "service_account": (_OBJECT, "service_account=tfopt-runner"),
}
_SEVERAL = {"toleration", "pull_secret"}
_WHOLE = {"root", "service_account"}  # of the run, not of a step


@dataclass(frozen=True)
class _Option:
    step: str | None
    key: str
    name: str
    value: str
    text: str


class Options:
    """Every ``--kfp-option`` of a command.

    >>> options = Options(["cpu=2", "train:cpu=8", "env.A=b", "root=s3://bucket/runs"])
    >>> options.root, options.of("train")["cpu"], options.of("evaluate")["cpu"], options.of("train")["env"]
    ('s3://bucket/runs', '8', '2', {'A': 'b'})
    """

    def __init__(self, given: Sequence[str] = ()) -> None:
        """Read options.

        Raises:
            ComponentError: On an unknown key, or a value that the key does not take.
        """
        self._all = [_read(text) for text in given]

    @property
    def root(self) -> str | None:
        """Where artifacts go (``gs://``, ``s3://`` or ``minio://``); the cluster's own place when None."""
        return self._last("root")

    @property
    def service_account(self) -> str | None:
        """Whose rights the steps have; the cluster's default when None."""
        return self._last("service_account")

    def check(self, dag: Dag) -> None:
        """Raise ComponentError for an option that names no step, or no source, of the DAG."""
        for option in self._all:
            known = dag.sources if option.key == "reuse" else dag.steps
            if option.step and option.step not in known:
                kind = "source" if option.key == "reuse" else "step"
                raise ComponentError(
                    f"--kfp-option {option.text}", f"a {kind} of {dag.name}", nearest(option.step, known)
                )

    def of(self, step: str) -> dict[str, Any]:
        """What is set for a step or source: text, or a mapping or list of texts where there may be several."""
        found: dict[str, Any] = {}
        for option in sorted(self._all, key=lambda option: option.step is not None):
            if option.step not in (None, step):
                continue
            if option.name:
                found.setdefault(option.key, {})[option.name] = option.value
            elif option.key in _SEVERAL:
                found.setdefault(option.key, []).append(option.value)
            else:
                found[option.key] = option.value
        return found

    def apply(self, task: Any, step: str, component: Component) -> None:
        """Set a KFP task's resources, retries, environment, and what Kubernetes is told of its pod."""
        resources = component.resources
        chosen = {"cpu": str(resources.cpu), "memory": resources.memory, "gpu": str(resources.gpu)} | self.of(step)
        task.set_cpu_request(chosen["cpu"]).set_cpu_limit(chosen["cpu"])
        task.set_memory_request(chosen["memory"]).set_memory_limit(chosen["memory"])
        if chosen["gpu"] != "0":
            task.set_accelerator_type(chosen.get("gpu_type", "nvidia.com/gpu")).set_accelerator_limit(chosen["gpu"])
        wait = f"{_seconds(chosen.get('wait', '30s'))}s"
        task.set_retry(int(chosen.get("retries", "2")), wait, 2.0, "600s")
        for name, value in chosen.get("env", {}).items():
            task.set_env_variable(name, value)
        task.platform_config["kubernetes"] = _pod(chosen)

    def _last(self, key: str) -> str | None:
        return next((option.value for option in reversed(self._all) if option.key == key), None)


def _read(text: str) -> _Option:
    left, equals, value = text.partition("=")
    step, colon, named = left.rpartition(":")
    key, _, name = named.partition(".")
    word = next((word for word in KEYS if word.partition(".")[0] == key), None)
    if word is None or not equals:
        raise ComponentError(f"--kfp-option {text}", "[STEP:]KEY=VALUE", nearest(key, KEYS))
    pattern, example = KEYS[word]
    if bool(name) != ("." in word) or not re.fullmatch(pattern, value) or (colon and key in _WHOLE):
        raise ComponentError(f"--kfp-option {text}", f"{word}=VALUE", f"write for example --kfp-option {example}")
    return _Option(step or None, key, name, value, text)


def _pod(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The step's KubernetesExecutorConfig, as the kfp-kubernetes extension writes it (2.16.1)."""
    parts: dict[str, Iterable[Any] | Any] = {
        "activeDeadlineSeconds": str(_seconds(chosen.get("timeout", "12h"))),
        "tolerations": [_toleration(text) for text in chosen.get("toleration", [])],
        "secretAsEnv": _each(chosen.get("secret"), _secret_key),
        "secretAsVolume": _each(chosen.get("secret_files"), _secret_files),
        "pvcMount": _each(chosen.get("volume"), _volume),
        "imagePullSecret": [_named("secretName", name) for name in chosen.get("pull_secret", [])],
        "nodeSelector": {"labels": chosen["node"]} if "node" in chosen else {},
    }
    return {key: part for key, part in parts.items() if part}


def _each(given: Mapping[str, str] | None, build: Callable[[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    return [build(name, value) for name, value in (given or {}).items()]


def _toleration(text: str) -> dict[str, str]:
    """As ``kubectl taint`` writes the taint: ``KEY=VALUE:EFFECT``, or ``KEY:EFFECT`` whatever its value."""
    taint, _, effect = text.rpartition(":")
    key, equals, value = taint.partition("=")
    match = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return {"key": key, "effect": effect, **match}


def _secret_key(variable: str, place: str) -> dict[str, Any]:
    secret, _, key = place.partition("/")
    return {**_named("secretName", secret), "keyToEnv": [{"secretKey": key, "envVar": variable}], "optional": False}


def _secret_files(secret: str, path: str) -> dict[str, Any]:
    return {**_named("secretName", secret), "mountPath": path, "optional": False}


def _volume(claim: str, path: str) -> dict[str, Any]:
    return {"constant": claim, "pvcNameParameter": _constant(claim), "mountPath": path}


def _named(key: str, value: str) -> dict[str, Any]:
    """A name in both fields: older servers read the first, newer ones the second."""
    return {key: value, f"{key}Parameter": _constant(value)}


def _constant(value: str) -> dict[str, Any]:
    return {"runtimeValue": {"constant": value}}


def _seconds(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]]

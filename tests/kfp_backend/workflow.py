"""Runs the Argo workflows that KFP's compiler writes, one container after the other: DAGs, conditions, loops, retries.

It has the meaning of Argo's documentation for the fields that KFP uses, and raises NotImplementedError for others.
"""

import copy
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

TAG = re.compile(
    r"\{\{(workflow\.(?:name|creationTimestamp|parameters\.[^{}]+)|inputs\.parameters\.[^{}]+|tasks\.[^{}]+|outputs\.parameters\.[^{}]+"
    r"|item|retries)\}\}"
)
KNOWN_TASK_FIELDS = {"name", "template", "arguments", "depends", "when", "withSequence", "hooks"}


@dataclass
class Container:
    """One container to run: its spec with all values, its pod, and the names of the values that it writes."""

    spec: dict[str, Any]
    pod: dict[str, Any]
    outputs: list[dict[str, Any]] = field(default_factory=list)


# Runs a container; returns its exit code and the values it wrote, by name.
Run = Callable[[Container], tuple[int, dict[str, str]]]


class WorkflowRunner:
    """Runs one workflow.

    Attributes:
        nodes: What happened, as Argo records it in the status of a workflow.
    """

    def __init__(self, workflow: Mapping[str, Any], run: Run, report: Callable[[dict[str, Any]], None]) -> None:
        self._workflow = copy.deepcopy(dict(workflow))
        self._spec = self._workflow["spec"]
        self._templates = {template["name"]: template for template in self._spec["templates"]}
        self._run, self._report = run, report
        metadata = self._workflow["metadata"]
        self._values = {f"workflow.{key}": metadata.get(key, "") for key in ("name", "creationTimestamp")}
        for parameter in self._spec["arguments"].get("parameters", []):
            self._values[f"workflow.parameters.{parameter['name']}"] = parameter["value"]
        self.nodes: dict[str, dict[str, Any]] = {}
        self._started = _now()

    def run(self) -> str:
        """Run the workflow and return its phase, ``Succeeded`` or ``Failed``."""
        self._report(self._status("Running"))
        phase, _ = self._template(self._spec["entrypoint"], {}, "root")
        self._report(self._status(phase))
        return phase

    def _status(self, phase: str) -> dict[str, Any]:
        status = {"phase": phase, "startedAt": self._started, "nodes": self.nodes}
        if phase != "Running":
            status |= {"finishedAt": _now()}
        labels = {**self._workflow["metadata"].get("labels", {}), "workflows.argoproj.io/phase": phase}
        if phase != "Running":
            labels["workflows.argoproj.io/completed"] = "true"
        return {**self._workflow, "metadata": {**self._workflow["metadata"], "labels": labels}, "status": status}

    def _template(self, name: str, arguments: Mapping[str, str], shown: str) -> tuple[str, dict[str, str]]:
        """Run a template and return its phase and its outputs."""
        template = self._templates[name]
        inputs = {}
        for parameter in template.get("inputs", {}).get("parameters", []):
            value = arguments.get(parameter["name"], parameter.get("default"))
            if value is None:
                raise ValueError(f"template {name} needs the input {parameter['name']}")
            inputs[f"inputs.parameters.{parameter['name']}"] = value
        if "dag" in template:
            return self._dag(template["dag"], inputs, shown)
        return self._pod(template, inputs, shown)

    def _dag(self, dag: Mapping[str, Any], inputs: dict[str, str], shown: str) -> tuple[str, dict[str, str]]:
        phases: dict[str, str] = {}
        values = dict(inputs)
        waiting = list(dag["tasks"])
        while waiting:
            task = next((task for task in waiting if _needed(task) <= phases.keys()), None)
            if task is None:
                raise ValueError(f"tasks that wait for each other: {[task['name'] for task in waiting]}")
            waiting.remove(task)
            if unknown := task.keys() - KNOWN_TASK_FIELDS:
                raise NotImplementedError(f"{task['name']}: {unknown}")
            phases[task["name"]], outputs = self._task(task, phases, values)
            values |= {f"tasks.{task['name']}.outputs.parameters.{key}": value for key, value in outputs.items()}
        failed = {"Failed", "Omitted"} & set(phases.values())
        return ("Failed" if failed else "Succeeded"), {}

    def _task(
        self, task: Mapping[str, Any], phases: Mapping[str, str], values: Mapping[str, str]
    ) -> tuple[str, dict[str, str]]:
        node = self._node(task["name"], task["template"])
        if any(phases[name] not in ("Succeeded", "Skipped") for name in _needed(task)):
            phase, outputs = "Omitted", {}
        elif not _holds(self._fill(task.get("when", ""), values)):
            phase, outputs = "Skipped", {}
        else:
            node["phase"] = "Running"
            self._report(self._status("Running"))
            phase, outputs = self._iterations(task, values)
        node |= {"phase": phase, "finishedAt": _now()}
        self._report(self._status("Running"))
        return phase, outputs

    def _iterations(self, task: Mapping[str, Any], values: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        if "withSequence" not in task:
            return self._template(task["template"], self._arguments(task, values), task["name"])
        phases = set()
        for index in range(int(self._fill(str(task["withSequence"]["count"]), values))):
            arguments = self._arguments(task, {**values, "item": str(index)})
            phases.add(self._template(task["template"], arguments, f"{task['name']}({index})")[0])
        return ("Failed" if "Failed" in phases else "Succeeded"), {}

    def _arguments(self, task: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, str]:
        parameters = task.get("arguments", {}).get("parameters", [])
        return {parameter["name"]: self._fill(str(parameter["value"]), values) for parameter in parameters}

    def _pod(self, template: Mapping[str, Any], inputs: dict[str, str], shown: str) -> tuple[str, dict[str, str]]:
        limit = int(self._fill(str(template.get("retryStrategy", {}).get("limit", 0)), inputs))
        for attempt in range(limit + 1):
            code, outputs = self._attempt(template, {**inputs, "retries": str(attempt)}, shown)
            if code == 0:
                return "Succeeded", outputs
        return "Failed", {}

    def _attempt(
        self, template: Mapping[str, Any], values: Mapping[str, str], shown: str
    ) -> tuple[int, dict[str, str]]:
        container = self._fill_all(template["container"], values)
        patch = json.loads(self._fill(template.get("podSpecPatch", "{}"), values) or "{}")
        for change in patch.pop("containers", []):
            env = container.get("env", []) + change.pop("env", [])
            mounts = container.get("volumeMounts", []) + change.pop("volumeMounts", [])
            container |= {**change, "env": env, "volumeMounts": mounts}
        names = [f"{self._workflow['metadata']['name']}-{uuid.uuid4().hex[:8]}", str(uuid.uuid4())]
        pod = {**patch, "metadata": dict(zip(("name", "uid"), names, strict=True))}
        outputs = template.get("outputs", {}).get("parameters", [])
        node = self._node(shown, template["name"], "Pod")
        code, written = self._run(Container(container, pod, outputs))
        node |= {"phase": "Failed" if code else "Succeeded", "finishedAt": _now()}
        if code:
            node["message"] = f"main: Error (exit code {code})"
        return code, written

    def _node(self, shown: str, template: str, type: str = "DAG") -> dict[str, Any]:
        id = f"{self._workflow['metadata']['name']}-{len(self.nodes)}"
        self.nodes[id] = {
            **{"id": id, "name": f"{id}.{shown}", "displayName": shown, "type": type, "templateName": template},
            **{"phase": "Pending", "startedAt": _now()},
        }
        return self.nodes[id]

    def _fill(self, text: str, values: Mapping[str, str]) -> str:
        """Replace the tags of Argo in a text once: values may contain KFP's own, such as ``{{$}}``."""
        all_values = {**self._values, **values}
        return TAG.sub(lambda tag: all_values.get(tag[1], tag[0]), text)

    def _fill_all(self, part: Any, values: Mapping[str, str]) -> Any:
        if isinstance(part, str):
            return self._fill(part, values)
        if isinstance(part, list):
            return [self._fill_all(item, values) for item in part]
        if isinstance(part, dict):
            return {key: self._fill_all(item, values) for key, item in part.items()}
        return part


def _needed(task: Mapping[str, Any]) -> set[str]:
    """Return the tasks that another one waits for: KFP writes ``a.Succeeded && b.Succeeded``."""
    terms = [term.strip() for term in task.get("depends", "").split("&&")]
    if any(term and not term.endswith(".Succeeded") for term in terms):
        raise NotImplementedError(f"depends: {task['depends']}")
    return {term.removesuffix(".Succeeded") for term in terms if term}


def _holds(condition: str) -> bool:
    if not condition:
        return True
    left, _, right = condition.partition(" != ")
    return left.strip() != right.strip()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

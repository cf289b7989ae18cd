"""Report pods of a run that do not start, because the cluster has no image, node, quota or volume for them.

Kubeflow's API has the state of each step, but not the reason why its pod waits; Kubernetes waits without a limit.
"""

import logging
from time import monotonic
from typing import Any

from tfopt.errors import ComponentError

WARN_AFTER = 120.0  # seconds; a node pulls a large image in less
_OF_KFP = ("root", "executor")  # groups of tasks and Argo's name for a step's pod

log = logging.getLogger(__name__)


class PendingPods:
    """The pods of one run that have not started, and since when."""

    def __init__(self, run_id: str, namespace: str, limit: float) -> None:
        """Take the run, the namespace of its pods, and the seconds after which `check` raises."""
        self._run_id, self._limit = run_id, limit
        self._selector = f"--namespace {namespace} --selector pipeline/runid={run_id}"
        self._since: dict[str, float] = {}
        self._records: set[tuple[str, str]] = set()
        self._is_reported = False

    def check(self, run: Any) -> None:
        """Log a warning for a pod, or a whole run, that has not started for two minutes.

        Raises:
            ComponentError: If it has not started within the limit.
        """
        tasks = (run.run_details.task_details if run.run_details else None) or []
        now = monotonic()
        # Argo compresses its record of a large run, which KFP then does not read: tasks stay PENDING. Records of KFP's
        # driver and launcher, which have no name, still change; while they do, pods start.
        records = {(str(task.task_id), str(task.end_time)) for task in tasks if not task.display_name}
        if records != self._records:
            self._records, self._since = records, {}
        waiting = [str(task.task_id) for task in tasks if _is_pending(task)]
        # KFP (2.16.1) deletes the workflow of a run that is reported to it before it has stored the run.
        if not tasks and run.state in (None, "PENDING"):
            waiting = [self._run_id]
        self._since = {name: self._since.get(name, now) for name in waiting}
        waited = now - min(self._since.values(), default=now)
        if waited > self._limit:
            raise self._error(tasks, waited)
        if waited > WARN_AFTER and not self._is_reported:
            log.warning("%s", self._error(tasks, waited))
            self._is_reported = True

    def states_of_pods(self) -> str:
        """Return the command that prints Kubernetes' reason for each pod that failed, such as its limit of memory."""
        fields = "{range .items[*].status.nodes.*}{.displayName}{': '}{.phase}{' '}{.message}{'\\n'}{end}"
        get = f"kubectl get workflows {self._selector} --output"
        packed = f"{get} jsonpath='{{.items[*].status.compressedNodes}}' | base64 --decode | gunzip 2> /dev/null"
        readable = 'grep --only-matching --extended-regexp \'"(displayName|phase|message)":"[^"]*"\''
        return f'the reason of each pod: {get} jsonpath="{fields}"; {packed} | {readable}'

    def _error(self, tasks: list[Any], waited: float) -> ComponentError:
        if not tasks:
            return ComponentError(
                f"run {self._run_id}: no step of it has started for {waited:.0f} s",
                "a workflow of the run, which Argo's controller starts",
                f"`kubectl describe workflows {self._selector}` shows why it waits; "
                "if there is none, Kubeflow has lost the run: start it again",
            )
        active = [task for task in tasks if task.state in ("PENDING", "RUNNING")]
        all_names = {str(task.display_name).removesuffix("-driver") for task in active}
        names = sorted(name for name in all_names if not name.startswith(_OF_KFP))
        received = f"run {self._run_id}: a pod of {' or '.join(names) or 'a step'} has not started for {waited:.0f} s"
        expected = "a node, an image, quota and volumes for each pod"
        fix = (
            f"`kubectl describe pods {self._selector}` shows what is missing, or "
            f"`kubectl describe workflows {self._selector}` if there is no pod; the run continues to wait: stop it "
            f"with `kfp run terminate {self._run_id}`"
        )
        return ComponentError(received, expected, fix)


def _is_pending(task: Any) -> bool:
    return bool(task.state == "PENDING")

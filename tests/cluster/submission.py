"""A process of ``tfopt submit --wait``, and the pods and the records of its run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import kfp

from tests.cluster.images import KINDS, REPOSITORY
from tests.cluster.kubeflow import NAMESPACE, address_of, kubectl
from tests.kfp_backend.runs import metadata_client, read_tasks, write_pipeline

IMAGE = KINDS["tf"].replace("tfopt-tf", "tfopt-{kind}")
SMALL = ("cpu=500m", "memory=1Gi", "service_account=tfopt-runner", "retries=0")


class Run:
    """The pods and the records of a run."""

    def __init__(self, run: str) -> None:
        """Take its id."""
        self.run = run

    def state(self) -> str:
        """Return the state that KFP's API server reports."""
        return str(kfp.Client(f"http://{address_of('ml-pipeline', 8888)}").get_run(self.run).state)

    def terminate(self) -> None:
        """Cancel it."""
        kfp.Client(f"http://{address_of('ml-pipeline', 8888)}").terminate_run(self.run)

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Return what ML Metadata has of each task."""
        host, port = address_of("metadata-grpc-service", 8080).split(":")
        return read_tasks(metadata_client(host, int(port)), self.run)

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of the steps, without KFP's drivers."""
        return [pod for pod in self.all_pods() if any(each["image"] == KINDS["tf"] for each in containers(pod))]

    def all_pods(self) -> list[dict[str, Any]]:
        """Return the pods of the run."""
        return self._objects("pods")

    def running_pods(self) -> list[str]:
        """Return the names of the steps' pods whose component has been started."""
        return [pod["metadata"]["name"] for pod in self.pods() if pod["status"]["phase"] == "Running"]

    def workflow(self) -> dict[str, Any]:
        """Return Argo's workflow."""
        (item,) = self._objects("workflows")
        return item

    def _objects(self, kind: str) -> list[dict[str, Any]]:
        selector = ["--namespace", NAMESPACE, "--selector", f"pipeline/runid={self.run}", "--output", "json"]
        items: list[dict[str, Any]] = json.loads(kubectl("get", kind, *selector))["items"]
        return items


class Submission(Run):
    """A run that is submitted and watched.

    Attributes:
        run: Its id.
        process: The command.
    """

    def __init__(
        self,
        folder: Path,
        pipeline: str,
        *words: str,
        options: tuple[str, ...] = (),
        image: str = IMAGE,
        code: Path = REPOSITORY,
    ) -> None:
        """Start the command, and wait until it prints the id of the run.

        Args:
            folder: For the file of the pipeline.
            pipeline: Its source, or the name of a shipped one.
            words: Arguments of the command.
            options: Values of ``--kfp-option``, after those that make the pods small.
            image: Of the steps.
            code: The folder with the packages of the command.
        """
        named = pipeline if pipeline.isidentifier() else write_pipeline(folder, pipeline)
        command = [sys.executable, "-m", "tfopt.cli.main", "submit", named, "--wait"]
        command += ["--endpoint", f"http://{address_of('ml-pipeline', 8888)}", "--image", image, *words]
        command += [word for option in (*SMALL, *options) for word in ("--kfp-option", option)]
        self.log = folder / "submit.log"
        environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(code)}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=code
            )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line.startswith("run: "), self.log.read_text()
        super().__init__(line.strip().rpartition("/")[2])

    def wait(self, seconds: float = 600) -> int:
        """Return the exit code of the command."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGINT)
            raise

    def reasons(self) -> str:
        """Return what the command prints that the user gets after a failure."""
        (line,) = [line for line in self.errors().splitlines() if line.startswith("the reason of each pod: ")]
        command = line.partition(": ")[2]
        return subprocess.run(command, shell=True, check=False, capture_output=True, text=True).stdout

    def errors(self) -> str:
        """Return what the command printed to standard error."""
        return self.log.read_text()


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of a pod."""
    listed: list[dict[str, Any]] = pod["spec"]["containers"]
    return listed

"""Run a compiled pipeline with KFP's local engine, each step in its own container."""

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kfp.local
import yaml
from docker.types import Mount
from kfp import components

from tfopt.artifacts import Artifact
from tfopt.dag.dag import Dag


def run(pipeline: Path, values: Mapping[str, Any], root: Path, *, shared: Mapping[Path, bool]) -> str:
    """Run a compiled pipeline to its end and return the output of the engine and the containers.

    Args:
        pipeline: The compiled YAML.
        values: The parameters.
        root: The folder of the artifacts; all users can write to it, because the steps' user has no rights.
        shared: Other folders that the containers mount, and whether they can write to them.

    Raises:
        RuntimeError: If a step fails. Its second argument is the output.
    """
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    mounts = [
        Mount(str(folder), str(folder), "bind", read_only=not is_writable) for folder, is_writable in shared.items()
    ]
    limits = {"read_only": True, "tmpfs": {"/tmp": ""}, "user": "10001", "network_mode": "none", "cap_drop": ["ALL"]}
    kfp.local.init(kfp.local.DockerRunner(mounts=mounts, **limits), pipeline_root=str(root))
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            components.load_component_from_file(str(pipeline))(**values)
        except RuntimeError as error:
            raise RuntimeError(str(error), output.getvalue()) from error
    return output.getvalue()


def step_outputs(dag: Dag, pipeline: Path, root: Path) -> dict[str, dict[str, Artifact]]:
    """Return the output artifacts of each step, with the metadata from its ExecutorOutput."""
    spec = next(yaml.safe_load_all(pipeline.read_text()))
    folder = next(root.iterdir())
    outputs: dict[str, dict[str, Artifact]] = {}
    for task in spec["root"]["dag"]["tasks"].values():
        if (step := dag.steps.get(task["taskInfo"]["name"])) is None:
            continue  # an importer
        step_folder = folder / task["componentRef"]["name"].removeprefix("comp-")
        written = json.loads((step_folder / "executor_output.json").read_text())["artifacts"]
        outputs[step.id] = {
            name: port.type(str(step_folder / name), written[name]["artifacts"][0]["metadata"])
            for name, port in step.component.outputs.items()
        }
    return outputs

"""Check what Vertex AI Pipelines, which runs KFP's pipelines on Google Cloud without Kubernetes, cannot run.

References: Google Cloud, "Migrate from Kubeflow Pipelines to Vertex AI Pipelines"; the same, "Specify the machine
configuration for a pipeline step"; `aiplatform.PipelineJob`.
"""

import re
from collections.abc import Mapping
from typing import Any

from tfopt.errors import ComponentError
from tfopt.kfp.pod_options import Options

STORE = "gs://"
# Options that are in the pipeline itself; the others say something about a pod.
KEYS = ("cpu", "memory", "gpu", "gpu_type", "image", "retries", "wait", "env", "reuse", "root")
ACCELERATOR = r"(?:NVIDIA|TPU)_[A-Z0-9_]+"
LARGEST = {"cpu": "96", "memory": "624G"}  # of a step
NAME = r"[a-z][-a-z0-9]{0,127}"  # of `aiplatform.PipelineJob`


def check_pipeline(
    name: str, placed: Mapping[str, Mapping[str, Any]], options: Options, addresses: Mapping[str, Any]
) -> None:
    """Raise ComponentError for a name, an option or image of a step, or an address that Vertex AI cannot use."""
    if not re.fullmatch(NAME, name):
        received, expected = f"pipeline {name} for vertex", "a name that begins with a letter"
        raise ComponentError(received, expected, "rename the pipeline's function and file")
    for text in options.others(KEYS):
        expected = f"options without Kubernetes: {', '.join(KEYS)}"
        fix = "leave it out; pass the service account to aiplatform.PipelineJob.submit"
        raise ComponentError(f"--kfp-option {text} for vertex", expected, fix)
    places = {"--kfp-option root": options.root, **{f"--set {key}": text for key, text in addresses.items()}}
    for option, address in places.items():
        if address and not str(address).startswith(STORE):
            raise ComponentError(f"{option}={address} for vertex", f"an address {STORE}…", "copy it to Cloud Storage")
    for step, values in placed.items():
        _check_step(step, values)


def _check_step(step: str, values: Mapping[str, Any]) -> None:
    if "/" not in values["image"]:
        received = f"{step} has the image {values['image']}"
        fix = "pass --image europe-west1-docker.pkg.dev/my-project/models/tfopt-{kind}:0.2.0"
        raise ComponentError(received, "an image in a registry that Vertex AI can read", fix)
    from kubernetes.utils import parse_quantity

    for key, largest in LARGEST.items():
        if parse_quantity(values[key]) > parse_quantity(largest):
            received, fix = f"{step} has {key}={values[key]}", f"pass --kfp-option {step}:{key}={largest}, or less"
            raise ComponentError(received, f"at most {largest}: Vertex AI has no larger machine", fix)
    if values["gpu"] != "0" and not re.fullmatch(ACCELERATOR, values.get("gpu_type", "")):
        received = f"{step} has a GPU of the type {values.get('gpu_type', 'nvidia.com/gpu')}"
        expected = "a type of Vertex AI, such as NVIDIA_L4 or NVIDIA_TESLA_T4"
        raise ComponentError(received, expected, f"pass --kfp-option {step}:gpu_type=NVIDIA_L4")

"""Write a KServe InferenceService for the destination, with the serving runtime of format and layout.

Runtimes and their model formats are those of KServe 0.21's ClusterServingRuntimes. All of them read the folder that
contains numbered versions; Triton reads the folder above it, its model repository.
"""

import re
from dataclasses import replace

import yaml

from tfopt.components.push_model.registrations.kind import Kind, PushedVersion
from tfopt.errors import ComponentError
from tfopt.storage import remote_files
from tfopt.value_types import JsonObject

# Where KServe's storage initializer copies models from.
SCHEMES = ("s3", "gs", "pvc", "https", "http", "hdfs", "webhdfs", "oci", "hf")
TRITON = ("kserve-tritonserver", "triton", "2", "v2")
# Runtime, model format, its version, and protocol, by layout and format.
RUNTIMES = {
    ("tf_serving", "saved_model"): ("kserve-tensorflow-serving", "tensorflow", "2", "v1"),
    ("tf_serving", "tflite"): ("kserve-tensorflow-serving", "tensorflow", "2", "v1"),
    ("plain", "openvino"): ("kserve-openvino", "openvino", "10", "v2"),
    ("plain", "onnx"): ("kserve-openvino", "onnx", "1", "v2"),
}


def check_address(address: str) -> None:
    """Raise ComponentError if an address is not a YAML file."""
    if not address.endswith((".yaml", ".yml")):
        received = f"'kserve={address}'"
        raise ComponentError(received, "the YAML file to write", "pass kserve=FILE.yaml, a path or an address")


def _is_readable(destination: str) -> bool:
    return destination.partition("://")[0] in SCHEMES


def check_version(version: PushedVersion) -> None:
    """Raise ComponentError if KServe cannot read the destination, or has no runtime for the format."""
    if not _is_readable(version.destination):
        received = f"register=kserve: the destination {version.destination}"
        fix = "push to one, or pass the destination's address in the cluster: --destination-uri pvc://CLAIM/FOLDER"
        raise ComponentError(received, "an address that KServe reads models from, such as s3://, gs:// or pvc://", fix)
    if version.layout != "triton" and (version.layout, version.format) not in RUNTIMES:
        supported = ", ".join(f"{format} as {layout}" for layout, format in RUNTIMES)
        expected = f"a format that a serving runtime of KServe reads: {supported}, or the layout triton"
        fix = "pass layout='tf_serving' or 'triton' to select_model and push_model, or register elsewhere"
        raise ComponentError(f"register=kserve: format {version.format} in the layout {version.layout}", expected, fix)


def register(address: str, version: PushedVersion, percent: int | None = None) -> str:
    """Write the file and return where it is."""
    text = yaml.safe_dump(inference_service(version, percent), sort_keys=False, allow_unicode=True)
    remote_files.write_file(address, text.encode())
    return address


def update(address: str, version: PushedVersion, served: PushedVersion | None, withdrawn: str | None) -> str:
    """Write the file for the newest version, or remove it if there is none that KServe can serve."""
    if served is None:
        remote_files.remove(address)
        return f"removed {address}"
    return _write(address, version, served, None)


def split(address: str, version: PushedVersion, shown: PushedVersion, percent: int) -> str:
    """Write the file for a version with ``canaryTrafficPercent``: what was rolled out before gets the other requests.

    With 0 percent, after a canary was withdrawn, it is the served version: pods of its new revision start, and those of
    its old one get all requests. Without it, those of the canary would get all until the new ones are ready.
    """
    return _write(address, version, shown, percent)


def _write(address: str, version: PushedVersion, shown: PushedVersion, percent: int | None) -> str:
    if not _is_readable(shown.destination):  # it was pushed without KServe
        shown = replace(shown, name=version.name, destination=version.destination)
    try:
        check_version(shown)
    except ComponentError as error:
        remote_files.remove(address)
        return f"removed {address}: {error.received}"
    share = "" if percent is None else f", with {percent}% of the requests"
    return f"version {shown.number} in {register(address, shown, percent)}{share}"


def inference_service(version: PushedVersion, percent: int | None = None) -> JsonObject:
    """Return the manifest. Its annotations change with each version, so that applying it starts new pods."""
    runtime, format, format_version, protocol = RUNTIMES.get((version.layout, version.format), TRITON)
    folder = version.destination.rstrip("/")
    model: JsonObject = {
        "modelFormat": {"name": format, "version": format_version},
        "runtime": runtime,
        "protocolVersion": protocol,
        # With the slash at the end, an object store does not list models/digits-2 for models/digits.
        "storageUri": f"{folder.rpartition('/')[0] if runtime == TRITON[0] else folder}/",
    }
    if (version.layout, version.format) == ("tf_serving", "tflite"):
        model["args"] = ["--prefer_tflite_model=true"]
    if version.environment:
        model["env"] = [{"name": name, "value": value} for name, value in sorted(version.environment.items())]
    annotations = {"tfopt/version": str(version.number), "tfopt/digest": version.digest}
    canary = {} if percent is None else {"canaryTrafficPercent": percent}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": object_name(version.name), "annotations": {**annotations, "tfopt/reason": version.reason}},
        "spec": {"predictor": {**canary, "annotations": annotations, "model": model}},
    }


def object_name(name: str) -> str:
    """Return a name that Kubernetes accepts for a service (DNS label).

    >>> object_name("My Digits_v2"), object_name("42")
    ('my-digits-v2', 'm-42')
    """
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
    return label if label[:1].isalpha() else f"m-{label}".rstrip("-")


KIND = Kind(register, check_address=check_address, check_version=check_version, update=update, split=split)

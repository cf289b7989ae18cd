from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between, Reads
from tfopt.components.push_model.registrations.kind import parse_name, parse_targets
from tfopt.declaration.parameters import Location
from tfopt.errors import ComponentError
from tfopt.model_store.warm_start import Destination
from tfopt.model_store.withdrawals import ALL


def parse_share(text: str) -> int:
    """Return a share of the requests in percent; raise ComponentError for another text.

    >>> parse_share("10%")
    10
    """
    number = text.strip().removesuffix("%").strip()
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:9]) <= ALL):
        raise ComponentError(f"{text!r}", "a whole percentage from 1% to 100%", "write for example 10%")
    return int(number)


def parse_canary(text: str) -> int:
    """Return the share of a canary in percent; raise ComponentError for another text.

    >>> parse_canary("10%")
    10
    """
    share = parse_share(text)
    if share == ALL:
        raise ComponentError(f"canary={text!r}", "less than 100%", "leave canary out to serve it to all")
    return share


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """Destination and content of a pushed version.

    Attributes:
        destination: The folder, or address in an object store, that receives numbered versions; created if it does not
            exist.
        layout: With ``auto`` each format gets the layout of its usual server: a SavedModel and LiteRT ``tf_serving``, a
            TensorRT engine ``triton``, the others ``plain``, which OpenVINO Model Server and, without a configuration,
            Triton load too. With ``tf_serving`` a version folder is what TensorFlow Serving loads: a SavedModel, or
            ``model.tflite``. With ``triton`` the destination is a model in a Triton repository: a version folder
            contains ``model.savedmodel/``, ``model.onnx``, ``model.xml`` with ``model.bin``, or ``model.plan``, and
            ``config.pbtxt`` next to the versions is generated from the signature unless the user wrote one; the server
            needs the backend of the format (newer images of Triton lack TensorFlow's). With ``plain`` a version folder
            contains ``saved_model/`` or the model's file, and the model card; in a folder the link ``latest`` points to
            the newest version. Next to ``model.tflite`` are ``metadata.json`` (names, types, shapes, scales) and, if
            the examples name their classes, ``labels.txt``.
        keep: Number of versions that remain after a push, the newest; all by default, and with 0.
        canary: Share of the requests that a new version is for, such as "10%", until it is promoted or withdrawn
            (`tfopt promote`, `tfopt withdraw`). The version is put into ``canary/NAME`` of the destination, where NAME
            is its last part. All other requests get the served version, and no other version is pushed meanwhile.
            ``kserve`` in ``register`` writes the share; docs/serving.md has other servers. The first version of a
            destination is no canary.
        signing_key: A file with a private key (PEM, an elliptic curve), for an OpenSSF signature next to the version,
            ``versions/NUMBER.sig``; TFOPT_SIGNING_PASSWORD has its password. The manifest ``versions/NUMBER.sha256`` is
            written without a key, too. `validate_serving` checks both (``verify``).
        warm_up_requests: The largest number of recorded requests, of one example each, if there are examples.
    """

    destination: Destination
    layout: Literal["auto", "tf_serving", "triton", "plain"] = "auto"
    keep: Annotated[int, Between(0)] | None = None
    canary: Annotated[str, Reads(parse_canary, "10%")] | None = None
    signing_key: Annotated[str, Location()] | None = None
    warm_up_requests: Annotated[int, Between(0, 1000)] = 16


@dataclass(frozen=True, kw_only=True)
class RegistrationSettings:
    """Targets of the registration of a pushed version, and the name it gets there.

    Attributes:
        register: Systems that are informed of a pushed version, each as KIND=ADDRESS (docs/serving.md):
            ``kserve=FILE.yaml`` writes an InferenceService, ``model-registry=http://HOST:PORT`` registers the version
            with Kubeflow's Model Registry, ``mlflow=http://HOST:PORT`` records a run with metrics, tags and files, and
            ``tensorboard=FOLDER`` writes the metrics as scalars. If one fails, the version stays pushed, the step
            fails, and a rerun registers it. Nothing is registered if nothing is pushed.
        model_name: The name to register under; by default the last part of the destination.
        destination_uri: The address under which the destination is read elsewhere, such as ``pvc://CLAIM/FOLDER`` for
            a volume that is mounted here; by default the destination itself.
    """

    register: Annotated[tuple[str, ...], Reads(parse_targets, ("tensorboard=boards",))] = ()
    model_name: Annotated[str, Reads(parse_name, "digits")] | None = None
    destination_uri: str | None = None

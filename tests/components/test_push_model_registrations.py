"""Test `push_model --register`: what is registered and when, failures, KServe manifests and TensorBoard scalars."""

import importlib.util
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.components.pushes import Push, version
from tests.distributions import install
from tfopt.artifacts import Decision
from tfopt.artifacts.formats import FORMATS
from tfopt.component import find
from tfopt.components.push_model.registration import pushed_metrics
from tfopt.components.push_model.registrations import kserve
from tfopt.components.push_model.registrations.kind import KINDS, parse_targets, register_with
from tfopt.dag.tracing import load
from tfopt.errors import ComponentError, MachineError
from tfopt.kfp.compiler import compile_pipeline
from tfopt.reports.pushed_report import PushedReport
from tfopt.serving.layouts import supports_format
from tfopt.storage import remote_files

CLUSTER = {"destination_uri": "pvc://models/digits"}


@pytest.fixture
def manifests():
    """Import the generated models of the package kserve, without importing its server."""
    folder = importlib.util.find_spec("kserve").submodule_search_locations
    package = sys.modules["kserve"] = types.ModuleType("kserve")
    package.__path__ = list(folder)
    yield importlib.import_module("kserve.models")
    for name in [name for name in sys.modules if name.partition(".")[0] == "kserve"]:
        del sys.modules[name]


def accepted(models, manifest: dict) -> dict:
    """Return what the published model of an InferenceService contains of a manifest: only declared fields."""
    from kubernetes import client

    api = client.ApiClient()

    def read(value, kind: str):
        if kind.startswith("list["):
            return [read(item, kind[5:-1]) for item in value]
        if kind.startswith("dict("):
            return {key: read(item, kind[5:-1].split(", ")[1]) for key, item in value.items()}
        declared = getattr(models, kind, None) or getattr(client, kind, None)
        if declared is None:
            assert type(value).__name__ == kind, (value, kind)
            return value
        names = {json_name: name for name, json_name in declared.attribute_map.items()}
        fields = {names[key]: read(item, declared.openapi_types[names[key]]) for key, item in value.items()}
        return declared(**fields)

    content = api.sanitize_for_serialization(read(manifest, "V1beta1InferenceService"))
    assert content["spec"]["predictor"]["model"].pop("name") == ""  # the class's default
    return content


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read a run with TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder))
    reader.Reload()
    return {
        tag: [(event.step, event.tensor_proto.float_val[0]) for event in reader.Tensors(tag)]
        for tag in reader.Tags()["tensors"]
    }


def test_without_targets_nothing_is_registered_and_the_destination_may_have_any_name(push, tmp_path):
    assert "registrations" not in push(destination=str(tmp_path / "served, here"))


def test_a_destination_whose_name_is_no_name_to_register_needs_one(push, tmp_path):
    destination, boards = str(tmp_path / "served, here"), f"tensorboard={tmp_path / 'boards'}"
    with pytest.raises(ComponentError, match="pass such a name as model_name"):
        push(boards, destination=destination)
    assert push(boards, destination=destination, model_name="digits")["registrations"]


def test_a_push_writes_an_inference_service_and_report_and_log_name_it(push, manifests, tmp_path, caplog):
    file = tmp_path / "deploy" / "digits.yaml"
    with caplog.at_level("INFO"):
        report = push(f"kserve={file}", **CLUSTER)
    assert f"registered with kserve={file}: {file}" in caplog.text
    assert report["registrations"] == {f"kserve={file}": str(file)}
    manifest = yaml.safe_load(file.read_text())
    assert accepted(manifests, manifest) == manifest
    assert manifest["metadata"]["name"] == "digits"
    predictor = manifest["spec"]["predictor"]
    assert predictor["annotations"] == {"tfopt/version": "1", "tfopt/digest": report["digest"]}
    assert predictor["model"] == {
        "modelFormat": {"name": "tensorflow", "version": "2"},
        "runtime": "kserve-tensorflow-serving",
        "protocolVersion": "v1",
        "storageUri": "pvc://models/digits/",
        "args": ["--prefer_tflite_model=true"],
    }


def test_a_field_that_kserve_does_not_declare_is_detected(manifests):
    manifest = kserve.inference_service(version())
    manifest["spec"]["predictor"]["model"]["storageURI"] = "s3://bucket"
    with pytest.raises(KeyError, match="storageURI"):
        accepted(manifests, manifest)


@pytest.mark.parametrize(
    ("format", "layout", "runtime", "uri"),
    [
        ("saved_model", "tf_serving", "kserve-tensorflow-serving", "s3://bucket/models/digits/"),
        ("onnx", "plain", "kserve-openvino", "s3://bucket/models/digits/"),
        ("openvino", "plain", "kserve-openvino", "s3://bucket/models/digits/"),
        ("onnx", "triton", "kserve-tritonserver", "s3://bucket/models/"),
        ("tensorrt", "triton", "kserve-tritonserver", "s3://bucket/models/"),
    ],
)
def test_the_runtime_follows_from_format_and_layout(format, layout, runtime, uri, manifests):
    pushed = version(format=format, layout=layout, environment={"TF_X": "1"})
    kserve.check_version(pushed)
    manifest = kserve.inference_service(pushed)
    assert accepted(manifests, manifest) == manifest
    model = manifest["spec"]["predictor"]["model"]
    assert (model["runtime"], model["storageUri"]) == (runtime, uri)
    assert model["env"] == [{"name": "TF_X", "value": "1"}]
    assert "args" not in model


def test_every_format_with_a_runtime_fits_its_layout():
    assert all(format in FORMATS and supports_format(layout, format) for layout, format in kserve.RUNTIMES)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "the destination /"),
        ({**CLUSTER, "layout": "plain"}, "format tflite in the layout plain"),
    ],
)
def test_what_kserve_cannot_serve_is_refused_before_the_push(push, tmp_path, parameters, message):
    with pytest.raises(ComponentError, match=message):
        push(f"kserve={tmp_path / 'digits.yaml'}", **parameters)
    assert not push.destination.exists()


def test_metrics_are_scalars_with_the_version_as_step(push, tmp_path):
    boards = tmp_path / "boards"
    report = push(f"tensorboard={boards}")
    assert report["registrations"] == {f"tensorboard={boards}": str(boards / "digits")}
    assert len(push.metrics) > 5
    for run, metrics in (("pushed", push.metrics), ("baseline", push.baseline_metrics)):
        read = scalars(boards / "digits" / run)
        assert set(read) == set(metrics)
        assert all(points == [(1, pytest.approx(metrics[tag]))] for tag, points in read.items())


def test_each_version_is_a_step_and_a_second_registration_replaces_the_first(tmp_path):
    (target,) = parse_targets([f"tensorboard={tmp_path}"])
    for number, accuracy in ((1, 0.5), (2, 0.75), (10, 0.875), (10, 0.25)):
        register_with(target, version(number=number, metrics={"accuracy": accuracy}))
    assert scalars(tmp_path / "digits" / "pushed") == {"accuracy": [(1, 0.5), (2, 0.75), (10, 0.25)]}


def test_scalars_and_manifests_are_written_to_an_object_store(bucket):
    """Register in this process: the variables of the bucket would start another one with TensorFlow."""
    pushed = version(number=1, destination=f"{bucket}/digits", metrics={"accuracy": 0.5})
    for target in parse_targets([f"kserve={bucket}/digits.yaml", f"tensorboard={bucket}/boards"]):
        register_with(target, pushed)
    manifest = yaml.safe_load(remote_files.read_file(f"{bucket}/digits.yaml"))
    assert manifest["spec"]["predictor"]["model"]["storageUri"] == f"{bucket}/digits/"
    assert remote_files.list_names(f"{bucket}/boards/digits/pushed") == ["events.out.tfevents.0000000001.tfopt"]


def test_tensorboard_without_a_decision_is_refused_before_the_push(push, tmp_path):
    with pytest.raises(ComponentError, match="without a decision"):
        push(f"tensorboard={tmp_path / 'boards'}", decision=None)
    assert not push.destination.exists()


def test_a_decision_that_is_not_pushed_registers_nothing(tmp_path):
    refused = Push(tmp_path, goals=["accuracy threshold 1.0"])
    report = refused(f"kserve={tmp_path / 'digits.yaml'}", f"tensorboard={tmp_path / 'boards'}", **CLUSTER)
    assert not report["pushed"]
    assert "registrations" not in report
    assert not (tmp_path / "digits.yaml").exists() and not (tmp_path / "boards").exists()


def test_a_failed_registration_keeps_the_version_and_a_rerun_completes_it(push, tmp_path):
    obstacle = tmp_path / "obstacle"
    obstacle.write_text("no folder")
    file = tmp_path / "digits.yaml"
    register = (f"tensorboard={obstacle}", f"kserve={file}")
    with pytest.raises(ComponentError, match=r"digits/1 is pushed and complete, but not registered") as caught:
        push(*register, **CLUSTER)
    assert "run push_model again" in caught.value.fix
    assert file.is_file()  # the other target was tried, too
    assert (push.destination / "1").is_dir() and (push.destination / "versions" / "1.sha256").is_file()
    assert len(list((push.destination / "history").iterdir())) == 1
    obstacle.unlink()
    report = push(*register, **CLUSTER)
    assert (report["version"], report["pushed"]) == (1, True)
    assert set(report["registrations"]) == set(register)
    assert [path.name for path in push.destination.iterdir() if path.name.isdecimal()] == ["1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mlfow=http://127.0.0.1", "did you mean mlflow"),
        ("mlflow", "pass the address"),
        ("kserve=", "pass the address"),
        ("kserve=folder/", "YAML file"),
        ("model-registry=127.0.0.1:8080", "web address"),
    ],
)
def test_a_wrong_target_is_refused_when_the_dag_is_built(text, message):
    parameter = find("push_model").parameters["register"]
    with pytest.raises(ComponentError) as caught:
        parameter.check([text], "push_model")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["../digits", ".hidden", "", "a/b"])
def test_a_name_that_is_a_path_is_refused(name):
    with pytest.raises(ComponentError, match="letters, digits"):
        find("push_model").parameters["model_name"].check(name, "push_model")


def test_a_missing_package_is_refused_with_its_extra_before_the_push(push, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mlflow" else find_spec(name))
    with pytest.raises(MachineError, match=r"pip install 'tfopt\[mlflow\]'"):
        push("mlflow=http://127.0.0.1:1")
    assert not push.destination.exists()


def test_each_kind_imports_its_package_only_when_it_registers():
    code = "import sys; from tfopt.components.push_model.registrations.kind import KINDS; "
    code += "dict(KINDS); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {name.partition(".")[0] for name in done.stdout.split()}
    assert not packages & ({kind.package for kind in KINDS.values()} | {"kserve"})


CATALOG = """
from pathlib import Path
from tfopt.components.push_model.registrations.kind import Kind
from tfopt.errors import ComponentError

def check_address(address):
    if not address.endswith(".txt"):
        raise ComponentError(address, "a text file", "pass catalog=FILE.txt")

def check_version(version):
    if not version.metrics:
        raise ComponentError("no metrics", "metrics", "pass a decision")

def register(address, version):
    Path(address).write_text(f"{version.name} {version.number} in {version.path}")
    return f"a line in {address}"

KIND = Kind(register, check_address=check_address, check_version=check_version)
"""


def test_an_entry_point_of_another_package_adds_a_kind(push, tmp_path, monkeypatch):
    entries = {"catalog": "other_catalog:KIND", "broken": "no_such_module:KIND"}
    install(tmp_path / "site", monkeypatch, "tfopt.registrations", entries, other_catalog=CATALOG)
    file = tmp_path / "catalog.txt"
    with pytest.raises(ComponentError, match="no metrics"):
        push(f"catalog={file}", decision=None)
    assert not push.destination.exists()
    report = push(f"catalog={file}")
    assert report["registrations"] == {f"catalog={file}": f"a line in {file}"}
    assert file.read_text() == f"digits 1 in {report['path']}"
    for target, text in (("cataloge=a.txt", "did you mean catalog"), ("catalog=a.yaml", "a text file")):
        with pytest.raises(ComponentError, match=text):
            parse_targets([target])
    with pytest.raises(ComponentError, match=r"broken of the package others .* cannot be imported"):
        push("broken=anywhere")


def test_the_fallback_is_registered_with_the_metrics_of_the_baseline(tmp_path):
    decided = Push(tmp_path)
    fields = dict.fromkeys(("destination", "layout", "reason", "model", "digest", "blessing"), "")
    report = PushedReport(pushed=True, version=1, path="/1", previous=None, environment={}, fallback=True, **fields)
    decision = Decision(tmp_path / "decision")
    assert pushed_metrics(decision, report) == (decided.baseline_metrics, decided.baseline_metrics)
    selected = replace(report, fallback=False)
    assert pushed_metrics(decision, selected) == (decided.metrics, decided.baseline_metrics)


@pytest.mark.parametrize(
    "name", ["optimize", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("retrain", "tune", "shrink"))]
)
def test_a_compiled_pipeline_takes_the_targets_and_the_name(name, tmp_path):
    compile_pipeline(load(name), tmp_path / "pipeline.yaml")
    specification = next(yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text()))
    parameters = specification["root"]["inputDefinitions"]["parameters"]
    assert parameters["register"]["defaultValue"] == []
    assert {"model_name", "destination_uri"} < set(parameters)

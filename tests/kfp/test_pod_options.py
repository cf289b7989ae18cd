"""Test ``--kfp-option`` and ``--image``: resources, retries, timeouts, environment, scheduling, secrets, images."""

from pathlib import Path

import pytest
import yaml

from tests import toys
from tfopt.artifacts import Files
from tfopt.cli.main import main
from tfopt.component import Input, component
from tfopt.dag.tracing import Steps, load, trace
from tfopt.errors import ComponentError
from tfopt.kfp.compiler import compile_pipeline, pipeline_name
from tfopt.kfp.images import Images
from tfopt.kfp.pod_options import KEYS, Options


def two(steps: Steps, data: Input[Files]) -> None:
    """Count twice."""
    steps(toys.count, id="first", data=data)
    steps(toys.count, id="second", data=data, loud=True)


@pytest.fixture
def compiled(tmp_path: Path):
    def compile(*options: str, dag=two, images: tuple[str, ...] = ()):
        compile_pipeline(trace(dag), tmp_path / "p.yaml", Images(images), Options(options))
        return list(yaml.safe_load_all((tmp_path / "p.yaml").read_text()))

    return compile


def container(documents, label: str):
    return documents[0]["deploymentSpec"]["executors"][f"exec-{label}"]["container"]


def pod(documents, label: str):
    return documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{label}"]


def test_a_step_gets_the_resources_of_its_component(tmp_path):
    compile_pipeline(load("retrain"), tmp_path / "p.yaml")
    documents = list(yaml.safe_load_all((tmp_path / "p.yaml").read_text()))
    expected = {"train": ("4", "8Gi"), "benchmark": ("2", "4Gi"), "push-model": ("1", "4Gi")}
    for label, (cpu, memory) in expected.items():
        resources = container(documents, label)["resources"]
        assert (resources["resourceCpuRequest"], resources["resourceCpuLimit"]) == (cpu, cpu)
        assert (resources["resourceMemoryRequest"], resources["resourceMemoryLimit"]) == (memory, memory)
        assert "accelerator" not in resources


def test_a_component_that_needs_a_gpu_gets_one(compiled):
    @component(image="gpu", cpu=0.5, gpu=1)
    def convert(data: Input[Files]) -> None:
        """Convert."""

    def convert_dag(steps: Steps, data: Input[Files]) -> None:
        """Convert."""
        steps(convert, data=data)

    resources = container(compiled(dag=convert_dag), "convert")["resources"]
    assert resources["resourceCpuLimit"] == "0.5"
    assert (resources["accelerator"]["resourceType"], resources["accelerator"]["resourceCount"]) == (
        "nvidia.com/gpu",
        "1",
    )


def test_default_retries_backoff_and_timeout(compiled):
    documents = compiled()
    assert documents[0]["root"]["dag"]["tasks"]["count"]["retryPolicy"] == {
        "maxRetryCount": 2,
        "backoffDuration": "30s",
        "backoffFactor": 2.0,
        "backoffMaxDuration": "600s",
    }
    assert pod(documents, "count") == {"activeDeadlineSeconds": "43200", "securityContext": {"runAsNonRoot": True}}


def test_an_option_with_a_step_overrides_the_one_for_all_steps(compiled):
    documents = compiled("second:cpu=8", "cpu=2", "memory=1Gi", "retries=0", "wait=2m", "first:timeout=90s")
    assert container(documents, "count")["resources"]["resourceCpuLimit"] == "2"
    assert container(documents, "count-2")["resources"]["resourceCpuLimit"] == "8"
    assert container(documents, "count-2")["resources"]["resourceMemoryRequest"] == "1Gi"
    assert pod(documents, "count")["activeDeadlineSeconds"] == "90"
    assert pod(documents, "count-2")["activeDeadlineSeconds"] == "43200"
    retries = documents[0]["root"]["dag"]["tasks"]["count"]["retryPolicy"]
    assert (retries.get("maxRetryCount", 0), retries["backoffDuration"]) == (0, "120s")


def test_environment_and_gpu(compiled):
    documents = compiled("env.A=b=c", "first:env.EMPTY=", "first:gpu=2", "first:image=r/rocm:1", "gpu_type=amd.com/gpu")
    env = {item["name"]: item.get("value", "") for item in container(documents, "count")["env"]}
    assert env == {"A": "b=c", "EMPTY": "", "TFOPT_IMAGE": "r/rocm:1"}
    assert container(documents, "count")["resources"]["accelerator"]["resourceType"] == "amd.com/gpu"
    assert container(documents, "count")["resources"]["accelerator"]["resourceCount"] == "2"
    image = {"name": "TFOPT_IMAGE", "value": container(documents, "count-2")["image"]}
    assert container(documents, "count-2")["env"] == [image, {"name": "A", "value": "b=c"}]
    assert "accelerator" not in container(documents, "count-2")["resources"]


def test_pod_settings_equal_those_of_the_kfp_kubernetes_extension(compiled):
    """Compare with what the functions of kfp-kubernetes 2.16.1 and 2.17.3 write into a task for the same settings."""
    documents = compiled(
        "first:timeout=10m",
        "first:user=10001:20",
        "first:toleration=nvidia.com/gpu:NoSchedule",
        "first:toleration=dedicated=gpu:NoSchedule",
        "first:node.pool=gpu",
        "first:secret.API_TOKEN=sec/key",
        "first:secret_files.sec=/secrets",
        "first:volume.models=/models",
        "first:pull_secret=registry",
    )
    secret = {"secretName": "sec", "secretNameParameter": {"runtimeValue": {"constant": "sec"}}, "optional": False}
    assert pod(documents, "count") == {
        "activeDeadlineSeconds": "600",
        "securityContext": {"runAsUser": "10001", "runAsGroup": "20", "runAsNonRoot": True},
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
        ],
        "nodeSelector": {"labels": {"pool": "gpu"}},
        "secretAsEnv": [{**secret, "keyToEnv": [{"secretKey": "key", "envVar": "API_TOKEN"}]}],
        "secretAsVolume": [{**secret, "mountPath": "/secrets"}],
        "pvcMount": [
            {
                "constant": "models",
                "pvcNameParameter": {"runtimeValue": {"constant": "models"}},
                "mountPath": "/models",
            }
        ],
        "imagePullSecret": [
            {"secretName": "registry", "secretNameParameter": {"runtimeValue": {"constant": "registry"}}}
        ],
    }
    assert pod(documents, "count-2") == {"activeDeadlineSeconds": "43200", "securityContext": {"runAsNonRoot": True}}


@pytest.mark.parametrize(
    ("options", "images", "context"),
    [
        ((), (), {"runAsNonRoot": True}),
        (("user=1000",), (), {"runAsUser": "1000", "runAsNonRoot": True}),
        (("user=image",), (), None),
        ((), ("tf=registry.example/mine:1",), None),  # may need root
        (("user=nonroot",), ("tf=registry.example/mine:1",), {"runAsNonRoot": True}),
        (("user=image", "first:user=5:6"), (), {"runAsUser": "5", "runAsGroup": "6", "runAsNonRoot": True}),
    ],
)
def test_the_user_of_a_container(options, images, context, compiled):
    assert pod(compiled(*options, images=images), "count").get("securityContext") == context


@pytest.mark.parametrize("root", ["gs://bucket/runs", "s3://bucket/runs", "minio://mlpipeline/v2/artifacts"])
def test_root_is_the_pipeline_root(root, compiled):
    assert compiled(f"root={root}")[0]["defaultPipelineRoot"] == root


def test_a_source_is_imported_in_each_run_unless_reuse_is_yes(compiled):
    importer = compiled()[0]["deploymentSpec"]["executors"]["exec-importer"]["importer"]
    assert importer["reimport"] is True
    importer = compiled("data:reuse=yes")[0]["deploymentSpec"]["executors"]["exec-importer"]["importer"]
    assert not importer.get("reimport")


@pytest.mark.parametrize("example", [example for _, example in KEYS.values()])
def test_the_example_of_each_key_is_accepted(example, compiled):
    if not example.startswith("service_account"):
        compiled(example, "image=gpu")
    assert Options([example])


@pytest.mark.parametrize(
    "option",
    [
        "cpu",
        "cpu=",
        "cpu=two",
        "cpu.x=2",
        "memory=8GB",
        "gpu=-1",
        "cpus=2",
        "retries=many",
        "timeout=10",
        "timeout=0s",
        "user=0",
        "user=root",
        "user=1:",
        "env=A",
        "env.=b",
        "toleration=gpu",
        "toleration=gpu:Never",
        "secret.TOKEN=sec",
        "secret_files.sec=relative",
        "volume.models=models",
        "pull_secret=Not_A_Name",
        "root=/tmp/runs",
        "root=http://bucket/runs",
        "first:root=s3://bucket/runs",
        "reuse=maybe",
        "image=Registry.example/TFopt:1",
        "image=tfopt:1:2",
        "service_account=Not A Name",
    ],
)
def test_an_invalid_option_is_refused(option):
    with pytest.raises(ComponentError) as refused:
        Options([option])
    assert option in refused.value.received


@pytest.mark.parametrize(
    ("option", "hint"), [("frist:cpu=2", "did you mean first?"), ("dat:reuse=yes", "did you mean data?")]
)
def test_an_option_for_an_unknown_step_or_source_is_refused(option, hint, compiled):
    with pytest.raises(ComponentError, match="of two") as refused:
        compiled(option)
    assert refused.value.fix == hint


def test_each_kind_has_its_image_with_its_digest(compiled):
    digest = "sha256:" + "0123456789abcdef" * 4
    pinned = f"registry.example:5000/ml/tfopt-tf:1@{digest}"
    assert container(compiled(images=(f"tf={pinned}",)), "count")["image"] == pinned
    images = Images(["registry.example/tfopt-{kind}:1.2", f"beam=registry.example/beam@{digest}"])
    assert images.of("tf") == "registry.example/tfopt-tf:1.2"
    assert images.of("beam") == f"registry.example/beam@{digest}"


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "Registry.example/TFopt:1",
        "tfopt:1:2",
        "https://registry.example/tfopt",
        "tfopt@sha256:abc",
        "tfopt:",
        "my image",
        "tf=",
        "beam=Tfopt",
    ],
)
def test_an_invalid_image_reference_is_refused(reference):
    with pytest.raises(ComponentError) as refused:
        Images([reference])
    assert reference in refused.value.received


def test_the_command_passes_images_and_options_to_the_compiler(tmp_path, capsys):
    words = ["compile", "optimize", "-o", str(tmp_path / "p.yaml"), "--image", "r.example/{kind}:1"]
    words += ["--image", "beam=r.example/other:2", "--kfp-option", "benchmark:node.pool=quiet"]
    assert main(words) == 0
    documents = list(yaml.safe_load_all((tmp_path / "p.yaml").read_text()))
    assert container(documents, "benchmark")["image"] == "r.example/tf:1"
    assert container(documents, "evaluate")["image"] == "r.example/other:2"
    assert pod(documents, "benchmark")["nodeSelector"] == {"labels": {"pool": "quiet"}}
    assert main([*words, "--kfp-option", "service_account=x"]) == 1
    assert "tfopt submit or schedule" in capsys.readouterr().err
    assert main(["compile", "train", "-o", str(tmp_path / "c.yaml"), "--kfp-option", "cpu=2"]) == 1
    assert "leave --kfp-option out" in capsys.readouterr().err


def Shouting(steps: Steps, data: Input[Files]) -> None:  # noqa: N802
    """Have a name that Kubernetes refuses."""
    steps(toys.count, data=data)


def test_a_pipeline_name_that_kubernetes_does_not_allow_is_refused(compiled):
    with pytest.raises(ComponentError, match="rename the pipeline's function and file"):
        compiled(dag=Shouting)
    dag = trace(two)
    dag.name = "x" * 64
    with pytest.raises(ComponentError, match="at most 63"):
        pipeline_name(dag)


def test_a_dag_that_kfp_cannot_compile_is_an_error_in_three_parts(compiled):
    def empty(steps: Steps, data: Input[Files]) -> None:
        """Have no step."""

    dag = trace(empty)
    dag.sources.clear()
    with pytest.raises(ComponentError, match="a DAG that KFP's compiler accepts"):
        compile_pipeline(dag, Path("never.yaml"))

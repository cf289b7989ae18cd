"""What a step of the compiled YAML is given: resources, retries, time, environment, place, secrets; and which image."""

from pathlib import Path

import pytest
import yaml

from tests import toys
from tfopt.artifacts import Files
from tfopt.cli.main import main
from tfopt.component import Input, component
from tfopt.dag.tracing import Steps, load, trace
from tfopt.errors import ComponentError
from tfopt.kfp import compiler as kfp
from tfopt.kfp.images import Images
from tfopt.kfp.pod_options import KEYS, Options


def two(steps: Steps, data: Input[Files]) -> None:
    """Count twice."""
    steps(toys.count, id="first", data=data)
    steps(toys.count, id="second", data=data, loud=True)


@pytest.fixture
def compiled(tmp_path: Path):
    def compile(*options: str, dag=two, images: tuple[str, ...] = ()):
        kfp.compile_pipeline(trace(dag), tmp_path / "p.yaml", Images(images), Options(options))
        return list(yaml.safe_load_all((tmp_path / "p.yaml").read_text()))

    return compile


def container(documents, label: str):
    return documents[0]["deploymentSpec"]["executors"][f"exec-{label}"]["container"]


def pod(documents, label: str):
    return documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{label}"]


def test_a_step_gets_what_its_component_declares_no_more_and_no_less(tmp_path):
    kfp.compile_pipeline(load("retrain"), tmp_path / "p.yaml")
    documents = list(yaml.safe_load_all((tmp_path / "p.yaml").read_text()))
    wanted = {"train": ("4", "8Gi"), "benchmark": ("2", "4Gi"), "push-model": ("1", "4Gi")}
    for label, (cpu, memory) in wanted.items():
        found = container(documents, label)["resources"]
        assert (found["resourceCpuRequest"], found["resourceCpuLimit"]) == (cpu, cpu)
        assert (found["resourceMemoryRequest"], found["resourceMemoryLimit"]) == (memory, memory)
        assert "accelerator" not in found


def test_a_component_that_needs_a_gpu_gets_one(compiled):
    @component(image="tensorrt", cpu=0.5, gpu=1)
    def convert(data: Input[Files]) -> None:
        """Convert."""

    def converting(steps: Steps, data: Input[Files]) -> None:
        """Convert."""
        steps(convert, data=data)

    resources = container(compiled(dag=converting), "convert")["resources"]
    assert resources["resourceCpuLimit"] == "0.5"
    assert (resources["accelerator"]["resourceType"], resources["accelerator"]["resourceCount"]) == (
        "nvidia.com/gpu",
        "1",
    )


def test_a_step_is_tried_three_times_with_growing_pauses_and_may_take_half_a_day(compiled):
    documents = compiled()
    assert documents[0]["root"]["dag"]["tasks"]["count"]["retryPolicy"] == {
        "maxRetryCount": 2,
        "backoffDuration": "30s",
        "backoffFactor": 2.0,
        "backoffMaxDuration": "600s",
    }
    assert pod(documents, "count") == {"activeDeadlineSeconds": "43200"}


def test_an_option_is_for_every_step_and_one_with_a_step_for_that_one(compiled):
    documents = compiled("second:cpu=8", "cpu=2", "memory=1Gi", "retries=0", "wait=2m", "first:timeout=90s")
    assert container(documents, "count")["resources"]["resourceCpuLimit"] == "2"
    assert container(documents, "count-2")["resources"]["resourceCpuLimit"] == "8"
    assert container(documents, "count-2")["resources"]["resourceMemoryRequest"] == "1Gi"
    assert pod(documents, "count")["activeDeadlineSeconds"] == "90"
    assert pod(documents, "count-2")["activeDeadlineSeconds"] == "43200"
    retries = documents[0]["root"]["dag"]["tasks"]["count"]["retryPolicy"]
    assert (retries.get("maxRetryCount", 0), retries["backoffDuration"]) == (0, "120s")


def test_environment_and_gpu(compiled):
    documents = compiled("env.A=b=c", "first:env.EMPTY=", "first:gpu=2", "gpu_type=amd.com/gpu")
    assert container(documents, "count")["env"] == [{"name": "A", "value": "b=c"}, {"name": "EMPTY"}] or container(
        documents, "count"
    )["env"] == [{"name": "A", "value": "b=c"}, {"name": "EMPTY", "value": ""}]
    assert container(documents, "count")["resources"]["accelerator"]["resourceType"] == "amd.com/gpu"
    assert container(documents, "count")["resources"]["accelerator"]["resourceCount"] == "2"
    assert container(documents, "count-2")["env"] == [{"name": "A", "value": "b=c"}]
    assert "accelerator" not in container(documents, "count-2")["resources"]


def test_the_pod_is_told_as_the_kfp_kubernetes_extension_tells_it(compiled):
    """The expected part is what kfp-kubernetes 2.16.1's own functions put into a task for the same wishes."""
    documents = compiled(
        "first:timeout=10m",
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
    assert pod(documents, "count-2") == {"activeDeadlineSeconds": "43200"}


@pytest.mark.parametrize("root", ["gs://bucket/runs", "s3://bucket/runs", "minio://mlpipeline/v2/artifacts"])
def test_the_root_is_where_artifacts_go(root, compiled):
    assert compiled(f"root={root}")[0]["defaultPipelineRoot"] == root


def test_new_data_at_an_old_address_is_new_unless_the_user_says_that_it_never_changes(compiled):
    importer = compiled()[0]["deploymentSpec"]["executors"]["exec-importer"]["importer"]
    assert importer["reimport"] is True
    importer = compiled("data:reuse=yes")[0]["deploymentSpec"]["executors"]["exec-importer"]["importer"]
    assert not importer.get("reimport")


@pytest.mark.parametrize("example", [example for _, example in KEYS.values()])
def test_every_example_of_a_message_is_taken(example, compiled):
    if not example.startswith("service_account"):
        compiled(example)
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
        "service_account=Not A Name",
    ],
)
def test_an_option_that_cannot_be_read_is_refused_with_an_example(option):
    with pytest.raises(ComponentError) as refused:
        Options([option])
    assert option in refused.value.received


@pytest.mark.parametrize(
    ("option", "hint"), [("frist:cpu=2", "did you mean first?"), ("dat:reuse=yes", "did you mean data?")]
)
def test_an_option_for_a_step_or_source_that_is_not_there_is_refused(option, hint, compiled):
    with pytest.raises(ComponentError, match="of two") as refused:
        compiled(option)
    assert refused.value.fix == hint


def test_each_kind_has_its_image_and_a_digest_stays(compiled):
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
def test_what_is_no_image_reference_is_refused(reference):
    with pytest.raises(ComponentError) as refused:
        Images([reference])
    assert reference in refused.value.received


def test_the_command_passes_images_and_options_on(tmp_path, capsys):
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
    """Has a name that Kubernetes refuses."""
    steps(toys.count, data=data)


def test_a_pipeline_whose_name_kubernetes_would_refuse_is_refused(compiled):
    with pytest.raises(ComponentError, match="rename the pipeline's function and file"):
        compiled(dag=Shouting)
    two_long = trace(two)
    two_long.name = "x" * 64
    with pytest.raises(ComponentError, match="at most 63"):
        kfp.pipeline_name(two_long)


def test_a_dag_that_kfp_cannot_compile_is_told_in_three_parts(compiled):
    def empty(steps: Steps, data: Input[Files]) -> None:
        """Have no step."""

    def same(steps: Steps, data: Input[Files]) -> None:
        """Have no step and no source."""

    del same.__annotations__["data"]
    dag = trace(empty)
    dag.sources.clear()
    with pytest.raises(ComponentError, match="a DAG that KFP's compiler accepts"):
        kfp.compile_pipeline(dag, Path("never.yaml"))

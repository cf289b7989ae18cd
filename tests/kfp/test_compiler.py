"""Test the compiled YAML and the step in the container that runs from it."""

import inspect
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from kfp import components, dsl
from kfp.compiler import Compiler

import tfopt
from tests import toys
from tfopt.artifacts import Blessing, Files, Model
from tfopt.cli.main import main
from tfopt.component import Input
from tfopt.dag.tracing import Steps, load, trace
from tfopt.kfp import compiler as kfp_compiler
from tfopt.kfp.compiler import compile_pipeline
from tfopt.kfp.container_entry import run_step
from tfopt.kfp.images import Images


def counting(
    steps, data: Input[Files], extra: Input[Files] | None = None, *, unit: str = "bytes", start: int = 3
) -> None:
    """Count and add."""
    first = steps(toys.count, data=data, unit=unit)
    second = steps(toys.count, data=data, loud=True)
    steps(toys.add, reports=[first.outputs["report"], second.outputs["report"]], start=start)


@pytest.fixture
def compiled(tmp_path: Path) -> dict:
    compile_pipeline(trace(counting), tmp_path / "p.yaml", Images(["registry.example/tfopt-{kind}:1"]))
    return next(yaml.safe_load_all((tmp_path / "p.yaml").read_text()))


def test_the_compiled_dag_has_the_steps_wires_and_values_of_the_dag(compiled):
    tasks = compiled["root"]["dag"]["tasks"]
    assert set(tasks) == {"data", "count", "count-2", "add"}
    wired = tasks["add"]["inputs"]["artifacts"]
    assert {name: wire["taskOutputArtifact"]["producerTask"] for name, wire in wired.items()} == {
        "reports_1": "count",
        "reports_2": "count-2",
    }
    assert tasks["add"]["inputs"]["parameters"] == {"start": {"componentInputParameter": "start"}}
    assert tasks["count-2"]["inputs"]["parameters"]["loud"] == {"runtimeValue": {"constant": True}}
    assert compiled["root"]["inputDefinitions"]["parameters"]["start"]["defaultValue"] == 3.0


def test_compile_includes_the_requested_optional_sources(tmp_path, capsys):
    file = tmp_path / "retrain.yaml"
    assert main(["compile", "retrain", "-o", str(file), "--with", "plan", "--with", "start"]) == 0
    root = next(yaml.safe_load_all(file.read_text()))["root"]
    parameters = root["inputDefinitions"]["parameters"]
    assert {"plan_uri", "start_uri"} < set(parameters)
    assert not parameters["start_uri"].get("isOptional")
    assert {"plan", "start"} < set(root["dag"]["tasks"]["train"]["inputs"]["artifacts"])
    assert main(["compile", "retrain", "-o", str(file), "--with", "strat"]) == 1
    assert "did you mean start" in capsys.readouterr().err
    assert main(["compile", "train", "-o", str(file), "--with", "start"]) == 1
    assert "leave --with out" in capsys.readouterr().err


def test_a_component_with_cache_local_is_not_cached_by_kubeflow(compiled):
    tasks = compiled["root"]["dag"]["tasks"]
    assert tasks["count"]["cachingOptions"] == {"enableCache": True}
    assert tasks["add"]["cachingOptions"] == {}


def test_each_step_runs_its_component_in_the_image_of_its_kind(compiled):
    container = compiled["deploymentSpec"]["executors"]["exec-count"]["container"]
    assert container["image"] == "registry.example/tfopt-tf:1"
    assert container["command"] == ["python", "-m", "tfopt.run", "tests.toys:count"]
    assert container["args"] == ["--executor-input", "{{$}}"]


def test_steps_of_shipped_components_do_not_import_modules_of_the_working_folder():
    from tfopt.components import train
    from tfopt.kfp.container_components import container_component

    command = container_component(train, {}).component_spec.implementation.container.command
    assert command == ["python", "-P", "-m", "tfopt.run", "train"]


def executor_input(folder: Path, data: Path) -> str:
    return json.dumps(
        {
            "inputs": {
                "parameterValues": {"limit": 5.0, "notes": ["a"], "loud": True},
                "artifacts": {"data": {"artifacts": [{"name": "d", "uri": str(data), "metadata": {}}]}},
            },
            "outputs": {
                "outputFile": str(folder / "executor output" / "output.json"),
                "artifacts": {
                    "report": {
                        "artifacts": [
                            {
                                "name": "r",
                                "type": {"schemaTitle": "system.Artifact"},
                                "uri": str(folder / "report"),
                                "metadata": {},
                            }
                        ]
                    }
                },
            },
        }
    )


def test_a_step_reads_executor_input_and_writes_executor_output(tmp_path):
    data = tmp_path / "data.txt"
    data.write_text("x" * 9)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tfopt.run",
            "tests.toys:count",
            "--executor-input",
            executor_input(tmp_path, data),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == {"count": 5.0, "loud": True, "notes": ["a"]}
    output = json.loads((tmp_path / "executor output" / "output.json").read_text())
    assert output["artifacts"]["report"]["artifacts"] == [
        {
            "name": "r",
            "type": {"schemaTitle": "system.Artifact"},
            "uri": str(tmp_path / "report"),
            "metadata": {"count": 9},
        }
    ]
    assert f"tfopt count --data {data} --report {tmp_path}/report --limit 5 --notes a --loud" in done.stderr


def test_a_failing_step_writes_no_executor_output_and_ends_with_1(tmp_path):
    failed = subprocess.run(
        [
            sys.executable,
            "-m",
            "tfopt.run",
            "tests.toys:count",
            "--executor-input",
            executor_input(tmp_path, tmp_path / "absent"),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert failed.returncode == 1
    assert "how to fix:" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert list(tmp_path.iterdir()) == []


def test_list_inputs_are_in_numerical_order(tmp_path):
    artifacts = {}
    for index in range(1, 12):
        folder = tmp_path / f"in{index}"
        folder.mkdir()
        (folder / "report.json").write_text(json.dumps({"count": index}))
        artifacts[f"reports_{index}"] = {"artifacts": [{"name": "r", "uri": str(folder)}]}
    message = {
        "inputs": {"artifacts": artifacts},
        "outputs": {
            "outputFile": str(tmp_path / "o.json"),
            "artifacts": {"total": {"artifacts": [{"name": "t", "uri": str(tmp_path / "total")}]}},
        },
    }
    run_step(toys.add, json.dumps(message))
    assert json.loads((tmp_path / "total" / "report.json").read_text())["parts"] == list(range(1, 12))


def test_a_compiled_pipeline_and_a_component_can_be_steps_of_another_pipeline(tmp_path):
    folder = Path(__file__).parents[2] / "deploy" / "kfp"
    retrain = components.load_component_from_file(str(folder / "pipelines" / "retrain.yaml"))
    fold = components.load_component_from_file(str(folder / "components" / "fold_batch_norm" / "component.yaml"))

    @dsl.pipeline(name="outer")
    def outer(rows: str):
        retrain(data_uri=rows, module_uri="s3://bucket/model.py", destination="/models")
        model = dsl.importer(artifact_uri="s3://bucket/model", artifact_class=dsl.Model)
        fold(model=model.output)

    Compiler().compile(outer, str(tmp_path / "outer.yaml"))
    spec, platform = yaml.safe_load_all((tmp_path / "outer.yaml").read_text())
    assert set(spec["root"]["dag"]["tasks"]) == {"retrain", "importer", "fold-batch-norm"}
    inner = spec["components"]["comp-retrain"]["dag"]["tasks"]
    assert inner["push-model"]["retryPolicy"]["maxRetryCount"] == 2
    limits = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert all(limit["activeDeadlineSeconds"] == "43200" for limit in limits.values())


def test_outputs_have_kfp_types():
    file = Path(__file__).parents[2] / "deploy" / "kfp" / "pipelines" / "optimize.yaml"
    spec = next(yaml.safe_load_all(file.read_text()))
    titles = {
        output: definition["artifactType"]["schemaTitle"]
        for component in spec["components"].values()
        for output, definition in component["outputDefinitions"]["artifacts"].items()
    }
    expected = {"evaluation": "Metrics", "benchmark": "Metrics", "decision_page": "HTML", "decision": "Artifact"}
    expected |= {"selected": "Model", "exported": "Model", "folded": "Model"}
    assert {output: titles[output] for output in expected} == {
        output: f"system.{title}" for output, title in expected.items()
    }


def test_unset_values_reach_the_steps_in_kfps_local_engine(tmp_path):
    """Work around kfp 2.16: its local engine converts an unset number by int(None), and omits unset parameters."""
    from kfp.local import executor_input_utils, io
    from kfp.local.orchestrator.orchestrator_utils import OrchestratorUtils

    file = Path(__file__).parents[2] / "deploy" / "kfp" / "pipelines" / "retrain.yaml"
    spec = components.load_component_from_file(str(file)).pipeline_spec
    store, received = io.IOStore(), {}
    arguments = {"data_uri": "/rows.csv", "module_uri": "/model.py"}
    for name, value in OrchestratorUtils.join_user_inputs_and_defaults(arguments, spec.root.input_definitions).items():
        store.put_parent_input(name, value)
    for name, task in spec.root.dag.tasks.items():
        for key in spec.components[task.component_ref.name].output_definitions.artifacts:
            store.put_task_output(name, key, dsl.Artifact(uri=f"/{name}/{key}"))
    for name, task in spec.root.dag.tasks.items():
        declared = spec.components[task.component_ref.name]
        values = OrchestratorUtils.make_task_arguments(task.inputs, store)
        message = executor_input_utils.construct_executor_input(declared, values, "/root", False)
        received[name] = executor_input_utils.executor_input_to_dict(message, declared)["inputs"].get("parameterValues")
    assert received["prepare-examples"]["pack"] == ""
    assert received["push-model"]["keep"] == 0
    assert "max_p99_ms" not in received["validate-serving"]
    assert None not in [value for values in received.values() for value in (values or {}).values()]


def test_an_optional_number_is_in_the_component_yaml_and_in_a_dag_that_sets_it(tmp_path):
    file = Path(__file__).parents[2] / "deploy" / "kfp" / "components" / "push_model" / "component.yaml"
    declared = yaml.safe_load(file.read_text())["components"]["comp-push-model"]["inputDefinitions"]["parameters"]
    assert (declared["keep"]["parameterType"], declared["keep"]["isOptional"]) == ("NUMBER_INTEGER", True)

    def push(steps, model: Input[Model], blessing: Input[Blessing], *, keep: int = 3) -> None:
        """Push."""
        steps.push_model(model=model, blessing=blessing, destination="/models", keep=keep)

    compile_pipeline(trace(push), tmp_path / "p.yaml")
    task = next(yaml.safe_load_all((tmp_path / "p.yaml").read_text()))["root"]["dag"]["tasks"]["push-model"]
    assert task["inputs"]["parameters"]["keep"] == {"componentInputParameter": "keep"}


def test_each_evaluated_model_has_its_own_classification_metrics():
    file = Path(__file__).parents[2] / "deploy" / "kfp" / "pipelines" / "optimize.yaml"
    spec = next(yaml.safe_load_all(file.read_text()))
    evaluate = spec["components"]["comp-evaluate"]
    evaluated = {
        name.removeprefix("evaluation_")
        for name, definition in evaluate["outputDefinitions"]["artifacts"].items()
        if definition["artifactType"]["schemaTitle"] == "system.ClassificationMetrics"
    }
    assert evaluated == set(evaluate["inputDefinitions"]["artifacts"]) - {"examples"}
    assert len(evaluated) > 3


@pytest.mark.parametrize("name", ["optimize", "evaluate"])
def test_yaml_whose_images_no_cluster_can_pull_explains_how_to_build_and_name_them(name, tmp_path):
    file = tmp_path / f"{name}.yaml"
    assert main(["compile", name, "-o", str(file)]) == 0
    names, build, compile_again, _ = file.read_text().split("\n", 3)
    assert f"tfopt-beam:{tfopt.__version__}" in names
    assert f"VERSION={tfopt.__version__} REGISTRY=registry.example/ docker buildx bake" in build
    assert components.load_component_from_file(str(file)).name == name
    assert main(["compile", name, "-o", str(file), *shlex.split(compile_again.partition("…")[2])]) == 0
    assert "without a registry" not in file.read_text()
    executors = next(yaml.safe_load_all(file.read_text()))["deploymentSpec"]["executors"].values()
    images = {executor["container"]["image"] for executor in executors if "container" in executor}
    assert images <= {f"registry.example/tfopt-{kind}:{tfopt.__version__}" for kind in ("tf", "beam")}


def test_committed_yaml_has_the_comment_and_can_be_loaded():
    files = list((Path(__file__).parents[2] / "deploy" / "kfp").rglob("*.yaml"))
    compiled_files = [file for file in files if file.name != "metadata.yaml"]
    assert len(compiled_files) > 20
    for file in compiled_files:
        first = file.read_text().partition("\n")[0]
        assert first.startswith("# Images without a registry: tfopt-"), file


def test_an_imported_source_is_recorded_under_the_key_that_steps_look_for(tmp_path):
    """KFP's launcher records an importer under its displayed name, and KFP's driver looks for the key of the task."""

    def named(steps: Steps, raw_data: Input[Files], count: Input[Files]) -> None:
        """Count two sources; the second one has the name of a step."""
        steps(toys.count, id="first", data=raw_data)
        steps(toys.count, id="second", data=count)

    compile_pipeline(trace(named), tmp_path / "named.yaml")
    tasks = next(yaml.safe_load_all((tmp_path / "named.yaml").read_text()))["root"]["dag"]["tasks"]
    importers = {key: task for key, task in tasks.items() if task["componentRef"]["name"].startswith("comp-importer")}
    assert set(importers) == {"raw-data", "importer-2"}
    assert all(task["taskInfo"]["name"] == key for key, task in importers.items())
    wires = {task["taskInfo"]["name"]: task["inputs"].get("artifacts", {}) for task in tasks.values()}
    producers = {name: wires[name]["data"]["taskOutputArtifact"]["producerTask"] for name in ("first", "second")}
    assert producers == {"first": "raw-data", "second": "importer-2"}
    assert tasks["count"]["dependentTasks"] == ["raw-data"]


def test_an_artifact_that_a_step_gets_twice_is_sent_once(tmp_path):
    """KFP's driver refuses a task that gets one artifact twice, because ML Metadata refuses two equal events."""

    def twice(steps: Steps, data: Input[Files]) -> None:
        """Add a count to itself."""
        counted = steps(toys.count, data=data).outputs["report"]
        steps(toys.add, reports=[counted, counted], extra=counted)

    compile_pipeline(trace(twice), tmp_path / "twice.yaml")
    spec = next(yaml.safe_load_all((tmp_path / "twice.yaml").read_text()))
    assert set(spec["root"]["dag"]["tasks"]["add"]["inputs"]["artifacts"]) == {"reports_1"}
    args = spec["deploymentSpec"]["executors"]["exec-add"]["container"]["args"]
    assert args[2:] == ["--same-artifact", "reports_2=reports_1", "--same-artifact", "extra=reports_1"]
    (tmp_path / "count").mkdir()
    (tmp_path / "count" / "report.json").write_text('{"count": 2}')
    step = {
        "inputs": {"artifacts": {"reports_1": {"artifacts": [{"name": "r", "uri": str(tmp_path / "count")}]}}},
        "outputs": {
            "artifacts": {"total": {"artifacts": [{"name": "total", "uri": str(tmp_path / "total")}]}},
            "outputFile": str(tmp_path / "output.json"),
        },
    }
    words = [*spec["deploymentSpec"]["executors"]["exec-add"]["container"]["command"][1:], args[0], json.dumps(step)]
    subprocess.run([sys.executable, *words, *args[2:]], check=True)
    assert json.loads((tmp_path / "total" / "report.json").read_text())["parts"] == [2, 2, 2]


def test_kfp_inspects_a_short_stack_whatever_the_caller(tmp_path, monkeypatch):
    """For each frame that belongs to no module, Python searches all imported modules: seconds in a notebook."""
    depths, add_task = [], kfp_compiler.add_task

    def task(*arguments):
        depths.append(len(inspect.stack(0)))
        return add_task(*arguments)

    def compile_below(frames: int) -> None:
        if frames:
            compile_below(frames - 1)
        else:
            kfp_compiler.compile_pipeline(load("optimize"), tmp_path / "optimize.yaml")

    monkeypatch.setattr(kfp_compiler, "add_task", task)
    compile_below(100)
    assert len(depths) == len(load("optimize").with_sources({}).steps) and max(depths) < 30

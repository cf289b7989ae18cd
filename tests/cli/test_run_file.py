"""Test run files: overlay, variables, paths, the command line's priority, errors with file and line, the schema."""

import fcntl
import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

import tfopt
from tests.kfp_server.server import KfpServer
from tfopt.cli.commands import pipeline_schema
from tfopt.cli.main import main
from tfopt.cli.run_files.run_file import OPTIONS, TOP_KEYS
from tfopt.dag.tracing import load, pipelines
from tfopt.kfp.pod_options import KEYS

ROOT = Path(__file__).parents[2]
MNIST = ROOT / "docs" / "mnist"
EXAMPLES = [MNIST / "retrain.yaml", MNIST / "kubeflow.yaml"]
DAG = '''
from tests.toys import count
from tfopt import Input, Steps
from tfopt.artifacts import Files
from tfopt.trace import Inherited


def counting(steps: Steps, data: Input[Files], extra: Input[Files] | None = None, *, scale: Inherited, unit: Inherited,
             loud: Inherited, notes: Inherited, limit: Inherited) -> None:
    """Count."""
    steps(count, data=data, scale=scale, unit=unit, loud=loud, notes=notes, limit=limit)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """A folder with a pipeline and data, which is not the working directory."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "counting.py").write_text(DAG)
    (tmp_path / "job" / "data.txt").write_text("one\ntwo\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "job"


def write(file: Path, text: str) -> str:
    file.write_text(text)
    return str(file)


def counted(root: Path) -> dict:
    (report,) = root.rglob("report.json")
    return json.loads(report.read_text())


BASE = """
pipeline: counting.py
root: out
engine: process
values:
  data: data.txt
  unit: lines
  scale: 2
  notes: [no, 1.10, "x: y"]
"""


def test_a_file_runs_a_pipeline_and_its_paths_are_relative_to_it(folder):
    assert main(["run", "-f", write(folder / "run.yaml", BASE)]) == 0
    assert counted(folder / "out") == {"count": 4.0, "loud": False, "notes": ["no", "1.10", "x: y"]}
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "-"])
def test_a_pipe_of_the_shell_is_read_with_limits(folder, monkeypatch, capsys, name):
    monkeypatch.chdir(folder)
    before = os.dup(0)
    for text, is_closed, error in (
        (BASE, True, ""),
        (BASE, False, "a pipe that does not end within 0 s"),
        ("# " + "x" * 70_000, False, "and 65536 bytes"),
        ("values: [", True, "pipe, line 1"),
    ):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 17)
        if name == "-":
            os.dup2(reader, 0)
        os.write(writer, text.encode())
        if is_closed:
            os.close(writer)
        monkeypatch.setattr("tfopt.declaration.yaml_entries._PIPE_S", 60.0 if is_closed else 0.1)
        monkeypatch.setattr("tfopt.declaration.yaml_entries._MOST_BYTES", 1 << 16)
        try:
            assert main(["run", "-f", name.format(reader)]) == bool(error)
        finally:
            os.dup2(before, 0)
            os.close(reader)
            if not is_closed:
                os.close(writer)
        assert error in capsys.readouterr().err
    assert counted(folder / "out")["count"] == 4.0
    for number in ("99999", "9" * 30):
        assert main(["run", "-f", f"/dev/fd/{number}"]) == 1
        assert "no such file" in capsys.readouterr().err


def test_the_command_line_overrides_the_file(folder, capsys):
    file = write(
        folder / "run.yaml", BASE.replace("engine: process", "engine: beam").replace("scale: 2", "scale: ${NONE}")
    )
    words = ["--set", "scale=3", "--set", "loud=true", "--engine", "process", "--root", str(folder / "other")]
    assert main(["run", "-f", file, *words]) == 0
    assert counted(folder / "other") == {"count": 6.0, "loud": True, "notes": ["no", "1.10", "x: y"]}
    assert not (folder / "out").exists()


def test_the_pipeline_of_the_command_line_replaces_that_of_the_file(folder, capsys):
    assert main(["run", "retrain", "-f", write(folder / "run.yaml", BASE)]) == 1
    assert "run.yaml, line 7: values.unit" in capsys.readouterr().err  # a value that retrain does not have


def test_later_files_override_key_by_key_and_replace_lists(folder):
    (folder / "prod").mkdir()
    (folder / "prod" / "data.txt").write_text("three\n")
    later = "values: {data: data.txt, notes: [z], scale: null, loud: True}"
    files = [write(folder / "base.yaml", BASE), write(folder / "prod" / "prod.yaml", later)]
    assert main(["run", "-f", files[0], f"--file={files[1]}"]) == 0
    assert counted(folder / "out") == {"count": 1.0, "loud": True, "notes": ["z"]}


def test_variables_stand_in_any_value_and_are_not_parsed_as_yaml(folder, monkeypatch):
    monkeypatch.setenv("UNIT", "lines")
    monkeypatch.setenv("SCALE", "1.5")
    monkeypatch.setenv("NOTE", "a, b]: {c} # d\n- e ${UNIT}")
    text = "unit: ${UNIT}\n  scale: ${SCALE}\n  notes: ['${NOTE}', $UNIT]"
    file = write(folder / "run.yaml", re.sub(r"unit: lines.*", f"{text}\n", BASE, flags=re.S))
    assert main(["run", "-f", file]) == 0
    notes = ["a, b]: {c} # d\n- e ${UNIT}", "$UNIT"]
    assert counted(folder / "out") == {"count": 3.0, "loud": False, "notes": notes}


@pytest.mark.parametrize(
    ("text", "line", "received", "hint"),
    [
        ("pipelin: x", 1, "pipelin", "did you mean pipeline or"),
        ("root: a\nserver:\n  token: secret-text", 3, "server.token", "did you mean token_file?"),
        ("root: a\nroot: b", 2, "the key 'root' twice", "remove"),
        ("a: [", 1, "expected the node content", "correct this line"),
        ("images: a-{kind}:1\npods: {cpu: {a: 1}}", 2, "pods.cpu is a mapping", "write pods.cpu: VALUE"),
        ("pods:\n  memory: lots", 2, "pods.memory: lots", "docs/kubeflow.md"),
        ("pods:\n  steps:\n    count:\n      gpus: 1", 4, "pods.steps.count.gpus", "did you mean gpu"),
        ("pods:\n  steps:\n    count: {root: s3://b/c}", 3, "pods.steps.count.root", "known: "),
        ("pods:\n  env: A=b", 2, "pods.env is a text", "write KEY: VALUE"),
        ("values: [a]", 1, "values is a list", "write KEY: VALUE"),
        ("[a, b]", 1, "the file is a list", "write KEY: VALUE"),
        ("root: &a\n  b: *a", 1, "an alias inside of its own anchor", "remove the alias"),
        ("a: b\n---\nc: d", 2, "but found another document", "correct this line"),
        ("a: !!python/object:os.system x", 1, "a", "known: "),
        ("root: \x00", None, "unacceptable character #x0000", "correct this line"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(folder, capsys, text, line, received, hint):
    file = write(folder / "run.yaml", text)
    assert main(["run", str(folder / "counting.py"), "-f", file]) == 1
    error = capsys.readouterr().err.splitlines()
    assert error[0] == "tfopt: error" and len(error) == 4
    assert error[1].startswith(
        f"received: {file}, line {line}: {received}" if line else f"received: {file}: {received}"
    )
    assert error[3].startswith("how to fix: ") and hint in error[3]
    assert "secret-text" not in "".join(error)


@pytest.mark.parametrize(
    ("old", "new", "line", "received", "hint"),
    [
        ("scale: 2", "scael: 2", 8, "values.scael", "did you mean scale?"),
        ("scale: 2", "scale: 11", 8, "counting: scale=11", "pass scale=1.0"),
        ("scale: 2", "scale: yes", 8, "counting: scale='yes'", "pass scale=1.0"),
        ("scale: 2", "scale: [1, 2]", 8, "counting: scale=['1', '2']", "pass scale=1.0"),
        ("scale: 2", "scale: {a: 1}", 8, "values.scale is a mapping", "write values.scale: VALUE"),
        ("unit: lines", "unit: line", 7, "counting: unit='line'", "did you mean lines?"),
        ("unit: lines", "unit: ${UNSET_UNIT}", 7, "${UNSET_UNIT} is not set", "run it as UNSET_UNIT=…"),
        ("unit: lines", "unit: ${UNIT:-lines}", 7, "${UNIT:-lines}", "write ${NAME}"),
        ("unit: lines", "unit: ${UNIT", 7, "${UNIT", "write ${NAME}"),
        ("data: data.txt", "data: none.txt", 6, "{folder}/none.txt: no such file", "check the path"),
        ("engine: process", "engine: proces", 4, "engine: proces", "did you mean process?"),
        ("root: out", "pods: {steps: {conut: {cpu: 1}}}", 3, "pods.steps.conut.cpu", "did you mean count?"),
        ("root: out", "pods: {steps: {count: {reuse: yes}}}", 3, "pods.steps.count.reuse", "known: data, extra"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(folder, capsys, old, new, line, received, hint):
    file = write(folder / "run.yaml", BASE.replace(old, new))
    assert main(["run", "-f", file]) == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 4
    assert error[1].startswith(f"received: {file}, line {line}: {received.replace('{folder}', str(folder))}")
    assert hint in error[3]
    assert not (folder / "out").exists()


def test_a_missing_file_and_a_missing_pipeline(folder, capsys):
    assert main(["run", "-f", "none.yaml"]) == 1
    assert "received: -f none.yaml: no such file" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["run", "-f", write(folder / "empty.yaml", "# nothing\n")])
    assert stop.value.code == 2
    assert "arguments are required: pipeline" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["run", "retrain", "-f"])
    assert "argument -f/--file: expected one argument" in capsys.readouterr().err


def compiled(words: list[str], file: Path) -> tuple[dict, dict]:
    assert main(["compile", "-o", str(file), *words]) == 0
    spec, *platform = yaml.safe_load_all(file.read_text())
    return spec, (platform or [{}])[0]


def test_the_examples_compile_with_values_images_and_pods(tmp_path, monkeypatch):
    monkeypatch.delenv("DIGITS", raising=False)
    monkeypatch.setenv("KFP_ENDPOINT", "http://unused")
    files = [word for file in EXAMPLES for word in ("-f", str(file))]
    spec, platform = compiled(files, tmp_path / "retrain.yaml")
    inputs = spec["root"]["inputDefinitions"]["parameters"]
    defaults = {name: value["defaultValue"] for name, value in inputs.items() if "defaultValue" in value}
    assert defaults["data_uri"] == "s3://bucket/rows.csv" and defaults["module_uri"] == "s3://bucket/model.py"
    assert defaults["goals"] == ["quality max_degradation 1%", "accuracy threshold 0.95"]
    assert (defaults["destination"], defaults["warm_start"], defaults["min_change"]) == ("/models/digits", True, 0.05)
    assert (defaults["pack"], defaults["seconds"], defaults["epochs"]) == ("image=28x28x1", 4.0, 10)
    executors = spec["deploymentSpec"]["executors"]
    images = {name: executor["container"]["image"] for name, executor in executors.items() if "container" in executor}
    assert images["exec-train"] == f"registry.example/tfopt-gpu:{tfopt.__version__}"
    assert images["exec-evaluate"] == f"registry.example/tfopt-beam:{tfopt.__version__}"
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert {name for name, pod in pods.items() if "pvcMount" in pod} == {
        "exec-push-model",
        "exec-select-model",
        "exec-validate-serving",
        "exec-train",
    }
    assert pods["exec-train"]["nodeSelector"]["labels"] == {"pool": "gpu"}
    assert pods["exec-train"]["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert spec["defaultPipelineRoot"] == "s3://bucket/runs"


def test_options_of_a_file_equal_those_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("REGISTRY", "registry.example")
    text = """
pipeline: optimize
pipeline_name: nightly
images: {default: '${REGISTRY}/tfopt-{kind}:1', beam: registry.example/mine:2}
values: {label: no, batch_sizes: [1, 8], goals: quality max_degradation 2%}
pods:
  cpu: 0.5
  env: {OMP_NUM_THREADS: 1, A.B: x=y}
  toleration: [a:NoSchedule, b=c:NoExecute]
  steps: {examples: {reuse: yes}, evaluate: {memory: 8Gi, user: 10001:10001}}
"""
    words = ["optimize", "--pipeline-name", "nightly", "--image", "registry.example/tfopt-{kind}:1"]
    words += ["--image", "beam=registry.example/mine:2", "--set", "label=no", "--set", 'batch_sizes=["1","8"]']
    words += ["--set", "goals=quality max_degradation 2%"]
    for option in ("cpu=0.5", "env.OMP_NUM_THREADS=1", "env.A.B=x=y", "toleration=a:NoSchedule"):
        words += ["--kfp-option", option]
    for option in (
        "toleration=b=c:NoExecute",
        "examples:reuse=yes",
        "evaluate:memory=8Gi",
        "evaluate:user=10001:10001",
    ):
        words += ["--kfp-option", option]
    from_file = compiled(["-f", write(tmp_path / "run.yaml", text)], tmp_path / "a.yaml")
    assert from_file == compiled(words, tmp_path / "b.yaml")
    overridden = [
        "-f",
        str(tmp_path / "run.yaml"),
        "--image",
        "beam=x/y:3",
        "--kfp-option",
        "cpu=4",
        "--set",
        "label=l",
    ]
    spec, _ = compiled(overridden, tmp_path / "c.yaml")
    assert spec["root"]["inputDefinitions"]["parameters"]["label"]["defaultValue"] == "l"
    container = spec["deploymentSpec"]["executors"]["exec-evaluate"]["container"]
    assert (container["image"], container["resources"]["resourceCpuLimit"]) == ("x/y:3", "4")


@pytest.mark.parametrize(
    ("goal", "expected", "hint"),
    [
        ("{metric: quality, max_degradatoin: 1%}", "a metric, and one of", "did you mean max_degradation or"),
        ("{metric: quality}", "a metric, and one of", "write {metric: quality, max_degradation: 1%}"),
        ("{max_degradation: 1%}", "a metric, and one of", "write {metric: quality, max_degradation: 1%}"),
        ("{metric: quality, threshold: 0.9, max_degradation: 1%}", "a metric, and one of", "write {metric: quality"),
        ("{metric: accuracy, threshold: 90%}", "a plain number", "write accuracy threshold 90"),
        ("accuracy treshold 0.9", "one of threshold", "did you mean threshold?"),
    ],
)
def test_a_wrong_goal_is_refused_with_its_line(tmp_path, capsys, goal, expected, hint):
    text = f"pipeline: optimize\nvalues:\n  goals:\n    - size threshold 9\n    - {goal}\n"
    assert main(["compile", "-o", str(tmp_path / "x.yaml"), "-f", write(tmp_path / "run.yaml", text)]) == 1
    received, second, fix = capsys.readouterr().err.splitlines()[1:]
    assert ", line 5: goal " in received
    assert expected in second and hint in fix


@pytest.mark.parametrize(
    ("values", "received"),
    [("destination: pushed", "values.destination: pushed"), ("examples: examples", "--set examples=")],
)
def test_paths_of_this_machine_are_refused_for_the_cluster(tmp_path, capsys, values, received):
    text = f"pipeline: optimize\nvalues:\n  {values}\n"
    assert main(["compile", "-o", str(tmp_path / "x.yaml"), "-f", write(tmp_path / "run.yaml", text)]) == 1
    assert f"run.yaml, line 3: {received}" in capsys.readouterr().err


def test_values_are_refused_for_a_component(tmp_path, capsys):
    file = write(tmp_path / "run.yaml", "pipeline: evaluate\nvalues: {label: x}\n")
    assert main(["compile", "-o", str(tmp_path / "x.yaml"), "-f", file]) == 1
    assert "--set for evaluate" in capsys.readouterr().err
    assert (
        main(["compile", "-o", str(tmp_path / "x.yaml"), "optimize", "--as-component", "--set", "model=s3://b/m"]) == 1
    )
    assert "--set model=s3://b/m with --as-component" in capsys.readouterr().err


def test_submit_and_schedule_take_everything_from_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kfp.client.Client._LOCAL_KFP_CONTEXT", str(tmp_path / "no-context.json"))
    monkeypatch.delenv("KFP_TOKEN", raising=False)
    files = [word for file in EXAMPLES for word in ("-f", str(file))]
    (tmp_path / "token").write_text("abc\n")
    later = write(
        tmp_path / "later.yaml", "server: {token_file: token, experiment: night}\nschedule: {cron: 0 0 4 * * *}"
    )
    with KfpServer() as server:
        server.token = "abc"
        monkeypatch.setenv("KFP_ENDPOINT", server.url)
        assert main(["submit", *files, "-f", later]) == 0
        assert main(["schedule", *files, "-f", later]) == 0
        assert main(["schedule", *files, "-f", later, "--name", "other", "--set", "epochs=3"]) == 0
        (run,) = server.kinds["runs"].values()
        schedules = {one["display_name"]: one for one in server.kinds["recurringruns"].values()}
        (experiment,) = server.kinds["experiments"].values()
        wrong = write(tmp_path / "wrong.yaml", "schedule:\n  cron: 0 4 * * *\n")
        capsys.readouterr()
        assert main(["schedule", *files, "-f", later, "-f", wrong]) == 1
        assert f"received: {wrong}, line 2: cron " in capsys.readouterr().err
        assert main(["schedule", *files, "-f", later, "-f", wrong, "--cron", "0 5 * * *"]) == 1
        assert "received: cron " in capsys.readouterr().err
    assert run["display_name"].startswith("retrain ") and run["service_account"] == "tfopt-runner"
    assert experiment["display_name"] == "night"
    assert set(schedules) == {"digits", "other"}
    assert schedules["digits"]["trigger"]["cron_schedule"]["cron"] == "0 0 4 * * *"
    parameters = schedules["other"]["runtime_config"]["parameters"]
    assert parameters["epochs"] == 3 and parameters["goals"][0] == "quality max_degradation 1%"


# The schema


@pytest.mark.parametrize("name", pipelines())
def test_the_schema_has_every_value_step_and_option(name):
    schema, dag = pipeline_schema(name), load(name)
    jsonschema.Draft7Validator.check_schema(schema)
    properties = schema["properties"]
    assert set(properties) == set(TOP_KEYS)
    for section in ("server", "schedule"):
        assert set(properties[section]["properties"]) == set(OPTIONS[section])
    assert set(properties["values"]["properties"]) == {*dag.sources, *dag.parameters}
    assert set(properties["pods"]["properties"]["steps"]["properties"]) == {*dag.sources, *dag.steps}
    assert set(properties["pods"]["properties"]) == {key.partition(".")[0] for key in KEYS} | {"steps"}
    for one in [properties, properties["values"]["properties"], properties["server"]["properties"]]:
        assert all(entry["description"] and "%(" not in entry["description"] for entry in one.values())


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_follow_the_schema_that_they_name(file):
    first = file.read_text().splitlines()[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert named
    schema = json.loads((file.parent / named[1]).read_text())
    assert schema == pipeline_schema("retrain")
    jsonschema.validate(yaml.safe_load(file.read_text()), schema)


@pytest.mark.parametrize(
    "text",
    [
        "pipelin: retrain",
        "values: {epoch: 3}",
        "values: {epochs: -1}",
        "values: {epochs: many}",
        "values: {missing: omitt}",
        "values: {warm_start: 'yes'}",
        "values: {goals: [{metric: quality, max_degradatoin: 1}]}",
        "values: {goals: [{metric: quality}]}",
        "values: {splits: [{metric: quality, max_degradation: 1}]}",
        "pods: {cpus: 1}",
        "pods: {memory: lots}",
        "pods: {toleration: [gpu]}",
        "pods: {steps: {trian: {cpu: 1}}}",
        "pods: {steps: {train: {root: s3://b/c}}}",
        "server: {token: abc}",
        "engine: cloud",
    ],
)
def test_the_schema_and_the_command_refuse_the_same(text, tmp_path, capsys):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), pipeline_schema("retrain"))
    data = [word for name in ("data", "module") for word in ("--set", f"{name}={__file__}")]
    assert main(["run", "retrain", *data, "--root", str(tmp_path), "-f", write(tmp_path / "run.yaml", text)]) == 1
    assert "run.yaml, line 1: " in capsys.readouterr().err


def test_the_schema_allows_variables_null_and_other_forms():
    text = """
engine: ${ENGINE}
values: {epochs: "${EPOCHS}", missing: ${MISSING}, label: null, goals: size threshold 9, columns: [a:int64]}
pods: {cpu: "${CPU}", toleration: a:NoSchedule, env: {A: 1, B: x}, steps: {data: {reuse: 'yes'}}}
images: {default: "a-{kind}:1", mine: b:2}
"""
    jsonschema.validate(yaml.safe_load(text.replace(" ${MISSING}", " '${MISSING}'")), pipeline_schema("retrain"))


def test_schema_is_printed_or_written(folder, capsys):
    assert main(["schema", str(folder / "counting.py"), "-o", str(folder / "new" / "schema.json")]) == 0
    assert capsys.readouterr().out == f"{folder / 'new' / 'schema.json'}\n"
    assert main(["schema", str(folder / "counting.py")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "new" / "schema.json").read_text())
    assert set(printed["properties"]["values"]["properties"]) == {
        "data",
        "extra",
        "scale",
        "unit",
        "loud",
        "notes",
        "limit",
    }


def laughs(levels: int) -> str:
    """Return lines in which each value repeats the one before ten times."""
    lines = ["  extra: {a: &a0 [x]"]
    lines += [
        f"    b{level}: &a{level} {{{', '.join(f'k{n}: *a{level - 1}' for n in range(10))}}}"
        for level in range(1, levels)
    ]
    return "pipeline: counting\nvalues:\n" + ",\n".join(lines) + "}\n"


def test_aliases_that_repeat_each_other_are_bounded(folder, capsys):
    for name in ("one.yaml", "two.yaml"):
        write(folder / name, laughs(12))
    assert main(["run", "-f", str(folder / "one.yaml"), "-f", str(folder / "two.yaml")]) == 1
    error = capsys.readouterr().err
    assert "as aliases repeat them" in error and "expected: at most" in error and "how to fix: write" in error
    deep = ",\n".join(f"    b{level}: &a{level} [{f'*a{level - 1}' if level else 'x'}]" for level in range(5000))
    for name in ("one.yaml", "two.yaml"):
        write(
            folder / name,
            f"pipeline: counting\nvalues:\n  extra: {{\n{deep.replace('[', '{k: ').replace(']', '}')}}}\n",
        )
    assert main(["run", "-f", str(folder / "one.yaml"), "-f", str(folder / "two.yaml")]) == 1
    assert capsys.readouterr().err.count("how to fix") == 1


def test_a_few_aliases_are_read(folder):
    text = "engine: process\nroot: root\nvalues:\n  data: &name data.txt\n  extra: *name\n"
    text += f"pipeline: {folder / 'counting.py'}\n"
    assert main(["run", "-f", write(folder / "run.yaml", text)]) == 0

"""Test the replay of a recording in a pipeline: a first version, one that fails, one that passes, and without it."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

from tests.dag.test_same_dag import kfp_graph, process_graph, tfx_graph
from tests.runtimes.formulas import onnx
from tfopt.cli.main import main
from tfopt.dag.tracing import load, pipelines

PIPELINE = '''
"""Push a blessed model."""

from tfopt import Input, Steps
from tfopt.artifacts import Blessing, Files, Model


def pushing(
    steps: Steps,
    model: Input[Model],
    fallback: Input[Model],
    blessing: Input[Blessing],
    recording: Input[Files] | None = None,
    *,
    destination: str = "pushed",
) -> None:
    """Push a blessed model after a serving test and a replay, as the shipped pipelines do."""
    both = {"model": model, "fallback": fallback}
    tested = steps.validate_serving(**both, seconds=0.05, requests=4).outputs["infra_blessing"]
    goals = ["disagreement max 3%"]
    replayed = steps.replay(model=model, recording=recording, tested=tested, destination=destination, goals=goals)
    passed = replayed.outputs["infra_blessing"]
    steps.push_model(**both, blessing=blessing, infra_blessing=passed, destination=destination)
'''
IMAGES, LABELS = load_digits(return_X_y=True)


def write_model(folder: Path, name: str, *, reads_negative: bool) -> Path:
    """Write a classifier by the nearest mean of a class; without it, negative values count as 0."""
    means = np.stack([IMAGES[digit == LABELS].mean(0) for digit in range(10)]).astype(np.float32)
    nodes = [] if reads_negative else [helper.make_node("Relu", ["image"], ["positive"])]
    nodes += [
        helper.make_node("Reshape", ["image" if reads_negative else "positive", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["products"]),
        helper.make_node("Add", ["products", "b"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["digit"]),
    ]
    shapes = {"image": (TensorProto.FLOAT, ["batch", 8, 8, 1])}
    model = onnx(folder / f"{name}.onnx", nodes, shapes, {"digit": (TensorProto.FLOAT, ["batch", 10])})
    import onnx as library

    proto = library.load(str(model.path))
    values = {"shape": np.array([-1, 64]), "w": means.T / 10, "b": -(means**2).sum(1) / 20}
    for key, value in values.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value, value.dtype), key))
    library.save(proto, str(model.path))
    return model.path


def write_requests(file: Path, sign: float) -> Path:
    rows = [{"instances": [(sign * image).reshape(8, 8, 1).tolist()]} for image in IMAGES[:300]]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def test_a_recording_decides_about_every_version_but_the_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pushing.py").write_text(PIPELINE)
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "policy.yaml").write_text("owner: me\nreplay: true\n")
    (tmp_path / "blessing").mkdir()
    (tmp_path / "blessing" / "BLESSED").touch()
    first, second = (write_model(tmp_path, name, reads_negative=name == "first") for name in ("first", "second"))
    usual, negative = (write_requests(tmp_path / f"{sign}.jsonl", sign) for sign in (1, -1))

    def run(model: Path, recording: Path | None, command: str = "run") -> int:
        values = {"model": model, "fallback": first, "blessing": tmp_path / "blessing"}
        values |= {"recording": recording} if recording else {}
        words = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
        return main([command, "pushing.py", "--engine", "process", "--root", "run", *words])

    def newest(file: str) -> dict:
        reports = (tmp_path / "run" / "artifacts").glob(f"*/*/*/{file}")
        return json.loads(max(reports, key=lambda path: path.stat().st_mtime_ns).read_text())

    assert run(first, negative) == 0
    assert newest("replay.json")["reason"].startswith("no version is served in pushed yet: the result of validate_s")
    assert newest("pushed.json")["version"] == 1
    assert run(first, usual) == 0
    assert newest("replay.json")["reason"] == "version 1 in pushed, which is served, is this very model"
    assert newest("pushed.json")["reason"] == "the newest version is this very model already"
    assert run(second, None, "plan") == 1
    assert "push_model without a replay" in capsys.readouterr().err
    assert run(second, negative) == 0
    output = capsys.readouterr().out
    assert "not pushed: not blessed: it failed the replay: " in output and "of 64 answers disagree" in output
    assert "first.onnx is not pushed either: the requests were not replayed to it" in output
    assert run(second, usual) == 0
    assert f"pushed: {tmp_path}/pushed/2" in capsys.readouterr().out
    assert newest("replay.json")["reason"] == "0.0% of 300 answers disagree (0% to 1.5%)"
    assert run(second, usual) == 0
    assert newest("replay.json")["reason"].startswith("version 2 in pushed")  # the verdict on version 1 is not reused
    (tmp_path / "pushed" / "policy.yaml").unlink()
    assert run(first, None) == 0
    assert newest("pushed.json")["version"] == 3


PIPELINES = [pytest.param(name, marks=[] if name == "tune" else [pytest.mark.nightly]) for name in pipelines()]


@pytest.mark.parametrize("name", PIPELINES)
def test_without_a_recording_no_engine_has_the_step(name, tmp_path):
    dag = load(name)
    values = {
        source.name: f"objects://{tmp_path}/{source.name}" for source in dag.sources.values() if not source.optional
    }
    for source in values:
        (tmp_path / source).write_text(source)
    values |= {"label": "digit"} if "label" in dag.parameters else {}
    values |= {parameter.name: parameter.sample() for parameter in dag.parameters.values() if parameter.required}
    graphs = [tfx_graph(dag, values, tmp_path), kfp_graph(dag, values, tmp_path), process_graph(dag, values, tmp_path)]
    assert graphs[0] == graphs[1] == graphs[2]
    assert dag.steps.keys() - graphs[0].keys() == {"replay"}
    assert graphs[0]["push_model"]["edges"]["infra_blessing"] == ("validate_serving", "infra_blessing")

"""Test that a pipeline is checked while it is traced, independently of the engine."""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from tests import toys
from tfopt.artifacts import Examples, Files, KerasModel, Model, PythonModule, Report, SavedModel
from tfopt.component import Between, Group, Input
from tfopt.dag.dag import Placeholder, StepOutput
from tfopt.dag.tracing import Inherited, Steps, load, pipelines, trace
from tfopt.errors import ComponentError


def pipeline(
    steps: Steps, data: Input[Files], more: Input[Files] | None = None, *, scale: float = 2.0, unit: str = "bytes"
) -> None:
    """Count twice and add.

    Args:
        steps: The components.
        data: A file.
        more: Another.
        scale: A factor.
        unit: What is counted.
    """
    first = steps(toys.count, data=data, scale=scale, unit=unit)
    second = steps(toys.count, data=data, loud=True)
    steps(toys.add, id="sum", reports=[first.outputs["report"], second.outputs["report"]])


def test_the_dag_holds_steps_wires_sources_and_parameters():
    dag = trace(pipeline)
    assert list(dag.steps) == ["count", "count_2", "sum"]
    assert dag.steps["sum"].inputs == {
        "reports": (StepOutput("count", "report", Report), StepOutput("count_2", "report", Report))
    }
    assert isinstance(dag.steps["count"].parameters["scale"], Placeholder)
    assert [source.optional for source in dag.sources.values()] == [False, True]
    assert dag.description == "Count twice and add."
    assert dag.sources["data"].description == "A file."


def teaching(
    steps: Steps,
    model: Input[KerasModel],
    examples: Input[Examples],
    module: Input[PythonModule],
    teacher: Input[Model] | None = None,
) -> None:
    """Export a model, and with a teacher a smaller one.

    Args:
        steps: The components.
        model: A model.
        examples: Records.
        module: Its Python file.
        teacher: Another model.
    """
    fine_tuning = {"examples": examples, "module": module, "teacher": teacher}
    smaller = steps.prune(id="smaller", model=model, **fine_tuning, requires=["teacher"]).outputs["pruned"]
    candidates = [
        steps.export_tflite(id=id, model=one, precision="float32").outputs["exported"]
        for id, one in (("plain", model), ("taught", smaller))
    ]
    steps.evaluate(baseline=model, candidates=candidates, examples=examples)


def test_without_an_input_that_a_step_requires_here_it_and_all_that_use_its_outputs_are_left_out():
    dag = trace(teaching)
    alone, taught = dag.with_sources({}), dag.with_sources({"teacher": "folder"})
    assert list(alone.steps) == ["plain", "evaluate"]
    assert [wire.step for wire in alone.steps["evaluate"].inputs["candidates"]] == ["plain"]
    assert list(taught.steps) == ["smaller", "plain", "taught", "evaluate"]
    assert [wire.step for wire in taught.steps["evaluate"].inputs["candidates"]] == ["plain", "taught"]


def test_only_optional_inputs_can_be_required_in_a_pipeline():
    def wrong(steps: Steps, model: Input[SavedModel]) -> None:
        """Require an input that is always there.

        Args:
            steps: The components.
            model: A model.
        """
        steps.fold_batch_norm(model=model, requires=["model", "exmples"])

    expected = r"requires=\['exmples', 'model'\](.|\n)*optional inputs(.|\n)*one of examples"
    with pytest.raises(ComponentError, match=expected):
        trace(wrong)


def test_values_are_checked_against_the_pipeline_and_against_every_step():
    dag, here = trace(pipeline), str(Path(__file__).absolute())
    assert dag.values({"data": __file__}) == {"data": here, "more": None, "scale": 2.0, "unit": "bytes"}
    with pytest.raises(ComponentError, match="no such file"):
        dag.values({"data": "x"})
    with pytest.raises(ComponentError, match="no data"):
        dag.values({})
    with pytest.raises(ComponentError, match="did you mean scale"):
        dag.values({"data": "x", "scal": 1})
    with pytest.raises(ComponentError, match="float from 0 to 10"):
        dag.values({"data": here, "scale": 11.0})
    with pytest.raises(ComponentError, match="one of bytes, lines"):
        dag.values({"data": here, "unit": "words"})


def test_wiring_of_another_type_is_refused():
    def bad(steps, model: Input[Model], examples: Input[Files]) -> None:
        steps(toys.take_keras, model=model, examples=examples)

    with pytest.raises(ComponentError) as refusal:
        trace(bad)
    assert (refusal.value.received, refusal.value.expected) == ("take_keras: model is a Model", "KerasModel")


@pytest.mark.parametrize(
    ("wires", "message"),
    [
        ({}, "no reports"),
        ({"reports": "path"}, "an output of a step"),
        ({"reports": ["path"]}, "an output of a step"),
        ({"reports": "REFERENCE"}, "reports is one"),
        ({"reports": ["REFERENCE"], "extra": ["REFERENCE"]}, "extra is a list"),
        ({"reports": ["REFERENCE"], "start": "PLACEHOLDER"}, "start='text'"),
    ],
)
def test_a_wrong_wire_is_refused(wires, message):
    def bad(steps, data: Input[Files], *, text: str = "text") -> None:
        reference = steps(toys.count, data=data).outputs["report"]
        wired = {"REFERENCE": reference, "PLACEHOLDER": text}
        steps(
            toys.add,
            **{
                name: [wired.get(w, w) for w in wire] if isinstance(wire, list) else wired.get(wire, wire)
                for name, wire in wires.items()
            },
        )

    with pytest.raises(ComponentError, match=message):
        trace(bad)


def test_a_step_that_keeps_the_type_of_its_model_passes_on_the_narrower_one():
    def fold_first(steps, model: Input[KerasModel]) -> None:
        steps.cluster(model=steps.fold_batch_norm(model=model).outputs["folded"])

    def without_a_keras_form(steps, model: Input[SavedModel]) -> None:
        steps.cluster(model=steps.fold_batch_norm(model=model).outputs["folded"])

    assert trace(fold_first).steps["cluster"].inputs == {"model": StepOutput("fold_batch_norm", "folded", KerasModel)}
    with pytest.raises(ComponentError, match="cluster: model is a SavedModel"):
        trace(without_a_keras_form)


def test_a_dag_may_not_depend_on_a_value_known_only_at_run_time():
    def decides(steps, *, flag: bool = True) -> None:
        if flag:
            steps(toys.count)

    def formats(steps, data: Input[Files], *, text: str = "x") -> None:
        steps(toys.count, data=data, notes=[f"{text}!"])

    for bad in (decides, formats):
        with pytest.raises(ComponentError, match="passed to a step as it is"):
            trace(bad)


def test_two_steps_of_one_name_are_refused():
    def twice(steps, data: Input[Files]) -> None:
        steps(toys.count, id="same", data=data)
        steps(toys.count, id="same", data=data)

    with pytest.raises(ComponentError, match="two steps named same"):
        trace(twice)


@pytest.mark.parametrize("id", ["../../x", "/tmp/x", "a b", "Größe", "1st", "a" * 64])
def test_the_name_of_a_step_is_no_path(id):
    def named(steps, data: Input[Files]) -> None:
        """Count."""
        steps(toys.count, data=data, id=id)

    with pytest.raises(ComponentError, match=r"(?s)a step named .*small letters, digits.*write id='\w+'"):
        trace(named)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys\n\nsys.exit(0)\n", "line 3: SystemExit: 0"),
        ("import not_there\n", "line 1: ModuleNotFoundError: No module named 'not_there'"),
        ("def broken(steps:\n", "line 1: SyntaxError"),
        ("\nraise KeyError('x')\n", "line 2: KeyError: 'x'"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_with_its_line(tmp_path, text, message):
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(ComponentError, match=rf"(?s){re.escape(f'{file}, {message}')}.*correct the file"):
        load(str(file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipe = 3", r"no function pipe\(steps, …\)"),
        ("def pipe():\n    pass", r"no function pipe\(steps, …\)"),
        ("def pipe(steps):\n    {}['x']", "pipe.py, line 2: KeyError: 'x'"),
        ("def pipe(steps):\n    exit(0)", "pipe.py, line 2: SystemExit: 0"),
        ("def pipe(steps):\n    pipe(steps)", "pipe.py, line 2: RecursionError"),
        ("def pipe(steps):\n    steps(5)", "pipe.py, line 2: AttributeError"),
        ("def pipe(steps):\n    steps.inspect_model(id=5, model=None)", "a step named 5"),
        ("def pipe(steps, data: int):\n    pass", r"pipe: data is declared as int(?s:.*)Input\["),
        ("def pipe(steps, data):\n    pass", "pipe: data is declared without a type"),
        ("def pipe(steps, *, x: int = 1):\n    x > 3", "pipe.py, line 2: TypeError: '>' not supported"),
        ("raise GeneratorExit", "pipe.py, line 1: GeneratorExit"),
    ],
)
def test_a_pipeline_function_that_raises_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "pipe.py").write_text(text)
    with pytest.raises(ComponentError, match=message):
        load(str(tmp_path / "pipe.py"))


def test_a_pipeline_is_loaded_by_name_or_from_a_file(tmp_path: Path):
    assert {"retrain", "optimize"} <= set(pipelines())
    assert load("optimize").name == "optimize"
    file = tmp_path / "mine.py"
    file.write_text("def mine(steps):\n    '''Nothing.'''\n")
    assert load(str(file)).steps == {}
    with pytest.raises(ComponentError, match="did you mean retrain"):
        load("retrian")
    with pytest.raises(ComponentError, match="no such file"):
        load(str(tmp_path / "absent.py"))
    file.write_text("x = 1\n")
    with pytest.raises(ComponentError, match="no function mine"):
        load(str(file))


def test_a_pipelines_parameter_inherits_choices_range_and_description_from_the_step_it_reaches():
    dag = trace(pipeline)
    assert (dag.parameters["unit"].choices, dag.parameters["unit"].default) == (("bytes", "lines"), "bytes")
    assert dag.parameters["scale"].between == toys.count.parameters["scale"].between
    assert dag.parameters["scale"].description == "A factor."  # its own


def test_a_pipelines_parameter_has_the_range_that_it_and_its_step_allow():
    def narrowed(steps, data: Input[Files], *, scale: Annotated[float, Between(1, 20)] = 2.0) -> None:
        steps(toys.count, data=data, scale=scale)

    assert trace(narrowed).parameters["scale"].between == Between(1, 10)


def test_a_value_of_another_type_than_the_steps_is_checked_before_the_first_step():
    def whole(steps, data: Input[Files], *, scale: int = 2) -> None:
        steps(toys.count, data=data, scale=scale)

    with pytest.raises(ComponentError, match="float from 0 to 10"):
        trace(whole).values({"data": __file__, "scale": 11})


def test_an_inherited_parameter_has_everything_from_its_step_and_may_set_another_default():
    @dataclass(frozen=True)
    class Counting:
        """Options of counting.

        Attributes:
            notes: Remarks.
        """

        unit: Inherited
        notes: Inherited = ("a", "b")

    def inherits(steps, data: Input[Files], *, counting: Group[Counting], scale: Inherited, limit: Inherited) -> None:
        steps(toys.count, data=data, unit=counting.unit, notes=counting.notes, scale=scale, limit=limit)

    dag, declared = trace(inherits), toys.count.parameters
    assert list(dag.parameters) == ["unit", "notes", "scale", "limit"]
    for name in ("unit", "scale", "limit"):
        assert dag.parameters[name] == declared[name]
    assert (dag.parameters["notes"].default, dag.parameters["notes"].description) == (["a", "b"], "Remarks.")
    assert dag.steps["count"].parameters["unit"] == Placeholder(declared["unit"])
    with pytest.raises(ComponentError, match="one of bytes, lines"):
        dag.values({"data": __file__, "unit": "words"})
    values = dag.values({"data": __file__, "notes": ["c"]})
    assert (values["unit"], values["notes"], values["limit"]) == ("bytes", ["c"], None)


def test_an_inherited_parameter_that_reaches_no_step_or_several_defaults_is_refused():
    def nowhere(steps, data: Input[Files], *, scale: Inherited) -> None:
        steps(toys.count, data=data)

    def types(steps, data: Input[Files], *, scale: Inherited) -> None:
        steps(toys.count, data=data, scale=scale)
        steps(toys.note, data=data, book=scale)

    def defaults(
        steps, model: Input[KerasModel], examples: Input[Examples], module: Input[PythonModule], *, epochs: Inherited
    ) -> None:
        inputs = {"model": model, "examples": examples, "module": module}
        steps.prune(**inputs, epochs=epochs)
        steps.quantize(**inputs, epochs=epochs)

    with pytest.raises(ComponentError, match="scale is passed to no step"):
        trace(nowhere)
    with pytest.raises(ComponentError, match="reaches parameters of several types"):
        trace(types)
    with pytest.raises(ComponentError, match="epochs reaches parameters with several defaults"):
        trace(defaults)


def test_a_file_that_changed_within_a_second_to_the_same_size_is_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "numbered.py"
    for number in (1, 2):
        file.write_text(
            "from tests.toys import count\nfrom tfopt import Input, Steps\nfrom tfopt.artifacts import Files\n\n\n"
            f'def numbered(steps: Steps, data: Input[Files]) -> None:\n    """Count {number}."""\n'
            "    steps(count, data=data)\n"
        )
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert load(str(file)).description == f"Count {number}."

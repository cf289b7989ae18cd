"""Test the runner of workflows, which stands for Argo in the tests of this folder."""

import pytest

from tests.kfp_backend.workflow import WorkflowRunner


def workflow(*templates: dict) -> dict:
    values = [{"name": "kept", "value": "{{$}} {{inputs.parameters.text}}"}]
    return {
        "metadata": {"name": "w", "labels": {}},
        "spec": {"entrypoint": "main", "arguments": {"parameters": values}, "templates": list(templates)},
    }


def dag(*tasks: dict, **more) -> dict:
    return {"name": "main", "dag": {"tasks": list(tasks)}, **more}


def task(name: str, depends: str = "", when: str = "", text: str = "x", **more) -> dict:
    arguments = {"parameters": [{"name": "text", "value": text}]}
    return {"name": name, "template": "echo", "depends": depends, "when": when, "arguments": arguments, **more}


ECHO = {
    "name": "echo",
    "inputs": {"parameters": [{"name": "text"}]},
    "outputs": {"parameters": [{"name": "text"}]},
    "container": {"command": ["echo", "{{inputs.parameters.text}}"]},
    "podSpecPatch": '{"containers": [{"name": "main", "args": ["{{retries}}"]}]}',
    "retryStrategy": {"limit": "2"},
}


@pytest.fixture
def run():
    """Return a function that runs a workflow whose containers fail if they say ``fail``; it returns what they got."""

    def run_templates(*templates: dict) -> tuple[str, list[list[str]]]:
        text, reports = [], []

        def container(started):
            text.append([*started.spec["command"][1:], *started.spec["args"]])
            return int("fail" in text[-1][0]), {"text": text[-1][0].upper()}

        phase = WorkflowRunner(workflow(*templates), container, reports.append).run()
        assert reports[-1]["status"]["phase"] == phase
        return phase, text

    return run_templates


def test_a_task_runs_after_those_it_needs_with_their_values_which_are_filled_in_once(run):
    second = task("b", depends="a.Succeeded", text="{{tasks.a.outputs.parameters.text}} {{workflow.parameters.kept}}")
    assert run(dag(second, task("a")), ECHO) == ("Succeeded", [["x", "0"], ["X {{$}} {{inputs.parameters.text}}", "0"]])


def test_a_failed_task_is_retried_and_omits_those_that_need_it(run):
    phase, text = run(dag(task("a", text="fail"), task("b", depends="a.Succeeded"), task("c")), ECHO)
    assert phase == "Failed"
    assert text == [["fail", "0"], ["fail", "1"], ["fail", "2"], ["x", "0"]]


def test_a_task_is_skipped_unless_its_condition_holds(run):
    tasks = [task("a", when="false != false"), task("b", when="nil != false", depends="a.Succeeded", text="y")]
    assert run(dag(*tasks), ECHO) == ("Succeeded", [["y", "0"]])


def test_a_loop_runs_its_task_as_often_as_it_says(run):
    looped = task("b", depends="a.Succeeded", text="{{item}}")
    looped["withSequence"] = {"count": "{{tasks.a.outputs.parameters.text}}"}
    assert run(dag(task("a", text="2"), looped), ECHO)[1] == [["2", "0"], ["0", "0"], ["1", "0"]]


def test_what_the_runner_does_not_know_is_an_error(run):
    with pytest.raises(NotImplementedError, match="withItems"):
        run(dag(task("a", withItems=[1])), ECHO)
    with pytest.raises(NotImplementedError, match="Failed"):
        run(dag(task("a"), task("b", depends="a.Failed")), ECHO)

"""Test calls in a child process: results, exceptions and every kind of death."""

import copyreg
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.process_tree import has_ended, wait_until
from tfopt.errors import ComponentError, MachineError
from tfopt.processes import preloaded_processes
from tfopt.processes.parent_death import bound_command
from tfopt.processes.subprocess_call import calls_in_this_process, run_in_child


@pytest.fixture(autouse=True, params=["new process", "fork"], scope="module")
def _kind_of_child(request):
    """Run every test with children that are new processes, and with forks of a process that has imported TensorFlow."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "new process":
            patch.setattr(preloaded_processes, "_open", None)  # not the servers of the test session
        yield


# For tests of errors that the function raises: both kinds of children return errors with the same code, which
# `test_a_component_error_is_raised_in_the_parent` runs in both.
FORK = pytest.mark.parametrize("_kind_of_child", ["fork"], indirect=True, scope="module")


def double(values):
    return values * 2


def nested_processes():
    """Return the processes of this call, of a call in it, and of one that needs a variable."""
    with calls_in_this_process():
        inside = run_in_child(os.getpid, doing="asking")
        other = run_in_child(os.getpid, doing="asking", environment={"TFOPT_ANY": "1"})
    return os.getpid(), inside, other, run_in_child(os.getpid, doing="asking")


def refuse(what):
    raise ComponentError(what, "something else", "try again")


def crash(message):
    print(message)
    raise ValueError(message)


def fill(how):
    if how == "by errno":
        with Path("/dev/full").open("w") as stream:  # a device that is always full
            stream.write("x")
    if how == "in words":
        raise RuntimeError("RESOURCE_EXHAUSTED: model.bin; No space left on device\n\tat node 7")
    if how == "file by file":
        raise shutil.Error([("a", "b", "[Errno 28] No space left on device: 'a' -> 'b'"), ("c", "d", "[Errno 28] …")])
    raise ComponentError("the converter failed: No space left on device", "a model", "check that the model runs")


def stumble(message):
    raise ValueError(f"{message}\n\nArguments received:\n  training=False\n")


def lack(what):
    if what == "a package":
        import not_there  # noqa: F401
    raise MemoryError("Unable to allocate 99 TiB")


def warn(sign):
    print("the reason")
    print("WARNING:tensorflow:From /x/y.py:58: load (from z) is deprecated and will be removed.")
    print("Instructions for updating:\nUse `w` instead.", file=sys.stderr)
    print("I0000 00:00:1795790991.500888   30812 pass.cc:437] MLIR V1 is not enabled", file=sys.stderr)
    print("/x/y.py:9: UserWarning: v\n    more of it\n    \n  warnings.warn(TEXT)", flush=True)
    os.kill(os.getpid(), sign)


def die(number):
    print("Größe: last words", flush=True)
    os.kill(os.getpid(), number)


def talk(lines):
    for line in range(lines):
        print("line", line, "x" * 100)
    sys.exit(3)


def environment_of(name):
    return os.environ.get(name), os.getpid(), sys.stdin.read()


def unpicklable():
    return lambda: None


def sleep_and_write_pid(file):
    file.write_text(str(os.getpid()))
    time.sleep(120)


def test_the_result_is_returned():
    values = np.arange(200_000.0)
    np.testing.assert_array_equal(run_in_child(double, values, doing="doubling"), values * 2)


def test_a_process_that_may_die_makes_its_calls_itself():
    outer, inside, with_variable, after = run_in_child(nested_processes, doing="asking")
    assert outer != os.getpid() and inside == outer and outer not in (with_variable, after)


@FORK
@pytest.mark.parametrize("how", ["by errno", "in words", "file by file", "as something else"])
def test_a_full_disk_is_a_machine_error_from_every_library(how):
    with pytest.raises(MachineError, match="No space left on device") as refusal:
        run_in_child(fill, how, doing="converting")
    assert refusal.value.expected == "room for the outputs"
    assert refusal.value.fix == "free some disk space, or write elsewhere"
    assert "\n" not in refusal.value.received
    assert "('a'" not in refusal.value.received


def run_out_of_memory():
    print("terminate called after throwing an instance of 'std::bad_alloc'", flush=True)
    os.abort()


@pytest.mark.parametrize("how", ["the kernel kills it", "C++ aborts"])
def test_a_child_that_lacks_memory_is_a_machine_error(how):
    with pytest.raises(MachineError, match=r"(?s)converting: the process was killed by SIG(KILL|ABRT).*enough memory"):
        run_in_child(*(run_out_of_memory,) if how == "C++ aborts" else (die, 9), doing="converting")


def standard_modules():
    import random
    import textwrap

    return random.__file__, textwrap.__file__


def test_modules_in_the_working_folder_do_not_replace_those_of_the_library(tmp_path, monkeypatch):
    for name in ("random", "textwrap", "traceback", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "tfopt").mkdir()
    (tmp_path / "tfopt" / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    files = run_in_child(standard_modules, doing="importing")
    assert not any(file.startswith(str(tmp_path)) for file in files)
    assert subprocess.run(bound_command("true"), check=True).returncode == 0
    assert not (tmp_path / "ran").exists()


@FORK
@pytest.mark.parametrize(("what", "message"), [("a package", "No module named 'not_there'"), ("memory", "99 TiB")])
def test_missing_memory_and_packages_are_machine_errors(what, message):
    with pytest.raises(MachineError) as refusal:
        run_in_child(lack, what, doing="converting")
    assert message in refusal.value.received
    assert "\n" not in refusal.value.received


def test_the_child_has_its_own_environment_and_no_standard_input(monkeypatch):
    monkeypatch.setenv("TFOPT_X", "of this process")
    value, process, typed = run_in_child(environment_of, "TFOPT_X", doing="looking", environment={"TFOPT_X": "é"})
    assert value == "é" and process != os.getpid() and typed == "" and os.environ["TFOPT_X"] == "of this process"


def test_a_component_error_is_raised_in_the_parent():
    with pytest.raises(ComponentError) as error:
        run_in_child(refuse, "a thing", doing="trying")
    assert (error.value.received, error.value.expected, error.value.fix) == ("a thing", "something else", "try again")


@pytest.mark.parametrize(
    ("function", "argument", "first", "words"),
    [
        (crash, "kaputt", "ended with status 1: ValueError: kaputt", ["line", "in crash"]),
        (stumble, "kaputt", "ended with status 1: ValueError: kaputt", ["in stumble", "training=False"]),
        (die, signal.SIGKILL, "was killed by SIGKILL: Größe: last words", []),
        (
            die,
            signal.SIGSEGV,
            "was killed by SIGSEGV: Größe: last words (in ",
            ["test_subprocess_call.py, line", "in die)"],
        ),
        (warn, signal.SIGSEGV, "was killed by SIGSEGV: the reason (in ", ["in warn)"]),
        (talk, 100_000, "ended with status 3: line 99999 x", ["line 99998 x"]),
    ],
)
def test_the_death_of_the_child_is_an_error_with_its_last_lines(function, argument, first, words):
    with pytest.raises(ComponentError) as error:
        run_in_child(function, argument, doing="converting")
    assert error.value.received.startswith(f"converting: the process {first}")
    assert all(word in error.value.received for word in words)
    assert len(error.value.received) < 10_000


def test_a_result_that_cannot_be_pickled_is_an_error():
    with pytest.raises(ComponentError, match="pickle"):
        run_in_child(unpicklable, doing="answering")


def fail_after_an_error_of_tensorflow():
    """Raise an error whose cause cannot be pickled, in a process that pickles causes, as libraries make it do."""
    copyreg.pickle(ComponentError, lambda error: (ComponentError, error.args, {"__cause__": error.__cause__}))
    try:
        raise ValueError(threading.Lock())
    except ValueError as error:
        raise ComponentError("a model that fails", "one that runs", "pass another") from error


def test_an_error_is_returned_without_its_cause():
    with pytest.raises(ComponentError, match="a model that fails"):
        run_in_child(fail_after_an_error_of_tensorflow, doing="answering")


def test_a_function_that_cannot_be_imported_is_a_type_error():
    with pytest.raises(TypeError, match="not a function of an importable module"):
        run_in_child(lambda: None, doing="x")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_the_child_is_killed_when_the_parent_ends(tmp_path, sign):
    program = textwrap.dedent("""
        import sys, pathlib
        from tests.processes import test_subprocess_call as test_child
        from tfopt.processes.subprocess_call import calls_in_this_process, run_in_child
        run_in_child(test_child.sleep_and_write_pid, pathlib.Path(sys.argv[1]), doing="sleeping")
    """)
    pid_file = tmp_path / "pid"
    ours = subprocess.Popen([sys.executable, "-c", program, pid_file], stderr=subprocess.DEVNULL)
    try:
        child = psutil.Process(int(wait_until(lambda: pid_file.exists() and pid_file.read_text())))
        ours.send_signal(sign)
        ours.wait(30)
    finally:
        ours.kill()
    assert_ends(child)


def test_a_bound_command_is_killed_when_the_parent_ends():
    held = "import os, subprocess, sys, time; from tfopt.processes.parent_death import bound_command; "
    held += "print(subprocess.Popen(bound_command('sleep', '120')).pid, flush=True); time.sleep(120)"
    ours = subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, text=True)
    program = psutil.Process(int(ours.stdout.readline()))
    wait_until(lambda: program.name() == "sleep")
    ours.kill()
    ours.communicate()
    assert_ends(program)


def assert_ends(process: psutil.Process) -> None:
    try:
        wait_until(lambda: has_ended(process), 10)
    except AssertionError:
        process.kill()
        raise

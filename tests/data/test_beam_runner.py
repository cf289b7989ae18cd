"""Test runner arguments, and that pipelines leave nothing open."""

import pickle
import sys
import threading

import apache_beam
import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions, StandardOptions

from tests.distributions import install
from tfopt.data import beam_runner
from tfopt.data.beam_options import CachedOptions
from tfopt.errors import ComponentError

PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]


def square(folder):
    """Sum squares with the transforms that are exact on all runners, and return the written result."""
    file = folder / "sum"
    with beam_runner.pipeline() as pipeline:
        (
            pipeline
            | apache_beam.Create(range(100))
            | apache_beam.FlatMap(lambda number: [(0, number * number)])
            | apache_beam.CombinePerKey(sum)
            | apache_beam.Map(lambda keyed: file.write_text(str(keyed[1])))
        )
    return int(file.read_text())


def test_a_pipeline_runs_at_the_end_of_its_block(tmp_path):
    assert square(tmp_path) == 328350


def test_views_of_options_are_made_once_and_share_their_values_in_a_worker_too():
    options = CachedOptions(["--runner=FnApiRunner", "--impersonate_service_account=me"])
    view = options.view_as(StandardOptions)
    assert options.view_as(StandardOptions) is view
    view.runner = "DaskRunner"
    options.view_as(GoogleCloudOptions)
    copy = pickle.loads(pickle.dumps(options))
    assert copy.view_as(StandardOptions).runner == options.get_all_options()["runner"] == "DaskRunner"
    copy.view_as(StandardOptions).runner = "SparkRunner"
    assert copy.get_all_options()["runner"] == "SparkRunner"


def test_an_exception_in_the_block_prevents_the_run(tmp_path):
    with pytest.raises(ZeroDivisionError), beam_runner.pipeline() as pipeline:
        pipeline | apache_beam.Create([1]) | apache_beam.Map(lambda _: (tmp_path / "ran").touch())
        raise ZeroDivisionError
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], 1),
        (["--direct_num_workers=3"], 3),
        (["--runner=DirectRunner", "--direct_num_workers=3"], 3),
        (["--runner=DataflowRunner", "--max_num_workers=12"], 12),
        (["--runner=FlinkRunner", "--parallelism=6"], 6),
        (["--runner=SparkRunner"], 8),
    ],
)
def test_the_number_of_workers_is_read_from_the_arguments(arguments, expected):
    with beam_runner.runner_arguments(arguments):
        assert beam_runner.worker_count() == expected


RUNNER = """
import contextlib
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from tfopt.data.beam_runner import BeamRunner
from tfopt.errors import ComponentError

started = []

def check(arguments):
    if "--zone=a" not in arguments:
        raise ComponentError("no zone", "a zone", "pass --zone=a")

@contextlib.contextmanager
def start(arguments, options):
    started.append(list(arguments))
    try:
        yield FnApiRunner()
    except ZeroDivisionError as error:
        raise ComponentError("a lost zone", "a zone", "try again") from error

RUNNER = BeamRunner(check, start)
"""


def test_an_entry_point_of_another_package_adds_a_runner(tmp_path, monkeypatch):
    entries = {"otherrunner": "other_runner:RUNNER", "broken": "no_such_module:RUNNER"}
    install(tmp_path / "site", monkeypatch, "tfopt.beam_runners", entries, other_runner=RUNNER)
    with pytest.raises(ComponentError, match="no zone"):
        beam_runner.check_arguments(["--runner=other.OtherRunner"])
    with pytest.raises(ComponentError, match="broken of the package others"):
        beam_runner.check_arguments(["--runner", "Broken"])
    arguments = ["--runner=OtherRunner", "--zone=a"]
    beam_runner.check_arguments(arguments)
    with beam_runner.runner_arguments(arguments):
        assert square(tmp_path) == 328350
        with pytest.raises(ComponentError, match="a lost zone"), beam_runner.pipeline() as pipeline:
            pipeline | apache_beam.Create([1]) | apache_beam.Map(lambda _: 1 / 0)
    assert sys.modules["other_runner"].started == [arguments, arguments]


def test_an_invalid_argument_is_an_error_with_beams_message():
    with (
        beam_runner.runner_arguments(["--direct_num_workers=two"]),
        pytest.raises(ComponentError, match="invalid int value: 'two'"),
    ):
        beam_runner.worker_count()


@pytest.mark.parametrize(
    ("argument", "received"),
    [
        ("--runner=Foo", "Unexpected pipeline runner: Foo"),
        ("--runner=nowhere.Runner", "No module named 'nowhere'"),
        ("--runner=os.path.join", "TypeError"),
        ("--runner=InteractiveRunner", "InteractiveRunner: AttributeError"),
        ("--resource_hint=min_ram=abc", "invalid value abc"),
        ("--direct_num_worker=2", "direct_num_worker=2: --direct_num_worker"),
        ("direct", "direct: direct"),
        ("--direct_num_workers=-5", "--direct_num_workers=-5"),
        ("--direct_num_workers=99999999999999999999", "--direct_num_workers=99999999999999999999"),
    ],
)
def test_an_unknown_runner_or_option_is_an_error_in_three_parts(tmp_path, argument, received):
    with pytest.raises(ComponentError) as refusal, beam_runner.runner_arguments([argument]):
        square(tmp_path)
    assert received in refusal.value.received
    assert not (tmp_path / "sum").exists()
    with beam_runner.runner_arguments(["--direct_num_workers", "2"]):
        assert square(tmp_path) == 328350


def test_arguments_end_with_their_block_and_do_not_reach_other_threads():
    counts = []
    with beam_runner.runner_arguments(["--direct_num_workers=4"]):
        with beam_runner.runner_arguments(["--direct_num_workers=2"]):
            counts.append(beam_runner.worker_count())
        counts.append(beam_runner.worker_count())
        other = threading.Thread(target=lambda: counts.append(beam_runner.worker_count()))
        other.start()
        other.join()
    assert [*counts, beam_runner.worker_count()] == [2, 4, 1, 1]


@pytest.mark.timeout(120)
def test_workers_start_if_the_path_of_python_has_a_space_and_import_no_modules_of_the_working_folder(
    tmp_path, monkeypatch
):
    python = tmp_path / "my python"
    python.write_text(f'#!/bin/sh\ntouch "{tmp_path / "started"}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(beam_runner, "PYTHON", (str(python), *beam_runner.PYTHON[1:]))
    for name in ("random", "traceback", "apache_beam", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    with beam_runner.runner_arguments(PROCESSES):
        assert square(tmp_path) == 328350
    assert (tmp_path / "started").exists() and not (tmp_path / "ran").exists()


def test_no_other_runner_is_downloaded(tmp_path, caplog):
    caplog.set_level("INFO")
    square(tmp_path)
    with beam_runner.runner_arguments(["--runner=DirectRunner"]):
        square(tmp_path)
    assert "prism" not in caplog.text.lower()


def test_a_dask_cluster_in_this_process_is_rejected():
    import distributed

    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        beam_runner.runner_arguments(["--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}"]),
    ):
        with pytest.raises(ComponentError, match=r"(?s)inproc://.*a cluster of processes.*processes=True"):
            beam_runner.worker_count()
        with pytest.raises(ComponentError), beam_runner.pipeline():
            raise AssertionError("must not be reached")


def fail(_):
    raise RuntimeError("on purpose")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("KeyboardInterrupt [while running 'write']", KeyboardInterrupt),
        ("tfopt.cli.termination.Terminated [while running 'write']", KeyboardInterrupt),
        ("OSError: [Errno 28] No space left on device [while running 'write']", OSError),
        ("ValueError: Terminated [while running 'write']", RuntimeError),
    ],
)
def test_signals_and_errors_that_beam_returns_as_text_are_raised(message, error):
    with pytest.raises(error) as caught, beam_runner.worker_errors():
        raise RuntimeError(message)
    assert not isinstance(caught.value, OSError) or caught.value.errno == 28

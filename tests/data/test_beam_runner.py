"""The runner's arguments reach the pipeline, and nothing is left open after it."""

import sys
import threading

import apache_beam
import distributed
import pytest

from tests.process_tree import wait_until
from tfopt.data import beam_runner as beam
from tfopt.errors import ComponentError


def square(folder):
    """Sum squares with the shapes that are exact everywhere, and return what the last step wrote."""
    place = folder / "sum"
    with beam.pipeline() as pipeline:
        (
            pipeline
            | apache_beam.Create(range(100))
            | apache_beam.FlatMap(lambda number: [(0, number * number)])
            | apache_beam.CombinePerKey(sum)
            | apache_beam.Map(lambda keyed: place.write_text(str(keyed[1])))
        )
    return int(place.read_text())


def test_a_pipeline_runs_to_its_end_when_its_block_closes(tmp_path):
    assert square(tmp_path) == 328350


def test_an_exception_in_the_block_runs_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), beam.pipeline() as pipeline:
        pipeline | apache_beam.Create([1]) | apache_beam.Map(lambda _: (tmp_path / "ran").touch())
        raise ZeroDivisionError
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], 1),
        (["--direct_num_workers=3"], 3),
        (["--runner=DirectRunner", "--direct_num_workers=3"], 3),
        (["--runner=DataflowRunner", "--max_num_workers=12"], 12),
        (["--runner=FlinkRunner", "--parallelism=6"], 6),
        (["--runner=SparkRunner"], 8),
    ],
)
def test_the_number_of_workers_is_read_from_the_arguments(given, expected):
    with beam.runner_arguments(given):
        assert beam.worker_count() == expected


def test_an_argument_that_beam_does_not_take_is_an_error_that_says_so():
    with beam.runner_arguments(["--direct_num_workers=two"]), pytest.raises(ComponentError, match="invalid int value: 'two'"):
        beam.worker_count()


def test_arguments_end_with_their_block_and_do_not_reach_other_threads():
    found = []
    with beam.runner_arguments(["--direct_num_workers=4"]):
        with beam.runner_arguments(["--direct_num_workers=2"]):
            found.append(beam.worker_count())
        found.append(beam.worker_count())
        other = threading.Thread(target=lambda: found.append(beam.worker_count()))
        other.start()
        other.join()
    assert [*found, beam.worker_count()] == [2, 4, 1, 1]


@pytest.mark.timeout(120)
def test_workers_start_where_the_path_of_python_has_a_space(tmp_path, monkeypatch):
    python = tmp_path / "my python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with beam.runner_arguments(["--direct_running_mode=multi_processing", "--direct_num_workers=2"]):
        assert square(tmp_path) == 328350


def test_no_other_runner_is_fetched_behind_the_users_back(tmp_path, caplog):
    caplog.set_level("INFO")
    square(tmp_path)
    with beam.runner_arguments(["--runner=DirectRunner"]):
        square(tmp_path)
    assert "prism" not in caplog.text.lower()


def test_dasks_client_is_closed_after_each_run_and_work_is_spread(tmp_path):
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        with beam.runner_arguments(["--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}"]):
            assert beam.worker_count() == 2
            assert square(tmp_path) == 328350
            with pytest.raises(RuntimeError, match="on purpose"), beam.pipeline() as pipeline:
                pipeline | apache_beam.Create([1]) | apache_beam.Map(fail)
        wait_until(lambda: not [name for name in cluster.scheduler.clients if name.startswith("Client-")], 20)


def test_a_dask_cluster_in_this_process_is_refused_for_it_counts_twice():
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        beam.runner_arguments(["--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}"]),
    ):
        with pytest.raises(ComponentError, match=r"(?s)inproc://.*a cluster of processes.*processes=True"):
            beam.worker_count()
        with pytest.raises(ComponentError), beam.pipeline():
            raise AssertionError("must not be reached")


def fail(_):
    raise RuntimeError("on purpose")

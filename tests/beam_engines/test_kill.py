"""Test that a TaskManager or executor killed in the middle of a job costs no record: the same result, or an error."""

import json
import os
import threading
import time
import urllib.request

import psutil
import pytest

from tests.beam_engines import clusters
from tfopt.artifacts import Examples
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.data import beam_runner
from tfopt.errors import ComponentError

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
FILES, ROWS = 8, 15_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for part in range(FILES):
        rows = (f"{part * ROWS + index},{index / 7},{'ab'[index % 2]}" for index in range(ROWS))
        (folder / f"{part}.csv").write_text("\n".join(["x,y,label", *rows]) + "\n")
    return folder


def test_a_cluster_that_repeats_work_gives_the_same_files(data, tmp_path):
    prepare_examples(data=data, examples=tmp_path / "here")
    with clusters.flink(tmp_path / "cluster", 2, retries=3) as cluster:
        killed = prepare_while_killing(cluster, data, tmp_path / "there")
    assert killed.is_set()
    assert Examples(tmp_path / "here").digest == Examples(tmp_path / "there").digest
    counts = json.loads((tmp_path / "there" / "examples.json").read_text())["splits"]
    assert sum(counts.values()) == FILES * ROWS


@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
def test_workers_on_hosts_of_their_own_give_the_same_files_after_a_kill_and_a_partition(data, tmp_path):
    prepare_examples(data=data, examples=tmp_path / "here")

    def kill(cluster) -> None:
        clusters.wait_until(lambda: tasks_of_the_second_job(cluster) >= 2, "a second job with two running tasks", 300)
        cluster.kill_worker()
        cluster.add_worker(cluster.hosts[-1])

    def cut(cluster) -> None:
        clusters.wait_until(lambda: tasks_of_the_second_job(cluster) >= 2, "a second job with two running tasks", 300)
        with clusters.partition(cluster.hosts[0]):
            time.sleep(30)  # longer than the heartbeat's timeout of 10 s: the JobManager loses the TaskManager

    for disturb in (kill, cut):
        name = disturb.__name__
        with clusters.flink(tmp_path / name, 2, retries=5, hosts=True) as cluster:
            disturbed = prepare_while_killing(cluster, data, tmp_path / f"there-{name}", disturb)
        assert disturbed.is_set()
        assert Examples(tmp_path / "here").digest == Examples(tmp_path / f"there-{name}").digest


def test_a_cluster_that_repeats_nothing_ends_with_an_error_and_no_examples(data, tmp_path):
    with (
        clusters.flink(tmp_path / "cluster", 2) as cluster,
        pytest.raises(ComponentError, match="FlinkRunner") as caught,
    ):
        prepare_while_killing(cluster, data, tmp_path / "there")
    assert "restart-strategy" in caught.value.fix
    assert not (tmp_path / "there").exists()


def test_spark_repeats_the_work_of_a_killed_executor(data, tmp_path):
    prepare_examples(data=data, examples=tmp_path / "here")
    with clusters.spark(tmp_path / "cluster", 2) as cluster:
        killed = prepare_while_killing(cluster, data, tmp_path / "there", kill_an_executor_of_the_second_application)
    assert killed.is_set()
    assert Examples(tmp_path / "here").digest == Examples(tmp_path / "there").digest


def kill_in_the_second_job(cluster) -> None:
    clusters.wait_until(lambda: tasks_of_the_second_job(cluster) >= 2, "a second job with two running tasks", 300)
    cluster.kill_worker()
    cluster.add_worker()  # as an orchestrator does


def tasks_of_the_second_job(cluster) -> int:
    jobs = read_page(cluster)["jobs"]
    return max((job["tasks"]["running"] for job in jobs if job["state"] == "RUNNING" and len(jobs) == 2), default=0)


def kill_an_executor_of_the_second_application(cluster) -> None:
    """Kill one of the two executors when both have a Python worker."""

    def executors() -> list[psutil.Process]:
        page = read_page(cluster)
        if len(page["completedapps"]) != 1 or len(page["activeapps"]) != 1:
            return []
        started = [child for worker in cluster.workers for child in psutil.Process(worker.pid).children(recursive=True)]
        parents = {process.ppid() for process in started if runs(process, "tfopt-beam-worker")}
        return [process for process in started if process.pid in parents and runs(process, "CoarseGrainedExecutor")]

    clusters.wait_until(lambda: len(executors()) == 2, "two executors with workers in the second application", 300)
    executors()[0].kill()


def runs(process: psutil.Process, word: str) -> bool:
    try:
        return word in " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return False


def read_page(cluster) -> dict:
    with urllib.request.urlopen(cluster.page) as page:
        return json.load(page)


def prepare_while_killing(cluster, data, examples, kill=kill_in_the_second_job) -> threading.Event:
    """Prepare examples, and kill a process when the second job, which writes the examples, runs on both workers."""
    killed = threading.Event()

    def watch() -> None:
        kill(cluster)
        killed.set()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    with beam_runner.runner_arguments(cluster.arguments):
        prepare_examples(data=data, examples=examples)
    watcher.join(60)
    return killed

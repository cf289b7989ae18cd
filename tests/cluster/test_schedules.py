"""A schedule on KFP's servers: one run at a time, at the times of its expression, also if its controller restarts."""

import itertools
import os
import subprocess
import sys
from typing import Any

import kfp
import pytest

from tests.cluster.conftest import set_values, wait_for
from tests.cluster.kubeflow import address_of
from tests.cluster.submission import IMAGE, SMALL
from tests.cluster.test_faults import HOLD, processes
from tests.kfp_backend.runs import write_pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800), pytest.mark.usefixtures("servers")]
NAME = "every-minute"


def schedule(folder, *words: str) -> None:
    command = [sys.executable, "-m", "tfopt.cli.main", "schedule", *words, "--name", NAME]
    command += ["--endpoint", f"http://{address_of('ml-pipeline', 8888)}"]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "HOME": str(folder)})


def runs() -> list[Any]:
    """Return the runs of the schedule, the first one first."""
    client = kfp.Client(f"http://{address_of('ml-pipeline', 8888)}")
    listed = client.list_runs(page_size=100, sort_by="created_at asc").runs or []
    return [run for run in listed if run.recurring_run_id]


def test_a_schedule_starts_one_run_at_a_time_also_after_a_restart_of_its_controller(data, tmp_path):
    values = set_values(f"data={data[1]}", "seconds=75")  # longer than the minute to the next time
    options = [word for option in SMALL for word in ("--kfp-option", option)]
    file = write_pipeline(tmp_path, HOLD)
    schedule(tmp_path, file, "--cron", "0 * * * * *", "--image", IMAGE, *values, *options)
    wait_for(runs, 120)
    for process in processes("scheduledworkflow"):
        process.kill()  # Kubernetes starts it again
    wait_for(lambda: len([run for run in runs() if run.state == "SUCCEEDED"]) >= 3, 1200, pause=5)
    schedule(tmp_path, "--delete")
    ended = [run for run in runs() if run.finished_at and run.finished_at.year > 2000]
    for before, after in itertools.pairwise(ended):
        assert after.created_at >= before.finished_at, "two runs at one time"
    assert all(run.created_at.second < 30 for run in ended), "started at the times of the expression"

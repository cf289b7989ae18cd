"""Test that all Beam runners write the same examples and close their clients, and report a full disk of a worker."""

import errno
import os
from pathlib import Path
from unittest.mock import patch

import apache_beam as beam
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.data.test_beam_runner import fail
from tests.process_tree import wait_until
from tfopt.artifacts import Examples
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.data import beam_runner


@pytest.mark.parametrize(
    ("runner", "kind"),
    [
        pytest.param("multi_processing", "csv", marks=pytest.mark.nightly),
        ("dask", "parquet"),
    ],
)
def test_every_runner_writes_the_same_files_and_closes_its_client(arguments, runner, kind, request, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for part in range(5):
        table = [(part * 100 + index, index / 7, "ab"[index % 2]) for index in range(100)]
        if kind == "csv":
            lines = [",".join(map(str, row)) for row in table]
            (data / f"{part}.csv").write_text("\n".join(["x,y,label", *lines, "bad"]))
        else:
            columns = dict(zip(("x", "y", "label"), zip(*table, strict=True), strict=True))
            parquet.write_table(pa.table(columns), data / f"{part}.parquet", row_group_size=30)
    prepare_examples(data=data, examples=tmp_path / "here")
    with beam_runner.runner_arguments(arguments):
        assert beam_runner.worker_count() == 2
        prepare_examples(data=data, examples=tmp_path / "there")
        with pytest.raises(RuntimeError, match="on purpose"), beam_runner.pipeline() as pipeline:
            pipeline | beam.Create([1]) | beam.Map(fail)
    assert Examples(tmp_path / "here").digest == Examples(tmp_path / "there").digest
    if runner == "dask":
        clients = request.getfixturevalue("cluster").scheduler.clients
        wait_until(lambda: not [name for name in clients if name.startswith("Client-")], 20)


def test_a_full_disk_on_a_worker_is_an_oserror_with_its_number(tmp_path):
    with pytest.raises(OSError, match="No space left") as caught, beam_runner.pipeline() as opened:
        _ = opened | beam.Create(["/dev/full"]) | beam.Map(lambda file: Path(file).write_text("x"))
    assert caught.value.errno == errno.ENOSPC


@pytest.fixture(scope="module")
def cluster():
    """Start a Dask cluster with one process of two threads."""
    from distributed import LocalCluster

    with (
        patch.dict(os.environ),  # Dask sets OMP_NUM_THREADS and others, and later tests would start another call server
        LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None) as cluster,
    ):
        yield cluster


@pytest.fixture
def arguments(runner, request) -> list[str]:
    if runner == "dask":
        address = request.getfixturevalue("cluster").scheduler_address
        return ["--runner=DaskRunner", f"--dask_client_address={address}"]
    return ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]

"""Test that all Beam runners give the same report, also of a metric of the user: threads, processes, a Dask cluster."""

import numpy as np
import pytest

from tests.conftest import write_examples
from tests.process_tree import wait_until
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.examples.records import read_part, split_into_parts
from tfopt.data import beam_runner

MODULE = """
import numpy as np

def brier(labels, predictions):
    return np.stack([np.square(labels - predictions).ravel(), np.ones(len(labels))], 1)

brier.higher_is_better = False
brier.finish = lambda sums: sums[0] / sums[1]
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """2,000 records of a two-class problem in one gzipped shard and a small plain one, two models, and a metric."""
    folder = tmp_path_factory.mktemp("runners")
    generator = np.random.default_rng(0)
    values = generator.normal(size=(2000, 4))
    labels = (values.sum(1) + generator.normal(size=2000) > 0).astype(int)
    site = np.array(["north", "south", "süd"])[generator.integers(0, 3, 2000)]
    split = folder / "examples" / "Split-eval"
    for file, rows in (("a_tfrecord.gz", slice(0, 1900)), ("b_tfrecord", slice(1900, None))):
        write_examples(split / file, {"x": values[rows], "label": labels[rows], "site": site[rows]})
    (folder / "module.py").write_text(MODULE)
    return {
        "module": folder / "module.py",
        "metrics": ["module:brier"],
        "baseline": model(folder / "parent.keras", np.ones(4)),
        "candidates": [model(folder / "child.keras", np.array([1, 1, 1, 0.2]))],
        "examples": folder / "examples",
        "slices": ["site"],
        "replicates": 100,
    }


@pytest.fixture(scope="module")
def expected(inputs, tmp_path_factory):
    return evaluate(**inputs, evaluation=tmp_path_factory.mktemp("expected") / "evaluation")["evaluation"].read()


def model(file, kernel):
    import keras

    x = keras.layers.Input((4,), name="x")
    dense = keras.layers.Dense(1, activation="sigmoid", name="chance")
    built = keras.Model(x, dense(x))
    dense.set_weights([kernel[:, None], np.zeros(1)])
    built.save(file)
    return file


def test_the_report_is_complete(expected):
    assert expected["task"] == "binary"
    assert expected["counts"]["evaluated"] == 2000
    parent, child = expected["models"]
    assert list(parent["metrics"]) == ["brier", "accuracy", "log_loss", "auc", "pr_auc", "precision", "recall", "f1"]
    assert 0 < parent["metrics"]["brier"]["value"] < child["metrics"]["brier"]["value"]
    assert parent["metrics"]["auc"]["resolution"] < 0.01
    assert child["delta"]["auc"]["low"] < child["delta"]["auc"]["value"] < child["delta"]["auc"]["high"] < 0
    assert [part["value"] for part in parent["slices"]] == ["north", "south", "süd"]
    assert sum(part["count"] for part in parent["slices"]) == 2000


@pytest.mark.parametrize(
    "arguments",
    [
        ["--direct_num_workers=3"],
        ["--direct_num_workers=2", "--direct_running_mode=multi_threading"],
        pytest.param(
            ["--direct_num_workers=1", "--direct_running_mode=multi_processing"], marks=pytest.mark.nightly
        ),  # another process
    ],
    ids=["in memory", "threads", "processes"],
)
def test_the_direct_runner_gives_the_same_report_with_other_workers(inputs, expected, tmp_path, arguments):
    with beam_runner.runner_arguments(arguments):
        assert evaluate(**inputs, evaluation=tmp_path / "evaluation")["evaluation"].read() == expected


@pytest.mark.nightly  # test_prepare_examples_runners.py has a Dask cluster
def test_a_dask_cluster_gives_the_same_report_twice(inputs, expected, tmp_path):
    import distributed

    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        with beam_runner.runner_arguments(
            ["--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}"]
        ):
            for name in ("first", "second"):
                assert evaluate(**inputs, evaluation=tmp_path / name)["evaluation"].read() == expected
        wait_until(lambda: not [name for name in cluster.scheduler.clients if name.startswith("Client-")], 20)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_batches_of_a_shard_do_not_depend_on_the_number_of_parts(inputs, workers):
    files = sorted(str(file) for file in (inputs["examples"] / "Split-eval").iterdir())
    pieces = split_into_parts(files, workers)
    assert len(pieces) >= workers
    batches = {}
    for file, part, of in pieces:
        for index, batch in read_part(file, part, of, 64):
            assert (file, index) not in batches
            batches[file, index] = batch.numpy().tolist()
    whole = {(file, index): batch.numpy().tolist() for file in files for index, batch in read_part(file, 0, 1, 64)}
    assert batches == whole

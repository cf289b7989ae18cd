"""Test that models which are loaded group by group give the report of models that are loaded together."""

import dataclasses
import weakref

import numpy as np
import pytest

from tests.conftest import write_examples
from tests.runtimes.formulas import saved
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate import beam_pipeline, loaded_models, plan
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.plan import split_models
from tfopt.data import beam_runner
from tfopt.runtimes.saved_model import FunctionRuntime

MB = 1 << 20


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """400 records in three files, ten of the first one without ``extra``; a baseline and candidates; three fail."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("groups")
    generator = np.random.default_rng(0)
    values = generator.normal(size=(400, 4)).astype(np.float32)
    labels = (values.sum(1) + generator.normal(size=400) > 0).astype(int)
    columns = {"x": values, "label": labels, "extra": generator.normal(size=400).astype(np.float32)}
    split = folder / "examples" / "Split-eval"
    for file, start, end in (("a", 10, 140), ("b", 140, 150), ("c", 150, 400)):
        write_examples(split / f"{file}_tfrecord", {name: column[start:end] for name, column in columns.items()})
    write_examples(folder / "incomplete", {name: columns[name][:10] for name in ("x", "label")})
    first = split / "a_tfrecord"
    first.write_bytes((folder / "incomplete").read_bytes() + first.read_bytes())

    def chance(x, factor=1.0):
        return {"chance": tf.sigmoid(factor * tf.reduce_sum(x, 1, keepdims=True))}

    def fails_in_some_batch(x):
        with tf.control_dependencies([tf.debugging.assert_less(tf.abs(x), 3.0)]):
            return chance(x, 0.9)

    four = ((None, 4), tf.float32)
    return {
        "baseline": saved(folder / "baseline", chance, x=four),
        "candidates": [
            saved(folder / "half", lambda x: chance(x, 0.5), x=four),
            saved(folder / "fails_in_some_batch", fails_in_some_batch, x=four),
            saved(folder / "no_feature", lambda y: chance(y[:, :4]), y=((None, 5), tf.float32)),
            saved(folder / "nan", lambda x: chance(x + 0 * tf.sqrt(x + 2.5)), x=four),
            saved(folder / "extra", lambda x, extra: chance(x + extra), x=four, extra=((None, 1), tf.float32)),
        ],
        "examples": folder / "examples",
        "max_skipped": 0.025,
        "replicates": 100,
    }


@pytest.fixture(scope="module")
def together(inputs, tmp_path_factory):
    report = evaluate(**inputs, evaluation=tmp_path_factory.mktemp("together") / "evaluation")["evaluation"].read()
    assert [bool(model["error"]) for model in report["models"]] == [False, False, True, True, True, False]
    assert report["counts"]["evaluated"] == 390
    return report


@pytest.fixture
def loaded_together(monkeypatch):
    """Return the numbers of models that were in memory together."""
    runtimes, numbers = weakref.WeakSet(), set()

    class CountedModel(loaded_models.LoadedModel):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            if self.runtime:
                runtimes.add(self.runtime)
            numbers.add(len(runtimes))

    monkeypatch.setattr(loaded_models, "LoadedModel", CountedModel)
    return numbers


@pytest.mark.parametrize(
    ("stored_batches", "workers"), [(2, 3), *(pytest.param(count, 1, marks=pytest.mark.nightly) for count in (1, 100))]
)
def test_groups_give_the_same_report(inputs, together, loaded_together, tmp_path, monkeypatch, stored_batches, workers):
    make_plan = beam_pipeline.make_plan

    def plan_with_groups(*arguments):
        made, *rest = make_plan(*arguments)
        assert made.groups == (range(6),)
        groups = (range(2), range(2, 5), range(5, 6))
        return dataclasses.replace(made, groups=groups, stored_batches=stored_batches), *rest

    monkeypatch.setattr(beam_pipeline, "make_plan", plan_with_groups)
    with beam_runner.runner_arguments([f"--direct_num_workers={workers}"]):
        report = evaluate(**inputs, evaluation=tmp_path / "evaluation")["evaluation"].read()
    assert report == together
    assert 3 <= max(loaded_together) <= 3 * workers


@pytest.mark.parametrize(("limit", "records"), [(MB, 250), (0, 32)], ids=["small models", "large models"])
def test_large_models_run_on_32_records_at_once(inputs, together, tmp_path, monkeypatch, limit, records):
    counts, run = set(), FunctionRuntime.call

    def counted(runtime, arrays):
        counts.add(max(len(array) for array in arrays.values()))
        return run(runtime, arrays)

    monkeypatch.setattr(FunctionRuntime, "call", counted)
    monkeypatch.setattr(plan, "LARGE_MODEL", limit)
    report = evaluate(**inputs, evaluation=tmp_path / "evaluation")["evaluation"].read()
    assert max(counts) == records
    for model, same in zip(report["models"], together["models"], strict=True):
        assert bool(model["error"]) == bool(same["error"])
        for name, metric in same["metrics"].items():
            assert model["metrics"][name]["value"] == pytest.approx(metric["value"], rel=1e-5)


@pytest.mark.parametrize(
    ("sizes", "record_bytes", "groups"),
    [
        ([1 * MB] * 20, 4000, [range(8), range(8, 16), range(16, 20)]),
        ([100 * MB] * 7, 4000, [range(3), range(3, 6), range(6, 7)]),
        ([900 * MB, 10 * MB, 900 * MB], 4000, [range(1), range(1, 2), range(2, 3)]),
        ([900 * MB, 900 * MB], 1 * MB, [range(2)]),
    ],
    ids=["small and many", "large", "each larger than a group", "predictions too large to be stored"],
)
def test_models_are_split_by_the_sizes_of_their_files(sizes, record_bytes, groups):
    assert split_models(sizes, record_bytes) == (tuple(groups), 512 * MB // record_bytes)


@pytest.mark.parametrize(("values", "records"), [(4, 256), (96 * 96 * 3, 64), (224 * 224 * 3, 8), (1 << 24, 1)])
def test_large_records_are_evaluated_in_small_batches_of_one_size(values, records):
    """XLA compiles a program for each batch size, and every runtime retains the memory of its largest batch."""
    features = {"x": TensorSpec("float32", (None, values)), "label": TensorSpec("int64", (None, 1))}
    assert plan._batch_size(features, largest_model=0) == records
    assert 256 % records == 0

"""Test that the size of a Keras file is that of what prediction needs."""

import gzip
import zipfile

import numpy as np
import pytest

from tfopt.artifacts import Model
from tfopt.artifacts.optimizer_state import without_optimizer

KERNEL = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)


@pytest.mark.parametrize(("suffix", "group"), [("keras", "optimizer/vars"), ("h5", "optimizer_weights/Adam")])
def test_the_state_of_the_optimizer_is_no_part_of_the_size(suffix, group, tmp_path):
    plain = write(tmp_path / f"plain.{suffix}", suffix)
    trained = write(tmp_path / f"trained.{suffix}", suffix, group, slots=2)
    assert trained.stat().st_size > plain.stat().st_size + 2 * KERNEL.nbytes
    sizes, expected = Model(trained).sizes(), Model(plain).sizes()
    assert sizes["raw"] == pytest.approx(expected["raw"], abs=2048)  # HDF5 reserves blocks for names
    assert sizes["gzipped"] == pytest.approx(expected["gzipped"], abs=2048)
    assert expected == {"raw": plain.stat().st_size, "gzipped": len(gzip.compress(plain.read_bytes(), 6))}


def test_the_benchmark_says_what_the_size_leaves_out(tmp_path):
    from tfopt.components.benchmark.results import size_notes

    trained, plain = (Model(write(tmp_path / f"{slots}.h5", "h5", "optimizer_weights/Adam", slots)) for slots in (2, 0))
    (note,) = size_notes(trained, trained.sizes())
    assert note.endswith("of its files are the optimizer's state, which the size leaves out")
    assert size_notes(plain, plain.sizes()) == []


def test_the_copy_has_everything_else(tmp_path):
    import h5py

    trained = write(tmp_path / "trained.keras", "keras", "optimizer/vars", slots=2)
    with without_optimizer(trained) as copy, zipfile.ZipFile(copy) as archive:
        assert sorted(archive.namelist()) == ["config.json", "model.weights.h5"]
        with archive.open("model.weights.h5") as stream, h5py.File(stream) as weights:
            assert list(weights) == ["layers"]
            assert weights.attrs["keras_version"] == "3"
            np.testing.assert_array_equal(weights["layers/dense/0"], KERNEL)
    assert not copy.exists()
    assert trained.exists()


def test_a_file_without_such_state_is_not_copied(tmp_path):
    for file in (
        write(tmp_path / "plain.keras", "keras"),
        write(tmp_path / "empty.keras", "keras", "optimizer/vars"),
        tmp_path / "damaged.keras",
        tmp_path / "damaged.h5",
        tmp_path / "tflite.tflite",
    ):
        if not file.exists():
            file.write_bytes(b"damaged")
        with without_optimizer(file) as same:
            assert same == file


def write(file, suffix, group=None, slots=0):
    """Write a Keras file with one kernel and a group with slots of an optimizer."""
    import h5py

    weights = file if suffix == "h5" else file.with_name("model.weights.h5")
    with h5py.File(weights, "w") as content:
        content.attrs["keras_version"] = "3"
        content["model_weights/dense/0" if suffix == "h5" else "layers/dense/0"] = KERNEL
        if group:
            content.create_group(group)
        for number in range(slots):
            content[f"{group}/{number}"] = KERNEL[::-1] * (number + 2)
    if suffix == "keras":
        with zipfile.ZipFile(file, "w") as archive:
            archive.write(weights, "model.weights.h5")
            archive.writestr("config.json", "{}")
    return file

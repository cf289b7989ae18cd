"""Test that modules which Keras imports, and steps do not use, run on first use, and are the same modules then."""

import gc
import importlib
import subprocess
import sys
import threading
import types

import pytest

from tfopt.processes import startup

PACKAGE = {
    "lazy_one/__init__.py": "import sys\nassert 'lazy_one' in sys.modules\nVALUE = 1\nfrom lazy_one import inner\n",
    "lazy_one/inner.py": "import lazy_one\nSEEN = lazy_one.VALUE\nlazy_one.RUNS = getattr(lazy_one, 'RUNS', 0) + 1\n",
    "lazy_one/again.py": "",
    "lazy_two.py": "import time\ntime.sleep(0.2)\nVALUE = 2\n",
    "lazy_three.py": "raise ValueError('not today')\n",
}


@pytest.fixture
def lazy(tmp_path, monkeypatch):
    """Make the modules of `PACKAGE` lazy; return those that have run."""
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    names = ("lazy_one", "lazy_two", "lazy_three", "lazy_missing")
    monkeypatch.setattr(startup, "LAZY", names)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [startup.LazyFinder, *sys.meta_path])
    yield
    for name in [name for name in sys.modules if name.startswith("lazy_")]:
        del sys.modules[name]


def has_run(module: types.ModuleType) -> bool:
    return not isinstance(module, startup.LazyModule)


def test_a_module_runs_when_an_attribute_is_read_and_not_when_its_file_is(lazy, tmp_path):
    import lazy_one

    assert lazy_one.__file__ == str(tmp_path / "lazy_one" / "__init__.py")
    assert not hasattr(lazy_one, "__wrapped__")
    assert not has_run(lazy_one)
    assert lazy_one.VALUE == lazy_one.inner.SEEN == 1
    assert has_run(lazy_one)
    assert type(lazy_one) is types.ModuleType
    assert lazy_one.__spec__.loader is lazy_one.__loader__
    assert not isinstance(lazy_one.__loader__, startup.LazyLoader)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = lazy_one.other


def test_a_package_runs_before_its_submodules_and_each_of_them_once(lazy, tmp_path):
    import lazy_one.inner

    assert has_run(lazy_one)
    assert lazy_one.inner.SEEN == lazy_one.RUNS == 1
    assert lazy_one.inner.__spec__.origin == str(tmp_path / "lazy_one" / "inner.py")
    assert importlib.reload(lazy_one.inner) is lazy_one.inner and lazy_one.RUNS == 2
    import lazy_one.again  # which the package does not import


def test_all_names_are_those_of_the_module(lazy):
    names: dict = {}
    exec("from lazy_two import *", names)
    assert names["VALUE"] == 2


def test_threads_wait_until_another_one_has_run_the_module(lazy):
    import lazy_two

    values = []
    threads = [threading.Thread(target=lambda: values.append(lazy_two.VALUE)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [2] * 4


def test_errors_and_missing_modules_are_reported(lazy):
    import lazy_three

    for _ in range(2):
        with pytest.raises(ValueError, match="not today"):
            _ = lazy_three.VALUE
    with pytest.raises(ModuleNotFoundError, match="lazy_missing"):
        import lazy_missing  # noqa: F401


@pytest.mark.nightly
def test_keras_is_imported_without_the_packages_and_they_work_afterwards(tmp_path):
    program = """
from tfopt.processes.startup import speed_up_imports
speed_up_imports()
import sys
import tensorflow as tf
assert not {"sklearn", "matplotlib.figure", "IPython.core"} & set(sys.modules)
function = tf.function(lambda x: x + 1 if tf.reduce_sum(x) > 0 else x)  # AutoGraph reads the files of all modules
assert function(tf.constant([1.0])) == 2
assert not {"sklearn", "matplotlib.figure", "IPython.core"} & set(sys.modules)
import keras, sklearn.base
assert issubclass(keras.wrappers.SKLearnClassifier, sklearn.base.ClassifierMixin)
assert issubclass(tf.keras.wrappers.SKLearnRegressor, sklearn.base.RegressorMixin)
from matplotlib import pyplot
assert callable(pyplot.plot)
from IPython import get_ipython
assert get_ipython() is None
"""
    (tmp_path / "program.py").write_text(program)  # AutoGraph needs a file
    subprocess.run([sys.executable, tmp_path / "program.py"], check=True)


def test_the_hook_is_installed_once_and_garbage_is_still_collected(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    threshold = gc.get_threshold()
    try:
        for _ in range(2):
            startup.speed_up_imports()
        assert sys.meta_path.count(startup.LazyFinder) == 1
        assert gc.isenabled()
        assert gc.get_threshold()[0] < 100_000
    finally:
        gc.set_threshold(*threshold)

"""Start of the processes of tfopt: TensorFlow is imported, and the process ends, in half of the time."""

import atexit
import gc
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

# Keras and Beam import them for functions that no step calls, and with them scikit-learn, SciPy's statistics and Jedi.
LAZY = ("IPython", "matplotlib.pyplot", "keras.wrappers", "keras._tf_keras.keras.wrappers", "tqdm.notebook")


def speed_up_imports() -> None:
    """Let this process collect garbage less often, and run the modules of `LAZY` on first use.

    The objects that an import creates live until the process ends. By Python's defaults they would be looked at dozens
    of times meanwhile, and again at the end, which takes as long as the rest of an import of TensorFlow.
    """
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
    if LazyFinder not in sys.meta_path:
        sys.meta_path.insert(0, LazyFinder)


class LazyFinder:
    """Finds the modules of `LAZY`, if they are installed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the specification of one of these modules; None for any other."""
        if name.rpartition(".")[0] in LAZY and name in sys.modules and target is None:
            # This import read the path of the package, which therefore ran and imported the module.
            return ModuleSpec(name, LoadedModule(sys.modules[name]))
        spec = PathFinder.find_spec(name, path, target) if name in LAZY else None
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


class LoadedModule(Loader):
    """Lets an import that was about to load a module return the one that was loaded meanwhile."""

    def __init__(self, module: ModuleType) -> None:
        """Store the module and its specification, which the import replaces."""
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the loaded module."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the specification; the module has run."""
        module.__spec__ = self._spec


class LazyLoader(Loader):
    """Loads a module without running it.

    That of `importlib.util` runs the module even if only its file name is read, as AutoGraph does with all modules.
    """

    def __init__(self, loader: Loader) -> None:
        """Store the loader that runs the module."""
        self._loader, self._lock, self._is_running = loader, threading.RLock(), False

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module empty until an attribute is read."""
        vars(module).pop("__path__", None)  # so that the import of a submodule, too, runs the package first
        module.__class__ = LazyModule

    def run(self, module: ModuleType, spec: ModuleSpec) -> None:
        """Run the module unless it has run, or this thread is running it."""
        with self._lock:
            if self._is_running or not isinstance(module, LazyModule):
                return
            self._is_running = True
            if spec.submodule_search_locations is not None:
                module.__path__ = spec.submodule_search_locations
            try:
                self._loader.exec_module(module)
            finally:
                self._is_running = False
            module.__class__ = ModuleType  # type: ignore[assignment]  # no longer a LazyModule
            spec.loader = module.__loader__ = self._loader


class LazyModule(ModuleType):
    """A module that runs when an attribute is read that it does not have yet."""

    def __getattr__(self, name: str) -> Any:
        """Return an attribute after the module has run."""
        if not name.startswith("__") or name in ("__all__", "__path__"):
            spec: ModuleSpec = vars(self)["__spec__"]
            if isinstance(spec.loader, LazyLoader):
                spec.loader.run(self, spec)
            if not isinstance(self, LazyModule):
                return getattr(self, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

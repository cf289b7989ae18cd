"""Share the processes that import a runtime among the benchmarks of all tests: importing TensorFlow takes seconds."""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tfopt.components.benchmark.model_process import RuntimeProcesses


class SharedRuntimes(contextlib.ExitStack):
    """Takes the place of `RuntimeProcesses`; its processes end with this context, not with a benchmark."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._shared: dict[Any, RuntimeProcesses] = {}

    def __call__(self, cores: Sequence[int], _: Path, instances: int = 1) -> AbstractContextManager[RuntimeProcesses]:
        """Return the processes of these cores, and of the environment and the working folder of now."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        key = (instances, *cores, Path.cwd(), frozenset(environment.items()))
        if key not in self._shared:
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            self._shared[key] = self.enter_context(RuntimeProcesses(cores, folder, instances))
        return contextlib.nullcontext(self._shared[key])

    def end(self) -> None:
        """End all processes; later benchmarks start new ones."""
        self._shared.clear()
        self.close()

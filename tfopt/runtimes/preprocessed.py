"""A model in two parts: a preprocessing that turns text or records into numbers, and a core in another format."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import RecordSpec, fixed_batch, record_input
from tfopt.data.batches import parse_features
from tfopt.data.sample_inputs import count_records, split_batches
from tfopt.runtimes.runtime import Arrays, Runtime


class RecordParser(Runtime):
    """A parser of records: the preprocessing of a core that takes the parsed features by name."""

    def __init__(self, name: str, spec: RecordSpec) -> None:
        """Parse the features of an input named ``name``."""
        self.inputs, self.outputs, self._features = {name: spec}, dict(spec.features), spec.features

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the features."""
        (records,) = arrays.values()
        return dict(parse_features(records, self._features))


class PreprocessedRuntime(Runtime):
    """A core that runs after its preprocessing, with the inputs of the whole model.

    Inputs of the core that the preprocessing does not compute are inputs of the whole model.
    """

    def __init__(self, preprocessing: Runtime, core: Runtime) -> None:
        """Combine two loaded models."""
        self._preprocessing, self._core = preprocessing, core
        self.size, self.name = preprocessing.size + core.size, core.name
        direct = {name: spec for name, spec in core.inputs.items() if name not in preprocessing.outputs}
        self.inputs = dict(sorted((preprocessing.inputs | direct).items()))
        self.outputs = core.outputs

    def call(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Run both parts; a core of one record a call, as LiteRT's with recurrent layers, once for each record."""
        inputs, specs = self.core_inputs(arrays), self._core.inputs
        if fixed_batch(specs) != 1 or count_records(inputs, specs) == 1:
            return self._core.run_without_limit(inputs)
        results = [self._core.run_without_limit(record) for record in split_batches(inputs, specs, 1)]
        return {name: np.concatenate([result[name] for result in results]) for name in results[0]}

    def core_inputs(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the inputs of the core for inputs of the whole model."""
        return core_inputs(self._preprocessing, self._core, arrays)

    def close(self) -> None:
        """Release both parts."""
        self._core.close()
        self._preprocessing.close()


def core_inputs(preprocessing: Runtime, core: Runtime, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the inputs of the core for inputs of the whole model."""
    computed = preprocessing.run_without_limit({name: arrays[name] for name in preprocessing.inputs})
    return {name: computed[name] if name in computed else arrays[name] for name in core.inputs}


def with_inputs_of(parent: Runtime, child: Runtime) -> Runtime:
    """Return a child that takes records as its parent does, if its own inputs are features that the parent parses."""
    records = record_input(parent.inputs)
    if records is None or not child.inputs.keys() <= records[1].features.keys():
        return child
    name, spec = records
    features = {key: spec.features[key] for key in child.inputs}
    return PreprocessedRuntime(RecordParser(name, replace(spec, features=features)), child)

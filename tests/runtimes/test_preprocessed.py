import numpy as np

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.runtimes.preprocessed import PreprocessedRuntime
from tfopt.runtimes.runtime import Runtime


class Lengths(Runtime):
    def __init__(self):
        self.inputs = {"text": TensorSpec("string", (None,))}
        self.outputs = {"length": TensorSpec("float32", (None, 1))}

    def call(self, arrays):
        return {"length": np.array([[len(text)] for text in arrays["text"]], np.float32)}


class DoubledOneByOne(Runtime):
    def __init__(self):
        self.inputs = {"length": TensorSpec("float32", (1, 1))}
        self.outputs = {"doubled": TensorSpec("float32", (1, 1))}

    def call(self, arrays):
        return {"doubled": 2 * arrays["length"]}


def test_a_core_of_one_record_a_call_runs_once_for_each_record():
    model = PreprocessedRuntime(Lengths(), DoubledOneByOne())
    outputs = model.run({"text": np.array([b"a", b"", b"abc"], object)})
    np.testing.assert_array_equal(outputs["doubled"], [[2], [0], [6]])

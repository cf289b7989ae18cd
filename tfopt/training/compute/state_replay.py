"""Run layers a second time with the state of the first run.

In a second run, a dropout would draw another mask, and a batch normalization would update its averages twice. So both
runs read variables that are not trained (averages, the state of random generators) as they were before the first run,
and assignments are recorded instead of carried out.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from tfopt.errors import ComponentError

# TensorFlow's stateful random ops begin with these
DRAWS = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal")


def replay_scope(state: dict[int, Any], refusals: list[ComponentError]) -> Any:
    """Return a Keras scope in which variables that are not trained have the values of ``state``.

    Values that are missing in ``state`` are added to it. Assignments are recorded in the scope's ``assignments`` and
    not carried out. Losses that layers add are recorded in ``added_losses``. An assignment to a trained variable
    raises; as Keras wraps the ComponentError in another exception, it is also appended to ``refusals``.
    """
    import keras
    import tensorflow as tf

    class ReplayScope(keras.StatelessScope):  # type: ignore[misc]  # Keras is untyped
        """A Keras scope that supplies the values of variables."""

        def __init__(self) -> None:
            super().__init__(collect_losses=True, initialize_variables=False)
            self.assignments: dict[int, tuple[Any, Any]] = {}
            self.added_losses: list[Any] = []

        def get_current_value(self, variable: Any) -> Any:
            key = id(variable)
            if key not in self.state_mapping and not variable.trainable:
                if key not in state:
                    state[key] = tf.convert_to_tensor(variable._value)
                return state[key]
            return self.state_mapping.get(key)

        def add_update(self, update: tuple[Any, Any]) -> None:
            variable, _ = update
            if variable.trainable:
                refusal = ComponentError(
                    f"rematerialize: a layer assigns {variable.path}, which is trained",
                    "layers that leave trained variables to the optimizer",
                    "leave rematerialize out",
                )
                refusals.append(refusal)
                raise refusal
            self.assignments[id(variable)] = update
            super().add_update(update)

        def add_loss(self, loss: Any) -> None:
            self.added_losses.append(loss)

    return ReplayScope()


@contextlib.contextmanager
def refuse_tensorflow_draws() -> Iterator[None]:
    """Raise if the block adds random ops of TensorFlow to the graph: their numbers would differ in the second run."""
    import tensorflow as tf

    if tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    op_count, functions = len(graph.get_operations()), {*graph._functions}
    yield
    bodies = [function.graph for name, function in graph._functions.items() if name not in functions]  # loops, branches
    added = graph.get_operations()[op_count:] + [op for body in bodies for op in body.get_operations()]
    draws = [op.name for op in added if op.type.startswith(DRAWS)]
    if draws:
        raise ComponentError(
            f"rematerialize, and {draws[0]} draws other random numbers in each run",
            "layers that compute the same when they are run again",
            "draw with keras.random and a keras.random.SeedGenerator, or leave rematerialize out",
        )

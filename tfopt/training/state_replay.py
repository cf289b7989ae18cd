"""Layers run a second time exactly as they were the first.

A dropout would draw another mask the second time, and a batch norm move its averages twice. So what is not learnt
(averages, the state of random generators) is read as it was before the first run, both times, and what a run assigns is
noted in place of being done.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from tfopt.errors import ComponentError

DRAWS = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal")  # of TensorFlow, with a state


def state_as(before: dict[int, Any], refused: list[ComponentError]) -> Any:
    """A scope in which variables that are not learnt have the values given, or else have theirs noted there.

    What is assigned in it is noted in ``changes`` and assigned to nothing; what is added to the loss, in ``added``; a
    refusal, of which Keras makes another exception, in ``refused``.
    """
    import keras
    import tensorflow as tf

    class State(keras.StatelessScope):  # type: ignore[misc]  # Keras has no types
        """What Keras's variables ask for their value."""

        def __init__(self) -> None:
            super().__init__(collect_losses=True, initialize_variables=False)
            self.changes: dict[int, tuple[Any, Any]] = {}
            self.added: list[Any] = []

        def get_current_value(self, variable: Any) -> Any:
            key = id(variable)
            if key not in self.state_mapping and not variable.trainable:
                if key not in before:
                    before[key] = tf.convert_to_tensor(variable._value)
                return before[key]
            return self.state_mapping.get(key)

        def add_update(self, update: tuple[Any, Any]) -> None:
            variable, _ = update
            if variable.trainable:
                refusal = ComponentError(
                    f"rematerialize: a layer assigns {variable.path}, which is learnt",
                    "layers that leave what is learnt to the optimizer",
                    "leave rematerialize out",
                )
                refused.append(refusal)
                raise refusal
            self.changes[id(variable)] = update
            super().add_update(update)

        def add_loss(self, loss: Any) -> None:
            self.added.append(loss)

    return State()


@contextlib.contextmanager
def draws_checked() -> Iterator[None]:
    """Refuse numbers drawn by TensorFlow itself: it would draw others the second time."""
    import tensorflow as tf

    if tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    before, known = len(graph.get_operations()), {*graph._functions}
    yield
    bodies = [function.graph for name, function in graph._functions.items() if name not in known]  # of loops, branches
    added = graph.get_operations()[before:] + [each for body in bodies for each in body.get_operations()]
    drawn = [each.name for each in added if each.type.startswith(DRAWS)]
    if drawn:
        raise ComponentError(
            f"rematerialize, and {drawn[0]} draws numbers that are others each time",
            "layers that give the same when they are run again",
            "draw with keras.random and a keras.random.SeedGenerator, or leave rematerialize out",
        )

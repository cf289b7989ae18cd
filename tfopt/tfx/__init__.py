"""Components and pipelines in TFX: ``from tfopt.tfx import steps``, and the runner of ``tfopt run``.

Importing it imports TFX.
"""

from tfopt.tfx.components import KINDS, TYPES, BeamExecutor, Executor, Steps, node, steps

__all__ = ["KINDS", "TYPES", "BeamExecutor", "Executor", "Steps", "node", "steps"]

"""Components and pipelines in TFX: ``from tfopt.tfx import steps``, and the runner of ``tfopt run``.

May import everything but the command line and `tfopt.kfp`. Importing it imports TFX.
"""

from tfopt.tfx.components import KINDS, TYPES, BeamExecutor, Executor, Steps, node, steps

__all__ = ["KINDS", "TYPES", "BeamExecutor", "Executor", "Steps", "node", "steps"]

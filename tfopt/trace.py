"""Public alias of `tfopt.dag.tracing`, for pipelines that import ``tfopt.trace.Steps``."""

from tfopt.dag.tracing import Inherited, Steps, load, pipelines, trace

__all__ = ["Inherited", "Steps", "load", "pipelines", "trace"]

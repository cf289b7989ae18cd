"""Public alias of `tfopt.dag.tracing`, for pipelines that import ``tfopt.trace.Steps``."""

from tfopt.dag.tracing import Steps, load, pipelines, trace

__all__ = ["Steps", "load", "pipelines", "trace"]

"""Whether a model is better than its parent beyond doubt: what `tune_recipe` calls a win, `select_model` chooses."""

from tfopt.measurement.model_measurements import Measured

MEMORY_NOISE = 0.05  # a peak is measured once; allocators and threads move it by a few percent


def is_proven(model: Measured, objective: str) -> bool:
    """Whether a model is better at the objective than the parent beyond doubt."""
    batch = {"latency": model.small_batch, "throughput": model.large_batch}.get(objective)
    if batch and (ratio := model.speedup(batch)):
        return bool(ratio["verdict"] == "faster")
    gain = model.gain(objective)
    return gain.interval[0] > _noise(model, objective)


def is_equal(model: Measured, best: Measured, objective: str) -> bool:
    """Whether two models' gains at the objective cannot be told apart."""
    first, second = model.gain(objective), best.gain(objective)
    return first.interval[1] + _noise(model, objective) >= second.interval[0]


def _noise(model: Measured, objective: str) -> float:
    if objective != "memory":
        return 0.0
    return MEMORY_NOISE * (model.parent or model).value("memory")

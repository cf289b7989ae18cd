"""Compare the cost of a further trial with the expected saving in nodes that serve the model.

For values with an exponential tail of scale s, the largest of n + 1 exceeds the largest of n by s / (n + 1) on average
(Rényi 1953, "On the theory of order statistics"). Here the values are savings of the trials so far, and s is their
standard deviation. The sampler proposes better recipes than a random one, so the expectation is on the low side.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tfopt.components.tune_recipe.parameters import SearchSettings
from tfopt.errors import ComponentError
from tfopt.measurement.metric_names import check_load_metric
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.serving.load_generator import SECONDS_PER_HOUR, cost_per_month, possible_saving

FEWEST_TRIALS = 5  # that say something about the spread of savings


@dataclass(frozen=True)
class TrialCost:
    """The time of a trial, and the measurements of its model, if it meets the goals."""

    seconds: float
    model: ModelMeasurements | None


def check_cost(settings: SearchSettings) -> None:
    """Raise ComponentError for a price without a rate, or a rate without a price."""
    values = {name: getattr(settings, name) for name in ("price", "requests_per_second", "max_p99_ms")}
    if (settings.price is None) != (settings.requests_per_second is None):
        name = "price" if settings.price is not None else "requests_per_second"
        received, expected = f"tune_recipe: {name}={values[name]:g} alone", "price and requests_per_second, or neither"
        raise ComponentError(received, expected, "pass price=0.2 and requests_per_second=300, for example")
    names = [name for name, value in values.items() if value is not None]
    objective = f"tune_recipe: objective={settings.objective}"
    check_load_metric(settings.objective, names, objective)


def find_excessive_cost(trials: Sequence[TrialCost], settings: SearchSettings) -> str | None:
    """Return why a further trial does not pay; None if it does, or if nothing is known about it."""
    price, rate = settings.price, settings.requests_per_second
    useful = [trial.model for trial in trials if trial.model]
    if not (price and rate) or len(trials) < FEWEST_TRIALS or not useful:
        return None
    models = [*useful, *([useful[0].baseline] if useful[0].baseline else [])]
    rates = [model.metrics.get("capacity") or model.metrics.get("throughput") for model in models]
    months = [cost_per_month(price, rate, node.value) for node in rates if node and node.value]
    if len(months) < 2:
        return None
    saving = len(useful) / len(trials) * statistics.stdev(months) / (len(months) + 1)
    saving = min(saving, possible_saving(price, rate, max(node.value for node in rates if node)))
    cost = price * statistics.mean(trial.seconds for trial in trials) / SECONDS_PER_HOUR
    if saving >= cost:
        return None
    return (
        f"a further trial costs {cost:.2g}, and is expected to save {saving:.2g} a month at {rate:g} requests a second"
    )

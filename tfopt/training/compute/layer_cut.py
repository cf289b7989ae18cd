"""Cut a chain of layers into consecutive parts, one for each device, by their measured costs.

The parts do not compute at the same time: a cut saves memory on each device, and costs copies between devices. The cut
is exact: dynamic programming over all positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tfopt.errors import ComponentError
from tfopt.formatting import data_size

# the largest share of a part in memory and in time, the bytes that are copied, and the first layer of each part
Cut = tuple[float, float, int, tuple[int, ...]]
BALANCE_SLACK = 1.05  # cuts within this of the best balance are compared by the bytes that they copy
EASY = 0.5  # a step that needs less than this share of one device's memory is not divided
LEAST_GAIN = 0.9  # the largest part must need less than this share of the whole


@dataclass(frozen=True)
class LayerCost:
    """The measured cost of a layer in one training step."""

    name: str
    seconds: float  # forward and backward
    weight_bytes: int
    step_bytes: int  # weights, gradients, variables of the optimizer, and outputs of the layer


@dataclass(frozen=True)
class Part:
    """The layers on one device, and their share of the whole model."""

    device: str
    layers: list[str]
    time_share: float
    memory_share: float
    weight_bytes: int
    step_bytes: int


def cut_layers(costs: Sequence[LayerCost], copied: Sequence[int], parts: int) -> list[int]:
    """Return the number of the part of each layer.

    The largest share of a part of the memory of a step is as small as possible. Of the cuts within 5 % of that, the
    largest share of the time is as small as possible; of those within 5 %, the fewest bytes are copied between devices:
    ``copied[i]`` is their number for a cut before layer i.

    >>> costs = [LayerCost(f"dense_{i}", 1.0, 8, size) for i, size in enumerate((32, 32, 32, 96))]
    >>> cut_layers(costs, [0, 4, 4, 4], 2)
    [0, 0, 0, 1]
    """
    memory, *_ = _best_cut(costs, copied, parts, (0.0, 1.0))
    limits = BALANCE_SLACK * memory, 0.0
    _, time, *_ = _best_cut(costs, copied, parts, limits)
    *_, starts = _best_cut(costs, copied, parts, (limits[0], BALANCE_SLACK * time))
    bounds = pairwise([*starts, len(costs)])
    return [number for number, (start, end) in enumerate(bounds) for _ in range(start, end)]


def _best_cut(costs: Sequence[LayerCost], copied: Sequence[int], parts: int, limits: tuple[float, float]) -> Cut:
    """Return the cut whose numbers are least, compared in their order.

    Shares below their limit count as the limit, so that what
    follows in the order decides between these cuts.
    """
    memory, time = _cumulative([each.step_bytes for each in costs]), _cumulative([each.seconds for each in costs])
    # of the first layers, by their number, in one part
    best: dict[int, Cut] = {
        end: (max(memory[end], limits[0]), max(time[end], limits[1]), 0, (0,)) for end in range(1, len(costs) + 1)
    }
    for count in range(2, parts + 1):
        following: dict[int, Cut] = {}
        for end in range(count, len(costs) + 1):
            least: Cut | None = None
            for start in range(end - 1, count - 2, -1):
                share = memory[end] - memory[start]
                if least and share > least[0]:  # an earlier start makes the last part larger still
                    break
                before = best[start]
                largest = max(before[0], share), max(before[1], time[end] - time[start])
                option: Cut = *largest, before[2] + copied[start], (*before[3], start)
                least = min(least or option, option)
                following[end] = least
        best = following
    return best[len(costs)]


def _cumulative(values: Sequence[float]) -> list[float]:
    """Return the share of the total that the first values have, for each number of them.

    >>> _cumulative([1, 1, 2])
    [0.0, 0.25, 0.5, 1.0]
    """
    total = sum(values) or 1
    return [*accumulate((value / total for value in values), initial=0.0)]


def describe_parts(costs: Sequence[LayerCost], numbers: Sequence[int], devices: Sequence[str]) -> list[Part]:
    """Return what each device has of the model."""
    seconds, memory = sum(each.seconds for each in costs) or 1.0, sum(each.step_bytes for each in costs) or 1
    described = []
    for number, device in enumerate(devices):
        own = [cost for cost, its_number in zip(costs, numbers, strict=True) if its_number == number]
        step_bytes = sum(each.step_bytes for each in own)
        shares = sum(each.seconds for each in own) / seconds, step_bytes / memory
        described.append(
            Part(device, [each.name for each in own], *shares, sum(each.weight_bytes for each in own), step_bytes)
        )
    return described


def check_gain(parts: Sequence[Part], copied: int, memory: int) -> None:
    """Raise ComponentError if a step fits easily in one device's memory, or the largest part is almost the whole model.

    ``copied`` is the number of bytes that a step copies between devices.
    """
    whole, largest = sum(part.step_bytes for part in parts), max(part.step_bytes for part in parts)
    price = f"the cut would copy {data_size(copied)} in each pass, and the devices would compute one after the other"
    if whole < EASY * memory:
        received = f"model_parallel={len(parts)}, and a step needs about {data_size(whole)}; {price}"
        expected = f"a model that needs more than half of the {data_size(memory)} of one device"
        fix = "leave model_parallel out; distribution=mirrored uses several devices for more examples in the same time"
        raise ComponentError(received, expected, fix)
    if largest > LEAST_GAIN * whole:
        part = max(parts, key=lambda part: part.step_bytes)
        received = f"model_parallel={len(parts)}, and {data_size(largest)} of {data_size(whole)} stay on one device"
        received += f" ({', '.join(part.layers[:3])}{' …' if part.layers[3:] else ''}); {price}"
        expected = "layers, none with almost all weights and outputs"
        raise ComponentError(received, expected, "leave model_parallel out, or divide that layer in the module")

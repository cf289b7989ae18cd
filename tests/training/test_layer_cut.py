"""Test the cut of a chain of layers: exact, and refused where it saves no memory."""

import itertools
import random

import pytest

from tfopt.errors import ComponentError
from tfopt.training.compute.layer_cut import LayerCost, Part, check_gain, cut_layers

MB = 1_000_000


@pytest.mark.parametrize("seed", range(20))
def test_no_other_cut_has_a_smaller_largest_part_beyond_the_slack_or_copies_less_within_it(seed):
    draw = random.Random(seed)
    costs = [LayerCost(str(i), draw.random() ** 3, 0, draw.randint(1, 100)) for i in range(8)]
    copied = [0, *(draw.randint(1, 9) for _ in costs[1:])]
    parts = draw.randint(2, 4)

    def shares(starts: tuple[int, ...], values: list[float]) -> float:
        bounds = itertools.pairwise([0, *starts, len(values)])
        return max(sum(values[start:end]) for start, end in bounds) / sum(values)

    rows = []
    for starts in itertools.combinations(range(1, len(costs)), parts - 1):
        memory = shares(starts, [each.step_bytes for each in costs])
        rows.append(
            (memory, shares(starts, [each.seconds for each in costs]), sum(copied[at] for at in starts), starts)
        )
    balanced = [row for row in rows if row[0] <= 1.05 * min(rows)[0] + 1e-9]
    fast = [row for row in balanced if row[1] <= 1.05 * min(row[1] for row in balanced) + 1e-9]
    numbers = cut_layers(costs, copied, parts)
    chosen = tuple(at for at in range(1, len(costs)) if numbers[at] != numbers[at - 1])
    assert chosen in [row[3] for row in fast if row[2] == min(row[2] for row in fast)]


def test_hundreds_of_layers_are_cut_for_four_devices():
    numbers = cut_layers([LayerCost(str(i), 1.0, 4, 16) for i in range(240)], [0] + [1] * 239, 4)
    assert max(map(numbers.count, range(4))) <= 1.05 * 60


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            (20, 25),
            r"a step needs about 45.0 MB; the cut would copy 3.00 MB .* more than half of the 100 MB of one device",
        ),
        ((460, 40), r"460 MB of 500 MB stay on one device .*dense_0.* copy 3.00 MB"),
    ],
)
def test_a_cut_that_gains_nothing_is_refused_with_the_numbers(sizes, message):
    parts = [Part(f"GPU:{i}", [f"dense_{i}"], 0.5, 0.5, 1, size * MB) for i, size in enumerate(sizes)]
    with pytest.raises(ComponentError, match=f"(?s){message}"):
        check_gain(parts, 3 * MB, 100 * MB)


def test_a_cut_that_halves_the_memory_is_accepted():
    check_gain([Part(f"GPU:{i}", ["dense"], 0.5, 0.5, 1, 40 * MB) for i in range(2)], 3 * MB, 100 * MB)

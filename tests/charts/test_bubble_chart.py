"""Test the geometry of bubble charts: axes around the data, goals at the edge, labels in bounded time."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfopt.charts import label_placement
from tfopt.charts.bubble_chart import MOST_NAMED, Bubble, BubbleChart, draw_bubbles
from tfopt.charts.figure import draw_safely
from tfopt.charts.label_placement import Obstacles, Point, place_labels

SIZE = (300.0, 200.0)
np = label_placement.np


def draw(bubbles: list[Bubble], limits: dict[str, float] | None = None, **facts) -> str:
    chart = BubbleChart(bubbles, "t", "d", "x", "y", share=True, least=0.01, limits=limits or {}, **facts)
    return draw_bubbles(chart, 760, 400, "bubbles-wide")


def bubble(name: str, across: float, up: float, half: float = 0.003, **facts) -> Bubble:
    return Bubble(name, "9 kB", f"{name}: x", across, up, 1.0, ranges=((across,) * 2, (up - half, up + half)), **facts)


def heights(picture: str) -> list[float]:
    """Return the position of each bubble, from 0 at the upper edge to 1 at the lower one."""
    rect = re.search(r'<rect x="[\d.]+" y="[\d.]+" width="[\d.]+" height="([\d.]+)"', picture)
    return [float(y) / float(rect[1]) for y in re.findall(r'<circle[^>]* cy="([\d.]+)"', picture)]


@pytest.mark.parametrize("half", [0.0, 0.003, 0.4])
@pytest.mark.parametrize("goal", [0.5, 0.97, 0.98])
def test_equal_values_are_in_the_middle_wherever_the_goal_is(half, goal):
    picture = draw([bubble("a", 1.0, 0.981, half), bubble("b", 2.0, 0.981, half)], {"the goal": goal})
    assert all(0.35 < height < 0.65 for height in heights(picture))


@pytest.mark.parametrize(
    ("goal", "better", "text", "is_line"),
    [
        (0.98, True, "goal the goal", True),
        (0.5, True, "\N{DOWNWARDS ARROW} goal the goal", False),
        (0.999, True, "\N{UPWARDS ARROW} goal the goal", False),
        (0.5, False, "\N{UPWARDS ARROW} goal the goal", False),  # lower is better, and better is up
        (0.999, False, "\N{DOWNWARDS ARROW} goal the goal", False),
    ],
)
def test_a_goal_far_from_the_data_is_an_arrow_at_its_edge_of_the_picture(goal, better, text, is_line):
    picture = draw([bubble("a", 1.0, 0.981), bubble("b", 2.0, 0.982)], {"the goal": goal}, more_is_better=better)
    (goal_text,) = re.findall(r'<text[^>]* y="([\d.]+)"[^>]*class="goal"[^>]*>([^<]*)<', picture)
    assert goal_text[1] == text
    assert ('stroke-dasharray="6' in picture) is is_line
    if not is_line:
        assert (float(goal_text[0]) > 300) is text.startswith("\N{DOWNWARDS ARROW}")


def test_one_label_stands_for_many_bubbles_at_one_point():
    others = [bubble(f"b{number}", 1.0, 0.981, front=True) for number in range(20)]
    picture = draw([bubble("a", 5.0, 0.981, kind="baseline"), bubble("c", 1.0, 0.981, kind="chosen"), *others])
    assert re.findall(r'class="name"[^>]*>([^<]*)<', picture) == ["c", "a", "b0"]
    assert "9 kB, 19 more here" in picture


def box_of(label) -> tuple[float, ...]:
    return tuple(vars(label.box).values())


def crosses(box: tuple[float, ...], line: tuple[float, ...]) -> bool:
    """Test with many points of a line whether it goes through a box."""
    parts = np.linspace(0, 1, 401)[:, None]
    points = (1 - parts) * line[:2] + parts * line[2:]
    return bool(((points > box[:2]) & (points < box[2:])).all(axis=1).any())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 200)), min_size=1, max_size=12)
    | st.lists(st.tuples(st.integers(110, 170), st.integers(60, 110)), min_size=6, max_size=12)
)
@example([(140 + n % 3 * 9, 90 + n // 3 * 9) for n in range(12)])
def test_labels_touch_no_other_label_line_or_circle(places):
    points = [Point(x, y, 8.0, 60.0, 27.0) for x, y in places]
    circles = np.array([(point.x, point.y, 8.0) for point in points])
    lines = np.array([(x, y - 30, x, y + 30) for x, y in places] + [(0, 150, 300, 150)], float)
    text = (240.0, 0.0, 300.0, 14.0)
    labels = place_labels(points, Obstacles(SIZE, circles, lines, np.array([text])))
    placed = [label for label in labels if label]
    for label in placed:
        left, top, right, bottom = box = box_of(label)
        assert left >= 0 and top >= 0 and right <= SIZE[0] and bottom <= SIZE[1]
        others = [box_of(other) for other in placed if other is not label] + [text]
        assert not any(left < o[2] and o[0] < right and top < o[3] and o[1] < bottom for o in others)
        assert not any(crosses(box, tuple(line)) for line in lines)
        assert not any(crosses(other, label.line) for other in others)
        near = np.clip(circles[:, :2], box[:2], box[2:])
        assert (np.hypot(*(near - circles[:, :2]).T) >= 8).all()


def test_the_work_for_labels_is_bounded(monkeypatch):
    """Many points where nothing is free: as many comparisons as orders of labels allow, and no more."""
    steps = []
    compare = label_placement._are_apart
    monkeypatch.setattr(label_placement, "_are_apart", lambda *args: steps.append(1) or compare(*args))
    point = Point(150.0, 100.0, 8.0, 120.0, 27.0)
    obstacles = Obstacles(SIZE, np.array([(150.0, 100.0, 8.0)]), np.empty((0, 4)), np.empty((0, 4)))
    labels = place_labels([point] * MOST_NAMED, obstacles)
    assert None in labels and labels[0]
    assert 0 < len(steps) <= label_placement.ROUNDS * MOST_NAMED * (MOST_NAMED - 1) / 2


def test_the_most_important_label_stays_where_two_others_would_fit():
    points = [Point(x, 50.0, 3.0, width, 27.0) for x, width in ((62.0, 110.0), (30.0, 50.0), (94.0, 50.0))]
    circles = np.array([(point.x, point.y, 3.0) for point in points])
    obstacles = Obstacles((124.0, 60.0), circles, np.empty((0, 4)), np.empty((0, 4)))  # with room for one row
    assert [label is None for label in place_labels(points, obstacles)] == [False, True, True]
    assert None not in place_labels(points[1:], obstacles)


def test_only_the_most_important_of_very_many_bubbles_are_placed(monkeypatch):
    counts = []
    place = label_placement.place_labels
    monkeypatch.setattr(
        "tfopt.charts.bubble_chart.place_labels", lambda points, _: counts.append(len(points)) or place(points, _)
    )
    picture = draw([bubble(f"b{n}", 1 + n / 100, 0.9 + n % 7 / 100, front=True) for n in range(300)])
    assert counts == [MOST_NAMED]
    assert picture.count("<circle") == 300


def test_a_chart_that_fails_is_replaced_by_the_reason(caplog):
    def fail():
        raise ValueError("no <b>")

    assert draw_safely("the chart", lambda: ["<svg/>", "<svg/>"]) == "<svg/><svg/>"
    assert "the chart, which could not be drawn: ValueError: no &lt;b&gt;" in draw_safely("the chart", fail)
    assert "the report is written without the chart: ValueError: no <b>" in caplog.text


def test_no_label_is_on_the_line_of_another_one():
    """A wide label, far from its point, and a small one between the lines, whose preferred place is on its way."""
    points = [Point(35.0, 100.0, 3.0, 60.0, 27.0), Point(95.0, 112.0, 3.0, 10.0, 10.0)]
    lines = np.array([(x, 0.0, x, 200.0) for x in range(20, 201, 30)] + [(0.0, 122.0, 200.0, 122.0)])
    obstacles = Obstacles(SIZE, np.array([(35.0, 100.0, 3.0), (95.0, 112.0, 3.0)]), lines, np.empty((0, 4)))
    (only,) = place_labels(points[1:], obstacles)
    wide, small = place_labels(points, obstacles)
    assert crosses(box_of(only), wide.line)
    assert not crosses(box_of(small), wide.line)

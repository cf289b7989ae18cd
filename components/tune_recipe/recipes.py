"""Which recipes there are: choices by name, and the steps they stand for.

A choice leads to the next one, so that nothing is chosen that would not be used: the scheme of 8-bit activations is
asked for where 8 bits were chosen. Which component does a step is known by name only, as on a command line.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMATS = ("saved_model", "tflite", "onnx", "openvino")
GRAPHS = ("as it is", "fold_batch_norm", "optimize_graph")
ARITHMETIC = ("float32", "float16", "bfloat16")
TFLITE = ("float32", "float16", "dynamic", "int8", "int16x8")
OTHERS = ("float32", "int8")

Choose = Callable[[str, Sequence[str]], str]


@dataclass(frozen=True)
class Step:
    """One component, by its name, with the parameters that are not its defaults, and the name of its output."""

    component: str
    output: str
    parameters: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Name it as a person would."""
        said = [_said(name, value) for name, value in self.parameters.items()]
        return " ".join([self.component, *said])


@dataclass(frozen=True)
class Recipe:
    """What was chosen, by the names of the choices."""

    choices: dict[str, str]

    @property
    def steps(self) -> list[Step]:
        """The steps, first to last; none for the model as it is."""
        return list(_steps(self.choices))

    def __str__(self) -> str:
        """The steps in a line."""
        return ", ".join(map(str, self.steps)) or "as it is"

    def __hash__(self) -> int:
        """By the choices."""
        return hash(tuple(sorted(self.choices.items())))


def choose(pick: Choose, formats: Sequence[str]) -> Recipe:
    """Make one recipe, asking ``pick`` for each choice with its name and what it can be."""
    chosen: dict[str, str] = {}

    def ask(name: str, among: Sequence[str]) -> str:
        chosen[name] = pick(name, among)
        return chosen[name]

    ask("graph", GRAPHS)
    kind = ask("format", formats)
    if kind == "saved_model":
        ask("arithmetic", ARITHMETIC)
        ask("xla", ("no", "yes"))
    elif kind == "tflite":
        ask("tflite", TFLITE)
    elif kind == "onnx" and ask("onnx", OTHERS) == "int8":
        ask("onnx_scales", ("per channel", "per tensor"))
    elif kind == "openvino" and ask("openvino", OTHERS) == "int8":
        ask("openvino_preset", ("performance", "mixed"))
    return Recipe(chosen)


def every(formats: Sequence[str]) -> list[Recipe]:
    """All recipes that do something, in a fixed order."""
    return [recipe for recipe in map(Recipe, _all(formats, {})) if recipe.steps]


def first(formats: Sequence[str]) -> list[Recipe]:
    """What to try first: of each format the recipe that is most often the best, 8 bits before 32.

    Which one wins differs from model to model; that each format is looked at once does not.
    """
    folded = {"graph": "fold_batch_norm"}
    wanted = [
        {"format": "tflite", "tflite": "int8"},
        {"format": "openvino", "openvino": "int8", "openvino_preset": "performance"},
        {"format": "onnx", "onnx": "int8", "onnx_scales": "per channel"},
        {"format": "tflite", "tflite": "float32"},
        {"format": "openvino", "openvino": "float32"},
        {"format": "saved_model", "arithmetic": "float32", "xla": "no"},
    ]
    return [Recipe(folded | choices) for choices in wanted if choices["format"] in formats]


def _said(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"{'' if value else 'not '}{name}"
    return str(value)


def _steps(choices: dict[str, str]) -> Iterator[Step]:
    graph, kind = choices["graph"], choices["format"]
    if graph != "as it is":
        yield Step(graph, {"fold_batch_norm": "folded", "optimize_graph": "optimized"}[graph])
    if kind == "saved_model":
        if choices["arithmetic"] != "float32":
            yield Step("cast_precision", "cast", {"precision": choices["arithmetic"]})
        if choices["xla"] == "yes":
            yield Step("compile_xla", "compiled")
        return
    more: dict[str, Any] = {}
    if "onnx_scales" in choices:
        more["per_channel"] = choices["onnx_scales"] == "per channel"
    if "openvino_preset" in choices:
        more["preset"] = choices["openvino_preset"]
    yield Step(f"export_{kind}", "exported", {"precision": choices[kind], **more})


def _all(formats: Sequence[str], given: dict[str, str]) -> Iterator[dict[str, str]]:
    """Every way to answer the questions: the first that was not answered yet is answered in each way."""
    asked: list[tuple[str, Sequence[str]]] = []

    def pick(name: str, among: Sequence[str]) -> str:
        if name not in given:
            asked.append((name, among))
        return given.get(name, among[0])

    choose(pick, formats)
    if not asked:
        yield given
        return
    name, among = asked[0]
    for value in among:
        yield from _all(formats, given | {name: value})

"""The search space: recipes as named choices, and the components that each recipe consists of.

With fine-tuning, a recipe first removes channels, or trains with rounded weights, or does both; see `FINE_TUNING`.

A choice determines which choices follow, so that no choice is without effect: the scheme of 8-bit activations is chosen
only for 8 bits. Components are referred to by name, as on a command line.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tfopt.value_types import JsonObject

FORMATS = ("saved_model", "tflite", "onnx", "openvino")
GRAPHS = ("as it is", "fold_batch_norm", "optimize_graph")
ARITHMETIC = ("float32", "float16", "bfloat16", "int8")
TFLITE = ("float32", "float16", "dynamic", "int8", "int16x8")
OTHERS = ("float32", "int8")

# The choice, with its values, that follows the value of another one; the choices of the graph and the format are first.
FOLLOWING: dict[tuple[str, str], tuple[str, Sequence[str]]] = {
    ("format", "saved_model"): ("arithmetic", ARITHMETIC),
    **{("arithmetic", each): ("xla", ("no", "yes")) for each in ARITHMETIC if each != "int8"},  # XLA has no 8-bit ops
    ("format", "tflite"): ("tflite", TFLITE),
    ("format", "onnx"): ("onnx", OTHERS),
    ("onnx", "int8"): ("onnx_scales", ("per channel", "per tensor")),
    ("format", "openvino"): ("openvino", OTHERS),
    ("openvino", "int8"): ("openvino_preset", ("performance", "mixed")),
}

# The choices with fine-tuning, which come first, and the values with which a recipe is one without.
FINE_TUNING: dict[str, Sequence[str]] = {
    "channels": ("all", "75%", "50%"),
    "weights": ("not trained", "8 bits", "6 bits"),
}
NOT_TRAINED = {"channels": "all", "weights": "not trained"}
TEACHERS = ("the model", "none")
TRAINED_FORMATS = ("tflite", "onnx")  # that store weights in 4 bits

Choose = Callable[[str, Sequence[str]], str]


@dataclass(frozen=True)
class Step:
    """A component, by name, the name of its output, and the parameters that differ from its defaults."""

    component: str
    output: str
    parameters: JsonObject = field(default_factory=dict)

    def __str__(self) -> str:
        """Format as one line."""
        words = (
            f"{'' if value else 'not '}{name}" if isinstance(value, bool) else str(value)
            for name, value in self.parameters.items()
        )
        return " ".join([self.component, *words])


@dataclass(frozen=True)
class Recipe:
    """A point of the search space: the value of each choice by name."""

    choices: dict[str, str]

    @property
    def steps(self) -> list[Step]:
        """Return the steps, first to last; none for the model as it is."""
        return list(_steps(self.choices))

    def __str__(self) -> str:
        """Format the steps as one line."""
        return ", ".join(map(str, self.steps)) or "as it is"

    @property
    def format(self) -> str | None:
        """Return the format of its model; None if there are no choices."""
        return self.choices.get("format") or self.choices.get("trained_format")

    @property
    def is_trained(self) -> bool:
        """Return True if one of the steps fine-tunes."""
        return not self.choices.keys().isdisjoint(FINE_TUNING)

    def __hash__(self) -> int:
        """Hash the choices."""
        return hash(tuple(sorted(self.choices.items())))


def choose_recipe(choose: Choose, formats: Sequence[str], fine_tuning: bool = False) -> Recipe:
    """Return a recipe; ``choose`` is called for each choice with its name and its values."""
    choices: dict[str, str] = {}
    while following := _next_choice(choices, formats, fine_tuning):
        choices[following[0]] = choose(*following)
    return _recipe(choices)


def all_recipes(formats: Sequence[str], fine_tuning: bool = False) -> list[Recipe]:
    """Return all recipes with at least one step, in a fixed order."""
    return [recipe for recipe in map(_recipe, _extend(formats, fine_tuning, {})) if recipe.steps]


def first_recipes(formats: Sequence[str], fine_tuning: bool = False) -> list[Recipe]:
    """Return the recipes to try first: those that are most often the best of their format, 8 bits before 32.

    The best format differs from model to model, so that each is tried once.
    """
    folded = {"graph": "fold_batch_norm"}
    preferred = [
        {"format": "tflite", "tflite": "int8"},
        {"format": "openvino", "openvino": "int8", "openvino_preset": "performance"},
        {"format": "onnx", "onnx": "int8", "onnx_scales": "per channel"},
        {"format": "tflite", "tflite": "float32"},
        {"format": "openvino", "openvino": "float32"},
        {"format": "saved_model", "arithmetic": "int8"},
        {"format": "saved_model", "arithmetic": "float32", "xla": "no"},
    ]
    recipes = [Recipe(folded | choices) for choices in preferred if choices["format"] in formats]
    trained = {"channels": "50%", "weights": "8 bits", "teacher": "the model"}
    kinds = _trained_formats(formats)[:1] if fine_tuning else []
    return recipes + [Recipe(trained | {"trained_format": kind}) for kind in kinds]


def _steps(choices: dict[str, str]) -> Iterator[Step]:
    if "channels" in choices:
        removed = round(1 - float(choices["channels"].rstrip("%")) / 100, 2)
        yield Step("prune", "pruned", {"pattern": "channel", "sparsity": removed})
    if "weights" in choices:
        yield Step("quantize", "quantized", _training(choices))
        yield Step(f"export_{choices['trained_format']}", "exported", {"precision": "int8"})
        return
    graph, kind = choices["graph"], choices["format"]
    if graph != "as it is":
        yield Step(graph, {"fold_batch_norm": "folded", "optimize_graph": "optimized"}[graph])
    if kind == "saved_model":
        if choices["arithmetic"] == "int8":
            yield Step("quantize_graph", "quantized")
            return
        if choices["arithmetic"] != "float32":
            yield Step("cast_precision", "cast", {"precision": choices["arithmetic"]})
        if choices["xla"] == "yes":
            yield Step("compile_xla", "compiled")
        return
    parameters: JsonObject = {"precision": choices[kind]}
    if "onnx_scales" in choices:
        parameters["per_channel"] = choices["onnx_scales"] == "per channel"
    if "openvino_preset" in choices:
        parameters["preset"] = choices["openvino_preset"]
    yield Step(f"export_{kind}", "exported", parameters)


def _training(choices: dict[str, str]) -> JsonObject:
    """Return the parameters of `quantize`."""
    bits: JsonObject = {} if choices["weights"] == "8 bits" else {"weight_bits": 6.0}
    return bits | ({} if choices["teacher"] == "the model" else {"alpha": 0.0})


def _recipe(choices: dict[str, str]) -> Recipe:
    """Return a recipe; one without fine-tuning is the same in both spaces, so that earlier ones remain valid."""
    return Recipe({name: value for name, value in choices.items() if NOT_TRAINED.get(name) != value})


def _next_choice(
    choices: dict[str, str], formats: Sequence[str], fine_tuning: bool
) -> tuple[str, Sequence[str]] | None:
    for name, values in FINE_TUNING.items() if fine_tuning else ():
        if name not in choices and (name == "channels" or _trained_formats(formats)):
            return name, values
    if choices.get("weights", "not trained") != "not trained":
        if "teacher" not in choices:
            return "teacher", TEACHERS
        return None if "trained_format" in choices else ("trained_format", _trained_formats(formats))
    if "graph" not in choices:
        return "graph", GRAPHS
    return FOLLOWING.get(list(choices.items())[-1]) if "format" in choices else ("format", formats)


def _trained_formats(formats: Sequence[str]) -> list[str]:
    return [kind for kind in formats if kind in TRAINED_FORMATS]


def _extend(formats: Sequence[str], fine_tuning: bool, choices: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield all complete choices that begin with the given ones."""
    following = _next_choice(choices, formats, fine_tuning)
    if following is None:
        yield choices
        return
    name, values = following
    for value in values:
        yield from _extend(formats, fine_tuning, choices | {name: value})

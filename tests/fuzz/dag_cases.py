"""Cases of pipelines and command lines: damaged files, values, and names."""

from collections.abc import Iterator

from tests.fuzz.byte_damage import Rename, whole_file_damage, write
from tests.fuzz.runner import Case, nothing

HEAD = """
from tfopt.component import Input
from tfopt.artifacts import Files, Examples
from typing import Annotated, Literal
"""
BODIES = {
    "no function": "x = 1",
    "syntax": "def module(steps:\n",
    "not callable": "module = 3",
    "class": "class module:\n    pass",
    "no arguments": "def module():\n    pass",
    "no hints": "def module(steps, data):\n    steps.prepare_examples(data=data)",
    "star": "def module(steps, *data, **more):\n    pass",
    "positional hint": "def module(steps, data: int):\n    steps.prepare_examples(data=data)",
    "unknown hint": "def module(steps, data: 'Nowhere'):\n    steps.prepare_examples(data=data)",
    "unknown component": "def module(steps, data: Input[Files]):\n    steps.prepare_exampels(data=data)",
    "unknown input": "def module(steps, data: Input[Files]):\n    steps.prepare_examples(date=data)",
    "wrong artifact": "def module(steps, data: Input[Files]):\n    steps.inspect_model(model=data)",
    "same id": "def module(steps, data: Input[Files]):\n"
    "    steps.prepare_examples(id='a', data=data)\n    steps.prepare_examples(id='a', data=data)",
    "id path": "def module(steps, data: Input[Files]):\n    steps.prepare_examples(id='../../x', data=data)",
    "id number": "def module(steps, data: Input[Files]):\n    steps.prepare_examples(id=5, data=data)",
    "no such output": "def module(steps, data: Input[Files]):\n"
    "    e = steps.prepare_examples(data=data)\n    steps.inspect_model(model=e.outputs['model'])",
    "text as input": "def module(steps, data: Input[Files]):\n    steps.prepare_examples(data='x')",
    "none": "def module(steps, data: Input[Files]):\n    steps.prepare_examples(data=None)",
    "returns number": "def module(steps, data: Input[Files]):\n    return 5",
    "returns name": "def module(steps, data: Input[Files]):\n    return {5: steps.prepare_examples(data=data)}",
    "no steps": "def module(steps, data: Input[Files]):\n    pass",
    "raises": "def module(steps, data: Input[Files]):\n    raise ValueError('mine')",
    "raises key": "def module(steps, data: Input[Files]):\n    {}['x']",
    "exits": "import sys\ndef module(steps, data: Input[Files]):\n    sys.exit(0)",
    "recursion": "def module(steps, data: Input[Files]):\n    module(steps, data)",
    "step argument": "def module(steps, data: Input[Files]):\n    steps.prepare_examples(data)",
    "default": "def module(steps, data: Input[Files], *, splits: int = 'x'):\n    steps.prepare_examples(data=data)",
    "unused": "def module(steps, data: Input[Files], *, x: float = 1.0):\n    steps.prepare_examples(data=data)",
    "bad type": "def module(steps, data: Input[Files], *, x: object = 1):\n"
    "    steps.prepare_examples(data=data, seed=x)",
    "parameter type": "def module(steps, data: Input[Files], *, x: str = 'a'):\n"
    "    steps.prepare_examples(data=data, seed=x)",
    "compare": "def module(steps, data: Input[Files], *, x: int = 1):\n    if x > 3:\n        pass\n"
    "    steps.prepare_examples(data=data, seed=x)",
    "bad module": "import nowhere_at_all\ndef module(steps):\n    pass",
    "generator": "def module(steps, data: Input[Files]):\n    yield 5",
    "async": "async def module(steps, data: Input[Files]):\n    pass",
    "base exception": "raise GeneratorExit",
    "ends the process": "import os\nos._exit(0)",
    "abort": "import os\ndef module(steps, data: Input[Files]):\n    os.abort()",
    "call path": "import tfopt.component\ndef module(steps, data: Input[Files]):\n    steps(5, data=data)",
}  # fmt: skip
SET = {
    "unknown": "dataa=1",
    "no value": "data",
    "empty": "data=",
    "no name": "=5",
    "number": "seed=x",
    "range": "max_rejected=-5",
    "list": "splits=train",
    "nan": "seed=nan",
    "newline": "label=a\nb",
    "null": "data=\0",
    "surrogate": "data=\udcff",
    "control": "data=\x1b[31m",
    "missing": "data=/nowhere",
    "device": "data=/dev/null",
    "web": "data=http://127.0.0.1:9/x.csv",
    "scheme": "data=nowhere://x",
}
PATHS = {
    "brackets": "*[a]\\b",
    "question": "what?",
    "quotes": 'it\'s "quoted"',
    "newline": "a\nb",
    "right to left": "a\u202eb",
    "percent": "a%sb%d",
    "braces": "a{0}b",
    "spaces": "  a  b ",
    "dash": "-rf",
    "unicode": "\u6570\u636e",
    "escape": "a\x1b[31mb",
    "comma": "a,b=c;d",
    "shard": "data@3",
    "hash": "a#b",
}
LONG = "x" * 300
MODEL = "{originals}/saved_model"
EVALUATE = ("evaluate", "--baseline", MODEL, "--candidates", MODEL, "--label", "label")


def cases() -> Iterator[Case]:
    """Return the cases."""
    run = ("run", "{in}/module.py", "--root", "{in}/out", "--engine", "process")
    for name, body in BODIES.items():
        yield Case(f"dag/{name}/run", run, "module.py", write(HEAD + body))
    for name, damage in whole_file_damage().items():
        if name != "device":  # Python itself reads it without an end
            yield Case(f"dag/file {name}/run", run, "module.py", damage)
    retrain = ("run", "retrain", "--root", "{in}/out", "--engine", "process")
    good = ("--set", "data={originals}/data/table.csv", "--set", "module={originals}/module.py")
    for name, value in SET.items():
        yield Case(f"set/{name}/run", (*retrain, *good, "--set", value), "module.py", nothing)
    yield from _paths()
    yield from _outputs()


def _paths() -> Iterator[Case]:
    """Folders with names that TensorFlow, Beam or a terminal could take for something else."""
    for name, folder in PATHS.items():
        place = folder.replace("{", "{{").replace("}", "}}")
        model = f"{{in}}/{place}"
        for command in (
            ("fold_batch_norm", "--model", model, "--folded", "{in}/out"),
            ("export_tflite", "--precision", "float32", "--model", model, "--exported", "{in}/out"),
        ):
            yield Case(f"path/{name}/{command[0]}", command, "saved_model", Rename(folder))
        evaluate = (*EVALUATE, "--replicates", "100")
        yield Case(
            f"path/{name}/evaluate",
            (*evaluate, "--examples", model, "--evaluation", "{in}/out"),
            "plain",
            Rename(folder),
        )
        train = ("train", "--module", "{originals}/module.py", "--epochs", "1", "--trained", "{in}/out")
        yield Case(f"path/{name}/train", (*train, "--examples", model), "plain", Rename(folder))
        prepare = ("prepare_examples", "--label", "label", "--data", "{originals}/data/table.csv", "--examples")
        yield Case(f"path/{name} output/prepare_examples", (*prepare, f"{model}/out"), "module.py", nothing)
        run = ("run", "{in}/module.py", "--engine", "process", "--root", f"{model}/out", "--set", "data=/nowhere")
        body = "def module(steps, data: Input[Files]):\n    steps.prepare_examples(data=data)"
        yield Case(f"path/{name} root/run", run, "module.py", write(HEAD + body))


def _outputs() -> Iterator[Case]:
    inspect = ("inspect_model", "--model", "{originals}/saved_model", "--inspection")
    for name, place in {
        "dot": ".", "dots": "..", "root": "/", "slash": "{in}/", "device": "/dev/null", "proc": "/proc/x",
        "long": "{in}/" + LONG, "long path": "/".join(["{in}", *["d" * 200] * 25]), "file": "{in}/module.py",
        "below file": "{in}/module.py/x",
        "empty": "", "null": "{in}/a\0b", "web": "https://127.0.0.1:9/x", "tilde": "~nobody9/x",
        "surrogate": "{in}/\udcff",
        "s3": "s3://x", "scheme": "nowhere://x/y", "scheme only": "://",
    }.items():  # fmt: skip
        yield Case(f"output/{name}/inspect_model", (*inspect, place), "module.py", nothing)
    for name, place in {
        "null device": "/dev/null", "zero": "/dev/zero", "folder": "/", "empty": "", "long": LONG, "null": "a\0b",
        "self": "{in}", "proc": "/proc/self", "surrogate": "\udcff", "web": "http://127.0.0.1:9/", "scheme": "x://y",
    }.items():  # fmt: skip
        evaluate = (*EVALUATE, "--evaluation", "{in}/out")
        for command in (
            (*evaluate, "--examples"),
            ("inspect_model", "--inspection", "{in}/out", "--model"),
            ("prepare_examples", "--examples", "{in}/out", "--data"),
        ):  # fmt: skip
            yield Case(f"input/{name}/{command[0]}", (*command, place), "module.py", nothing)
    train = ("train", "--examples", "{originals}/plain", "--epochs", "1", "--trained", "{in}/out", "--module")
    for name, text in {
        "empty": "", "syntax": "def build_model(:", "returns none": "def build_model():\n    return None",
        "raises": "def build_model():\n    raise KeyError('x')", "exits": "import os\nos._exit(0)",
        "leaves": "import sys\nsys.exit(0)", "arguments": "def build_model(a, b):\n    pass", "binary": "\x00\x01",
        "abort": "import os\nos.abort()", "segmentation fault": "import ctypes\nctypes.string_at(0)",
        "generator exit": "raise GeneratorExit", "endless name": "build_model = 5",
    }.items():  # fmt: skip
        yield Case(f"module/{name}/train", (*train, "{in}/module.py"), "module.py", write(text))

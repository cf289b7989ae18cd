"""Cases of files that are no models: run folders, journals, run files, pushed versions, messages, special files."""

import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.fuzz.byte_damage import Damage, below, json_edit, json_texts, json_value, whole_file_damage, write
from tests.fuzz.runner import VICTIM, Case, nothing

RUNS = "{in}/job/runs"
YAML = ("run", "-f", "{in}/job/run.yaml")
RECORD_COMMANDS = (
    ("runs", "--json", RUNS), ("clean", "--keep", "0", "--yes", RUNS), ("clean", "--keep", "1", "--yes", RUNS), YAML,
    ("diff", f"{RUNS}/a", f"{RUNS}/a"), ("plan", "-f", "{in}/job/run.yaml"), ("clean", "--keep", "0", RUNS),
)  # fmt: skip
VERIFY = (
    *("validate_serving", "--model", "{in}/served/1/model.tflite", "--infra-blessing", "{in}/out"),
    *("--public-key", "{originals}/public.pem", "--requests", "2", "--seconds", "0.1"),
)
HUGE = 1 << 60
OWN = "runs/a/artifacts/x/y/own.txt"  # a file of the user among the results of a run


def cases() -> Iterator[Case]:
    """Return the cases."""
    yield from _records()
    yield from _journals()
    yield from _run_files()
    yield from _versions()
    yield from _messages()
    yield from _words()
    yield from _special_files()


def table(
    kind: str, source: str, damage: Mapping[str, Damage], commands: Sequence[tuple[str, ...]], whole=None
) -> Iterator[Case]:
    """Return a case for each damage; the commands take turns."""
    for number, (name, item) in enumerate(damage.items()):
        words = commands[number % len(commands)]
        yield Case(f"{kind}/{source} {name}/{words[0]}", words, source, item, whole)


def special_files() -> dict[str, Damage]:
    """Return damage that replaces a file by something whose reading does not end, by name."""
    return {"pipe": _pipe, "socket": _socket, "endless device": _device, "link to a pipe": _link_to_pipe}


def victim() -> Path:
    """Return the file outside of the inputs that no command may remove, change or copy."""
    return Path(os.environ[VICTIM])


def _records() -> Iterator[Case]:
    """Run folders: a command leaves out what it cannot read, and removes nothing but what the run has written."""
    damage: dict[str, Damage] = {}
    for name, find in {
        "run": lambda job: job / "runs/a/run.json",
        "execution": lambda job: next((job / "runs/a/executions/count").iterdir()),
    }.items():
        items = {f"value {seed}": json_value(seed) for seed in range(20)}
        items |= {key: write(text) for key, text in json_texts().items()}
        items |= whole_file_damage() | special_files()
        damage |= {f"{name} {key}": _damage_at(find, item) for key, item in items.items()}
    outside = ("..", "../..", "/", "", ".", "~", "artifacts/../../..", "artifacts", "a\0b", "x" * 5000)
    damage |= {f"path {number}": _execution(_output_path(path)) for number, path in enumerate(outside)}
    damage["path of the victim"] = lambda job: _execution(_output_path(str(victim().parent)))(job)
    folders = ("artifacts", "artifacts/count", "artifacts/count/report", "executions", "executions/count")
    damage |= {f"link {name}": _moved_to_link(f"runs/a/{name}") for name in folders}
    damage |= {f"link {name} out": _link_out(f"runs/a/{name}") for name in (*folders, "run.log", "metadata.sqlite")}
    yield from table("record", "job", damage, RECORD_COMMANDS, _keeps_own_file)


def _journals() -> Iterator[Case]:
    """Files next to an output that claim to be of an earlier execution which was killed."""
    words = ("tests.toys:count", "--data", "{in}/job/data.txt", "--report", "{in}/job/out")
    places = {
        "absolute": lambda: str(victim()),
        "folder": lambda: str(victim().parent),
        "relative": lambda: "../../victim/own.txt",
        "own": lambda: "data.txt",
        "root": lambda: "/",
        "empty": lambda: "",
        "null": lambda: "a\0b",
        "number": lambda: 3,
    }
    damage = {name: _forged(place) for name, place in places.items()}
    damage |= {f"text {name}": _damage_next_to(write(text)) for name, text in json_texts().items()}
    damage |= {name: _damage_next_to(item) for name, item in (whole_file_damage() | special_files()).items()}
    damage |= {f"staged {name}": _damage_next_to(item, ".out.partial-x") for name, item in special_files().items()}
    yield from table("journal", "job", damage, [words], _has_data)


def _run_files() -> Iterator[Case]:
    """YAML of run files."""
    base = "pipeline: counting.py\nroot: runs/a\nengine: process\nvalues:\n  data: data.txt\n"
    laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
    )
    merges = "m0: &m0 {x: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}\n" for n in range(1, 40))
    texts = {
        "aliases": laughs + base,
        "aliases as a value": laughs + base + "  limit: *a9\n",
        "aliases in texts": "a0: &a0 " + "x" * 1000 + "\n" + laughs.partition("\n")[2] + base,
        "merges": merges + base,
        "recursive list": base + "  limit: &a [*a]\n",
        "recursive mapping": base.replace("values:", "values: &a\n  limit: *a"),
        "recursive key": base + "? &a [*a]\n: 1\n",
        "unknown alias": base + "  limit: *nowhere\n",
        "deep list": base + "  limit: " + "[" * 20_000 + "\n",
        "deep closed list": base + "  limit: " + "[" * 3000 + "]" * 3000 + "\n",
        "deep mapping": base + "  limit: " + "{a: " * 20_000 + "\n",
        "deep blocks": base + "".join(" " * n + "a:\n" for n in range(2, 3000)),
        "python": base + "  limit: !!python/object/apply:os.system ['touch $TFOPT_FUZZ_CANARY']\n",
        "python name": base + "  limit: !!python/name:os.system\n",
        "unknown tag": base + "  limit: !nowhere 3\n",
        "binary tag": base + "  limit: !!binary AAAA\n",
        "set": base + "  limit: !!set {a, b}\n",
        "long number": base + "  limit: " + "1" * 5000 + "\n",
        "sexagesimal": base + "  limit: " + "59:" * 2000 + "59\n",
        "infinite": base + "  limit: .inf\n",
        "nan": base + "  limit: .nan\n",
        "2^60": base + f"  limit: {HUGE}\n",
        "date": base + "  limit: 2020-13-45\n",
        "same keys": base + base,
        "documents": base + "---\n" + base,
        "no values": base.replace("values:\n  data: data.txt\n", ""),
        "null values": base.replace("values:\n  data: data.txt\n", "values:\n"),
        "list of values": base.replace("values:\n  data: data.txt\n", "values: [1]\n"),
        "null pipeline": base.replace("counting.py", "null"),
        "list pipeline": base.replace("counting.py", "[counting.py]"),
        "endless pipeline": base.replace("counting.py", "/dev/zero.py"),
        "pipeline module": base.replace("counting.py", "os"),
        "root device": base.replace("runs/a", "/dev/null"),
        "data device": base.replace("data.txt", "/dev/zero"),
        "data variable": base.replace("data.txt", "${NOWHERE_AT_ALL}"),
        "data null": base.replace("data.txt", "null"),
        "data list": base.replace("data.txt", "[[[]]]"),
        "tabs": base.replace("  data", "\tdata"),
        "unknown key": base + "nowhere: 1\n",
        "number keys": base + "1: 2\nnull: 3\n",
        "engine": base.replace("process", "nowhere"),
        "engine list": base.replace("process", "[process]"),
        "directive": "%YAML 9.9\n---\n" + base,
        "surrogate": base + '  limit: "\\ud800"\n',
        "control": base + '  limit: "\\e[31m"\n',
        "byte order": "\ufeff\ufeff" + base,
    }
    damage = {name: below("run.yaml", write(text)) for name, text in texts.items()}
    damage |= {f"bytes {name}": below("run.yaml", write(text)) for name, text in json_texts().items()}
    files = {**whole_file_damage(), **special_files()}
    damage |= {f"file {name}": below("run.yaml", item) for name, item in files.items()}
    yield from table("run file", "job", damage, [YAML, ("plan", "-f", "{in}/job/run.yaml")], _keeps_own_file)


def _versions() -> Iterator[Case]:
    """Pushed versions that are verified with a key."""
    files = {"sha256": "versions/1.sha256", "sig": "versions/1.sig", "pushed": "versions/1.pushed.json"}
    files["signed"] = "versions/1.signed.json"
    damage: dict[str, Damage] = {}
    for name, file in files.items():
        damage |= {f"{name} {key}": below(file, item) for key, item in (whole_file_damage() | special_files()).items()}
    damage |= {f"sig text {name}": below(files["sig"], write(text)) for name, text in json_texts().items()}
    damage |= {f"pushed value {seed}": below(files["pushed"], json_value(seed)) for seed in range(6)}
    for name in (
        ".git/config",
        ".git/hooks/x",
        ".gitattributes",
        ".gitignore",
        ".github/x",
        "sub/.git/x",
        ".x",
        "x\ny",
    ):
        damage[f"added {name}"] = _added(f"1/{name}")
    damage |= {
        "added pipe": _added("1/pipe", _pipe),
        "added socket": _added("1/socket", _socket),
        "added folder": lambda served: (served / "1/folder").mkdir(),
        "added link": lambda served: (served / "1/link").symlink_to(victim()),
        "linked model": below("1/model.tflite", _replace_by_link),
        "file twice": _manifest(lambda lines: lines + lines[-1:]),
        "file twice, first wrong": _manifest(lambda lines: ["0" * 64 + lines[0][64:], *lines]),
        "other name twice": _manifest(lambda lines: [*lines, lines[-1].replace("1/", "1/./")]),
        "leads out": _manifest(lambda lines: [*lines, "0" * 64 + "  1/../../victim/own.txt"]),
        "absolute": _manifest(lambda lines: [*lines, "0" * 64 + f"  {victim()}"]),
        "upper case": _manifest(lambda lines: [line.upper() for line in lines]),
        "no lines": _manifest(lambda lines: []),
        "long line": _manifest(lambda lines: [*lines, "0" * 1_000_000]),
        "older version as the newest": _older_as_newest,
        "other number": below(files["pushed"], json_edit(lambda content: content.update(version=2))),
        "changed model": below("1/model.tflite", lambda file: file.write_bytes(file.read_bytes() + b"\0")),
        "other time": below(
            files["signed"], json_edit(lambda content: content.update(time="2030-01-01T00:00:00+00:00"))
        ),
        "other signed number": below(files["signed"], json_edit(lambda content: content.update(version="2"))),
        "not signed": lambda served: [
            (served / f"versions/1.{name}").unlink() for name in ("signed.json", "signed.sig")
        ],
        "swapped signatures": lambda served: shutil.copy(served / files["sig"], served / "versions/1.signed.sig"),
    }
    # The signature does not cover what `push_model` notes for itself, and folders without files.
    notes = {name: damage.pop(name) for name in list(damage) if name.startswith("pushed ")}
    notes |= {name: damage.pop(name) for name in ("other number", "added folder")}
    yield from table("version", "served", damage, [VERIFY])
    yield from table("version", "served", notes, [VERIFY], lambda _: True)


def _messages() -> Iterator[Case]:
    """Messages of Kubeflow to a step."""
    good = {
        "inputs": {"artifacts": {"data": {"artifacts": [{"uri": "IN/job/data.txt"}]}}},
        "outputs": {"outputFile": "IN/out.json", "artifacts": {"report": {"artifacts": [{"uri": "IN/out"}]}}},
    }
    texts = {name: text.decode("latin-1") for name, text in json_texts().items() if b"\0" not in text}
    wrong = (None, [], {}, 3, "text", [None], [[]], {"a": None}, "a\0b", HUGE, float("nan"))
    for number, value in enumerate(wrong):
        for place in ("inputs", "outputs"):
            texts[f"{place} {number}"] = json.dumps(good | {place: value})
        texts[f"values {number}"] = json.dumps(good | {"inputs": good["inputs"] | {"parameterValues": value}})
        texts[f"limit {number}"] = json.dumps(good | {"inputs": good["inputs"] | {"parameterValues": {"limit": value}}})
        texts[f"data {number}"] = json.dumps(good | {"inputs": {"artifacts": {"data": value}}})
        texts[f"list {number}"] = json.dumps(good | {"inputs": {"artifacts": {"data": {"artifacts": value}}}})
        texts[f"file {number}"] = json.dumps(good | {"outputs": good["outputs"] | {"outputFile": value}})
    for name, text in texts.items():
        message = text.replace("{", "{{").replace("}", "}}").replace("IN/", "{in}/")
        words = ("tests.toys:count", "--executor-input", message)
        yield Case(f"message/{name}/count", words, "job", nothing)


def _words() -> Iterator[Case]:
    """Command lines that name nothing, or runners and options that are unknown."""
    prepare = ("prepare_examples", "--data", "{in}/data/table.csv", "--examples", "{in}/out", "--label", "label")
    beam = ("--runner=Nowhere", "--nowhere", "--runner=", "--direct_num_workers=x", "--runner=os.system", "x\0y", "",
            "--runner=DataflowRunner", "--temp_location=nowhere://x", "--direct_running_mode=nowhere")  # fmt: skip
    for number, value in enumerate(beam):
        words = (*prepare, f"--beam-pipeline-arg={value}")
        yield Case(f"words/beam {number}/prepare_examples", words, "data", nothing)
    for number, name in enumerate((":", "a:", ":b", "a:b:c", "os:system", "tests.toys:nowhere", "..:x", "a/b:c", " ",
                                   "\x1b[31m", "\udcff:x", "tests.toys:", "a\0b:c", "x" * 5000 + ":y")):  # fmt: skip
        yield Case(f"words/component {number}/count", (name, "--data", "{in}/data"), "data", nothing)
    for number, size in enumerate((HUGE, "x", "", -1, "1x1152921504606846976", "99999999999x99999999999")):
        yield Case(f"words/pack {number}/prepare_examples", (*prepare, "--pack", f"image={size}"), "data", nothing)


def _special_files() -> Iterator[Case]:
    """Pipes, sockets and devices instead of each file that a command reads: none of them may hang."""
    score = "--label label --evaluation {in}/out --replicates 100 --candidates {originals}/model.tflite"
    evaluate = f"evaluate --examples {{originals}}/examples {score} --baseline"
    examples = f"evaluate --baseline {{originals}}/model.tflite {score} --examples"
    fold, inspect = "fold_batch_norm --folded {in}/out --model", "inspect_model --inspection {in}/out --model"
    prepare = "prepare_examples --examples {in}/out --label label --data"
    push = (
        "push_model --model {originals}/selected --decision {originals}/decision --pushed {in}/out "
        "--destination {in}/out4 --blessing"
    )
    train = "train --examples {originals}/plain --epochs 1 --trained {in}/out --module"
    data, model, card = "Split-eval/data_tfrecord-00000-of-00001.gz", "saved_model.pb", "model_card.json"
    weights = "variables/variables.data-00000-of-00001"
    for source, file, argument, *commands in (
        ("saved_model", model, "saved_model", fold, inspect),
        ("saved_model", "variables/variables.index", "saved_model", fold, inspect),
        ("saved_model", weights, "saved_model", inspect, fold),
        ("saved_model", "assets/more", "saved_model", fold, inspect),
        ("lookup", "assets/words.txt", "lookup", fold, inspect),
        ("keras2", "keras_metadata.pb", "keras2", inspect, fold),
        ("model.keras", "", "model.keras", inspect, fold),
        ("model.h5", "", "model.h5", fold, inspect),
        ("model.tflite", "", "model.tflite", evaluate, inspect),
        ("frozen.pb", "", "frozen.pb", inspect, fold),
        ("onnx", "model.onnx", "onnx/model.onnx", inspect, evaluate),
        ("external", "weights.bin", "external/model.onnx", evaluate, inspect),
        ("openvino", "model.xml", "openvino/model.xml", inspect, evaluate),
        ("openvino", "model.bin", "openvino/model.xml", evaluate, inspect),
        ("selected", card, "selected", inspect, evaluate),
        ("examples", data, "examples", examples),
        ("plain", "examples.json", "plain", examples),
        ("data", "table.csv", "data/table.csv", prepare),
        ("data", "table.parquet", "data/table.parquet", prepare),
        ("data", "arrays.npz", "data/arrays.npz", prepare),
        ("data", "rows.tfrecord.gz", "data/rows.tfrecord.gz", prepare),
        ("blessing", "blessing.json", "blessing", push),
        ("module.py", "", "module.py", train),
    ):  # fmt: skip
        for number, (name, damage) in enumerate(special_files().items()):
            words = (*commands[number % len(commands)].split(), f"{{in}}/{argument}")
            item = below(file, damage) if file else damage
            yield Case(f"special file/{source} {file} {name}/{words[0]}", words, source, item)


def _keeps_own_file(job: Path) -> bool:
    """Return True if the file of the user is there: then what a command made of a run folder is right."""
    return (job / OWN).is_file() or not (job / "runs/a/artifacts/count").is_dir()


def _has_data(job: Path) -> bool:
    return (job / "data.txt").read_text() == "one\n"


def _damage_at(find: Callable[[Path], Path], damage: Damage) -> Damage:
    return lambda job: damage(find(job))


def _execution(edit: Callable) -> Damage:
    return lambda job: json_edit(edit)(next((job / "runs/a/executions/count").iterdir()))


def _output_path(path: str) -> Callable:
    return lambda content: content["outputs"]["report"].update(path=path)


def _moved_to_link(name: str) -> Damage:
    """Move a folder of the run into the victim's folder, and leave a link to it."""

    def damage(job: Path) -> None:
        moved = victim().parent / "moved"
        shutil.move(job / name, moved)
        (job / name).symlink_to(moved)

    return damage


def _link_out(name: str) -> Damage:
    """Replace a part of the run by a link to the victim or to its folder."""

    def damage(job: Path) -> None:
        path = job / name
        target = victim() if path.suffix else victim().parent
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.symlink_to(target)

    return damage


def _forged(place: Callable[[], object]) -> Damage:
    """Write a journal that names a path, with the fingerprint that its file has."""

    def damage(job: Path) -> None:
        from tfopt.storage.publication import _fingerprint

        path = place()
        fingerprint = ""
        if isinstance(path, str) and "\0" not in path and path != "/":
            fingerprint = _fingerprint(job / path)
        outputs = {str(job / "out"): "", str(path): fingerprint} if path != 3 else 3
        (job / ".out.commit-x").write_text(json.dumps({"token": "x", "process": "x", "outputs": outputs}))

    return damage


def _damage_next_to(damage: Damage, name: str = ".out.commit-x") -> Damage:
    def damage_file(job: Path) -> None:
        (job / name).write_text("{}")
        damage(job / name)

    return damage_file


def _added(name: str, make: Damage | None = None) -> Damage:
    def damage(folder: Path) -> None:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        make(file) if make else file.write_text("added")

    return damage


def _replace_by_link(file: Path) -> None:
    """Move a file to the victim's folder, and leave a link."""
    moved = victim().parent / "moved"
    shutil.move(file, moved)
    file.symlink_to(moved)


def _manifest(edit: Callable[[list[str]], list[str]]) -> Damage:
    def damage(served: Path) -> None:
        file = served / "versions/1.sha256"
        file.write_text("".join(f"{line}\n" for line in edit(file.read_text().splitlines())))

    return damage


def _older_as_newest(served: Path) -> None:
    """Let the verified path be a signed version under another number."""
    shutil.copytree(served / "1", served / "2")
    for file in list((served / "versions").iterdir()):
        text = file.read_text()
        (served / "versions" / file.name.replace("1.", "2.", 1)).write_text(text.replace(" 1/", " 2/"))
    shutil.rmtree(served / "1")
    (served / "1").symlink_to("2")


def _pipe(file: Path) -> None:
    _make_room(file)
    os.mkfifo(file)


def _socket(file: Path) -> None:
    _make_room(file)
    place = os.open(file.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{place}/{file.name}")  # paths of sockets have at most 107 characters


def _device(file: Path) -> None:
    _make_room(file)
    try:
        os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:  # only root may
        file.symlink_to("/dev/zero")


def _link_to_pipe(file: Path) -> None:
    _make_room(file)
    pipe = victim().parent / "pipe"
    os.mkfifo(pipe)
    file.symlink_to(pipe)


def _make_room(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)

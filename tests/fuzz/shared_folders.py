"""Cases of folders that several users write: policies, histories, planted links, renamed folders."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.byte_damage import Damage, json_edit, json_texts, json_value, whole_file_damage, write
from tests.fuzz.hostile_files import special_files, table, victim
from tests.fuzz.runner import Case

PUSH = (
    *("push_model", "--model", "{originals}/selected", "--decision", "{originals}/decision"),
    *("--blessing", "{originals}/blessing", "--pushed", "{in}/out", "--destination", "{in}/served"),
)
COUNT = ("tests.toys:count", "--data", "{in}/job/data.txt", "--report")
NOBODY = 65534
TIME = "2026-11-01T00:00:00+00:00"
MODEL = {"name": "m", "digest": "d", "format": "onnx", "metrics": {"accuracy": 0.9, "latency": 0.5, "throughput": 9.0}}
RECORD = {
    **{"schema_version": 1, "decision": "d", "time": TIME, "blessed": True, "version": 1, "reason": "blessed"},
    "conditions": {
        "quality": {"task": "classification", "label": "l", "split": "test"},
        "speed": {"cpu": "x", "threads": 1, "batch_sizes": [1]},
    },
    **{"winner": MODEL, "parent": MODEL, "versions": {"tfopt": "1"}},
}
TIMES = ("x", "", "2026-01-01", "2026-13-45T00:00:00+00:00", "2026-01-01T00:00:00", "0001-01-01T00:00:00+23:59", "\0")
NUMBERS = (0, -1, 1e-320, 1e308, -1e308, 1 << 80, True, None, "x", [], {})
NAMES = ("²", "1²", "\u0667", "0" * 200, "9" * 200, "-1", "1.0", " 1", "1\n")


def cases() -> Iterator[Case]:
    """Return the cases."""
    yield from table("policy", "served", _policies(), [PUSH])
    yield from table("fleet", "served", _histories(), [("fleet", "{in}/served", "--price", "1")], lambda _: True)
    yield from table("shared", "served", _planted(), [PUSH])
    for name, folder in {
        "staged": f"../tmp/.out.partial-{socket.gethostname()}-99999999-abc",
        "scratch": SCRATCH,
    }.items():
        words = (*COUNT, "{in}/../tmp/out")
        yield Case(f"shared/job renamed as {name}/count", words, "job", _renamed(folder), lambda _: True)
    if os.geteuid() == 0:  # only root can make links of another user
        for name in ("link", "link/below"):
            yield Case(f"shared/job output {name}/count", (*COUNT, f"{{in}}/job/{name}"), "job", _foreign_link)


SCRATCH = "../tmp/tfopt-99999999-0123abcd"  # next to the inputs, in which no copy of the victim's file may be


def _policies() -> dict[str, Damage]:
    aliases = "goals: &a0 [x, x, x, x, x, x, x, x, x]\n"
    nested = "formats:\n- &a0 [x, x, x, x, x, x, x, x, x]\n"
    nested += "".join(f"- &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    rules = {
        **{"no owner": "goals: []", "null owner": "owner:", "list owner": "owner: [a]", "two": "owner: a\nowner: b"},
        **{f"number {n}": f"owner: o\nmin_records: {n}" for n in ("9" * 5000, ".inf", "1e3", "-5", "true", "0x", "~")},
        **{f"flag {n}": f"owner: o\nsignature: {n}" for n in ("perhaps", "1", "[]", "null", "!!bool x", "yes no")},
        **{f"goal {n}": f"owner: o\ngoals: ['accuracy threshold {n}']" for n in ("nan", "inf", "1e999", "x", "")},
        **{f"tag {n}": f"owner: o\nmin_records: !!{n} x" for n in ("int", "float", "timestamp", "binary", "omap")},
        "weaker": "owner: o\nsignature: true\nsignature: false",
        "aliases": aliases + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)),
        "nested aliases": nested + "owner: *a11\n",
        "loop": "owner: &a [*a]",
        "python": "owner: !!python/object/apply:os.system ['touch $TFOPT_FUZZ_CANARY']",
        "unknown": "owner: o\nnowhere: 1",
        "version": "owner: o\nschema_version: 9",
        "documents": "owner: o\n---\nowner: p",
        "formats": "owner: o\nformats: [nowhere]",
        "deep": "owner: " + "[" * 3000,
    }
    damage = {name: _with_policy(write(text)) for name, text in rules.items()}
    damage |= {f"text {name}": _with_policy(write(text)) for name, text in json_texts().items()}
    files = {"folder": lambda file: (file.unlink(), file.mkdir()), **special_files()}
    return damage | {f"file {name}": _with_policy(item) for name, item in files.items()}


def _with_policy(damage: Damage) -> Damage:
    def write_policy(served: Path) -> None:
        (served / "policy.yaml").write_text("owner: o\n")
        damage(served / "policy.yaml")

    return write_policy


def _histories() -> dict[str, Damage]:
    damage = {f"time {number}": _edited(("time",), text) for number, text in enumerate(TIMES)}
    places = [(model, "metrics", metric) for model in ("winner", "parent") for metric in MODEL["metrics"]]
    places += [("version",), ("versions", "tfopt"), ("conditions", "speed", "cpu"), ("winner", "format")]
    for place in places:
        damage |= {f"{'.'.join(place)} {number}": _edited(place, value) for number, value in enumerate(NUMBERS)}
    damage |= {f"value {seed}": _with_history(json_value(seed)) for seed in range(20)}
    damage |= {f"text {name}": _with_history(write(text)) for name, text in json_texts().items()}
    damage |= {f"file {name}": _with_history(item) for name, item in (whole_file_damage() | special_files()).items()}
    return damage | {f"folder {n}": lambda served, name=name: (served / name).mkdir() for n, name in enumerate(NAMES)}


def _with_history(damage: Damage) -> Damage:
    """Write six runs, and damage the last one."""

    def write_history(served: Path) -> None:
        (served / "history").mkdir()
        for number in range(1, 7):
            record = RECORD | {"time": f"2026-11-0{number}T00:00:00+00:00", "version": number}
            (served / "history" / f"{number}.json").write_text(json.dumps(record))
        damage(served / "history" / "6.json")

    return write_history


def _edited(place: tuple[str, ...], value: object) -> Damage:
    def edit(content: dict) -> None:
        for name in place[:-1]:
            content = content[name]
        content[place[-1]] = value

    return _with_history(json_edit(edit))


def _planted() -> dict[str, Damage]:
    """Links of another user in a destination, to the victim's file or folder."""
    if os.geteuid():
        return {}
    damage = {"config": lambda served: _link(served / "config.pbtxt", victim())}
    damage["destination"] = _moved
    return damage


def _moved(served: Path) -> None:
    """Replace the destination by a link to one of the victim."""
    shutil.move(served, victim().parent / "served")
    _link(served, victim().parent / "served")


def _foreign_link(job: Path) -> None:
    (victim().parent / "new").mkdir()
    _link(job / "link", victim().parent / "new")


def _link(path: Path, target: Path) -> None:
    path.symlink_to(target)
    os.lchown(path, NOBODY, NOBODY)


def _renamed(name: str) -> Damage:
    """Rename the victim's folder to a name of an unfinished one; the link shows whether its file remains."""

    def damage(job: Path) -> None:
        folder, renamed = victim().parent, job.parent / name
        folder.rename(renamed)
        folder.symlink_to(renamed.resolve())

    return damage

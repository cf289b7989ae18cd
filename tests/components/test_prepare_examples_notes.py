"""Test the notes of `prepare_examples`: columns that hold the label, rounded integers, one class; and their way."""

import json
import logging
import re
from random import Random

import numpy as np
import pytest

from tests.runtimes.formulas import saved
from tfopt.artifacts import Model
from tfopt.components.evaluate.component import evaluate
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.components.prepare_examples.survey.column_checks import MOST_PAIRS, ColumnChecks
from tfopt.components.train.component import train

ID = 2**60
MODULE = """
import keras

def build_model():
    inputs = [keras.Input((1,), name=name) for name in ("id", "exact")]
    flow = keras.layers.Rescaling(1e-8)(keras.layers.Concatenate()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(flow))
    model.compile("sgd", loss="mse")
    return model
"""


def prepare(folder, rows, header, **settings):
    (folder / "data.csv").write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    examples = prepare_examples(folder / "data.csv", folder / "examples", splits=["train:1", "eval:1"], **settings)
    return examples["examples"]


def notes(folder, rows, header, **settings):
    examples = prepare(folder, rows, header, **settings)
    return json.loads((examples.path / "examples.json").read_text()).get("notes", [])


@pytest.mark.parametrize(
    ("column", "fact"),
    [
        (lambda n: n % 3, "column 'y' equals the label 'label' in all 60 rows"),
        (lambda n: "pqr"[n % 3], "column 'y' determines the label 'label' in all 60 rows"),
        (lambda n: n % 6, None),
        (lambda n: (n + (n == 59)) % 3, None),
        (lambda n: 7, None),
    ],
)
def test_a_column_with_the_label_is_a_note(tmp_path, column, fact):
    own = notes(tmp_path, [(n * 7 % 11, column(n), n % 3) for n in range(60)], "x,y,label")
    assert [note.split(":")[0] for note in own] == ([fact] if fact else [])


def test_a_copy_of_a_number_to_predict_is_a_note(tmp_path):
    (note,) = notes(tmp_path, [(n * 7 % 11, n / 8, f"{n / 8:.4f}") for n in range(300)], "x,y,label")
    assert note.startswith("column 'y' equals the label 'label' in all 300 rows")


def test_identifiers_that_are_packed_are_a_note_with_their_number(tmp_path):
    rows = [(ID + n, n % 5, n * 7 % 3) for n in range(60)]
    (note,) = notes(tmp_path, rows, "id,x,label", pack="image=2")
    assert note.startswith("column 'id': 59 whole numbers beyond 16777216 are rounded")


def test_identifiers_that_are_stored_as_integers_add_no_note(tmp_path):
    assert notes(tmp_path, [(ID + n, n % 5, n * 7 % 3) for n in range(60)], "id,x,label") == []


@pytest.mark.parametrize("label", [1, "yes"])
def test_one_class_is_a_note(tmp_path, label):
    (note,) = notes(tmp_path, [(n, label) for n in range(60)], "x,label")
    assert note == f"all 60 examples of the data have the label {'0 (yes)' if label == 'yes' else label}"


@pytest.mark.parametrize("seed", range(5))
def test_checks_do_not_depend_on_the_order_of_rows(seed):
    draw = Random(seed)
    count = 3 * MOST_PAIRS
    rows = [(str(n), str(n), f"v{n % 7}", str(n % 7), str(ID + n), str(n)) for n in range(count)]
    draw.shuffle(rows)
    names, total = ("same", "many", "seven", "other", "id", "label"), ColumnChecks()
    parts = [ColumnChecks() for _ in range(5)]
    for row in rows:
        draw.choice(parts).add(names, row, "label", is_text=True)
    for part in parts:
        total.merge(part)
    assert total.pairs.keys() == {"same", "many"}
    assert [note.split(" in all")[0] for note in total.notes("label", ["id"])] == [
        "column 'many' equals the label 'label'",
        "column 'same' equals the label 'label'",
        f"column 'id': {sum(int(np.float32(ID + n)) != ID + n for n in range(count))} whole numbers beyond 16777216 "
        "are rounded, because it is stored as float32: different identifiers can become one",
    ]


def test_evaluate_passes_the_notes_on_and_adds_its_own(tmp_path):
    import tensorflow as tf

    examples = prepare(tmp_path, [(ID + n, n % 2, n % 2) for n in range(60)], "id,y,label")
    model = saved(
        tmp_path / "model",
        lambda id, y: {"chances": tf.concat([1 - y, y], 1) + 0 * id},
        id=((None, 1), "float32"),
        y=((None, 1), "float32"),
    )
    report = evaluate(model, [model], examples, tmp_path / "out", replicates=100)["evaluation"].read()
    assert [note.split(":")[0] for note in report["notes"]] == [
        "examples",
        f"feature 'id' has integers up to {ID + 59}, and the model takes float32, which rounds those beyond 16777216",
    ]
    assert "column 'y' equals the label 'label' in all 60 rows" in report["notes"][0]


def test_train_warns_of_integers_that_the_inputs_of_its_model_round(tmp_path, caplog):
    examples = prepare(tmp_path, [(2**24 + 1 - n, 2**24 - n, n % 2) for n in range(60)], "id,exact,label")
    module = tmp_path / "module.py"
    module.write_text(MODULE)
    with caplog.at_level(logging.WARNING, "tfopt"):
        model = train(examples, module, tmp_path / "model", epochs=1)["trained"]
    text = "feature 'id' has integers up to 16777217, and the model takes float32, which rounds those beyond 16777216"
    assert [message.split(":")[0] for message in caplog.messages if message.startswith("feature '")] == [text]
    assert [note.split(":")[0] for note in Model(model.path).card.facts["notes"]] == [text]


def test_values_of_json_are_checked_too(tmp_path):
    rows = [{"a": "x", "id": ID + n, "many": [ID + 1, 2], "label": n % 2} for n in range(60)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    columns = ["id:float32", "many:float32"]
    examples = prepare_examples(tmp_path / "data.jsonl", tmp_path / "examples", columns=columns)["examples"]
    own = json.loads((examples.path / "examples.json").read_text())["notes"]
    assert [note.split(" whole")[0] for note in own] == ["column 'id': 59", "column 'many': 60"]


def test_a_column_that_differs_in_one_part_is_no_copy():
    parts = {part: ColumnChecks() for part in ("differs", "equal")}
    for number in range(20):
        parts["differs"].add(("y", "label"), (str(number), str(number % 2)), "label", is_text=True)
        parts["equal"].add(("y", "label"), (str(number % 2), str(number % 2)), "label", is_text=True)
    for order in (("differs", "equal"), ("equal", "differs")):
        total = ColumnChecks()
        for part in order:
            total.merge(parts[part])
        assert not total.notes("label", [])


def test_the_log_states_what_the_evaluated_split_can_show(tmp_path, caplog):
    with caplog.at_level("INFO"):
        notes(tmp_path, [(n, n % 3) for n in range(200)], "x,label")
    assert re.search(r"split eval: \d+ records cannot exclude a loss of less than [0-9.]+ points of acc", caplog.text)

"""Test tables of `prepare_examples`: CSV, TSV, JSON lines, Parquet; declared columns and missing values."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pandas._libs.parsers import STR_NA_VALUES
from pyarrow import parquet

from tests.components.test_prepare_examples import records, rows, run, shards
from tests.components.test_prepare_examples_refusals import refusal
from tfopt.components.prepare_examples.cells import MISSING_WORDS
from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers import parquet as parquet_reader
from tfopt.components.prepare_examples.readers.detect import inspect_source

FORMATS = ("csv", "tsv.gz", "jsonl", "ndjson.gz", "parquet")


def write(file: Path, table: list[dict], schema: pa.Schema | None = None) -> Path:
    """Write rows in the format of the file's name; None is an empty cell or null."""
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = file.with_suffix("") if file.suffix == ".gz" else file
    if plain.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(table, schema), plain, row_group_size=7)
    elif plain.suffix in (".csv", ".tsv"):
        with plain.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(table[0]), delimiter="," if plain.suffix == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(table)
    else:
        plain.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table))
    if file != plain:
        file.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    return file


def sample(count: int = 60) -> list[dict]:
    """Return rows with every type, missing values, Unicode, separators in texts, and integers beyond float64."""
    return [
        {
            "großes id": 2**60 + n,
            "x": None if n % 7 == 0 else n / 8,
            "tiny": 1e-30 * n,
            "name": None if n % 11 == 3 else f'žluť, "{n % 5}"\t\n東京',
            "label": "iris" if n % 3 else "aster",
        }
        for n in range(count)
    ]


def examples(folder) -> list[dict]:
    return [row for split in ("train", "eval") for row in rows(folder, split)]


def test_the_same_table_in_every_format_gives_the_same_files(tmp_path):
    for kind in FORMATS:
        write(tmp_path / kind / "the data.x" / f"a b.{kind}", sample())
        run(tmp_path / kind / "the data.x", tmp_path / f"{kind}.out")
    expected = shards(tmp_path / "csv.out")
    manifest = (tmp_path / "csv.out" / "examples.json").read_text()
    assert {row["großes id"][0] for row in examples(tmp_path / "csv.out")} <= {2**60 + n for n in range(60)}
    for kind in FORMATS[1:]:
        assert shards(tmp_path / f"{kind}.out") == expected
        assert (tmp_path / f"{kind}.out" / "examples.json").read_text() == manifest


def test_float32_and_bool_columns_have_the_splits_of_their_numbers(tmp_path):
    table = [{"x": n / 10, "flag": n % 3 > 0, "label": n % 2} for n in range(40)]
    schema = pa.schema([("x", pa.float32()), ("flag", pa.bool_()), ("label", pa.int64())])
    run(write(tmp_path / "a.csv", [row | {"flag": int(row["flag"])} for row in table]), tmp_path / "csv")
    run(write(tmp_path / "a.parquet", table, schema), tmp_path / "parquet")
    run(write(tmp_path / "a.jsonl", table), tmp_path / "jsonl")
    assert shards(tmp_path / "csv") == shards(tmp_path / "parquet") == shards(tmp_path / "jsonl")


@pytest.mark.parametrize("kind", ["ndjson.gz", "parquet"])  # all texts are read line by line
def test_several_files_give_the_examples_of_one(kind, tmp_path):
    table = sample()
    write(tmp_path / f"one.{kind}", table)
    for part in range(3):
        write(tmp_path / "many" / f"part {part}.{kind}", table[part::3])
    run(tmp_path / f"one.{kind}", tmp_path / "a")
    run(tmp_path / "many", tmp_path / "b")
    assert shards(tmp_path / "a") == shards(tmp_path / "b")
    assert (tmp_path / "a" / "examples.json").read_text() == (tmp_path / "b" / "examples.json").read_text()


def test_files_are_selected_by_name_and_pattern(tmp_path):
    table = sample(40)
    for name, part in (("2024-01.csv", table[:20]), ("2024-02.csv", table[20:30]), ("old/[1].csv", table[30:])):
        write(tmp_path / "data" / name, part)
    for files, selected in (
        (["2024-*.csv"], ["2024-01.csv", "2024-02.csv"]),
        (["old/[1].csv", "2024-01.csv"], ["2024-01.csv", "old/[1].csv"]),
    ):
        source = inspect_source(str(tmp_path / "data"), Settings(files=tuple(files)))
        assert sorted(source.files) == [str(tmp_path / "data" / name) for name in selected]
    assert run(tmp_path / "data", tmp_path / "out", files=["*.csv"])["read"] == 40
    error = refusal(tmp_path / "data", tmp_path / "none", files=["2024-03.csv"])
    assert "no file '2024-03.csv'" in error.received
    assert "did you mean 2024-02.csv" in error.fix or "2024-01.csv" in error.fix


def test_parquet_columns_have_the_types_of_the_file(tmp_path):
    count = 30
    arrays = {
        "flag": pa.array([n % 2 == 0 for n in range(count)]),
        "byte": pa.array(range(count), pa.uint8()),
        "half": pa.array(np.full(count, 0.1, np.float16)),
        "single": pa.array(np.full(count, 0.1, np.float32)),
        "zip": pa.array([f"0{n}" for n in range(count)]),
        "raw": pa.array([b"\xff\x00"] * count),
        "category": pa.array(["a", "b", ""] * 10).dictionary_encode(),
        "nothing": pa.nulls(count),
        "pixels": pa.array([[n, n, 255] for n in range(count)], pa.list_(pa.uint8(), 3)),
        "words": pa.array([["x"] * (n % 3) for n in range(count)]),
        "label": pa.array([n % 3 for n in range(count)], pa.int32()),
    }
    parquet.write_table(pa.table(arrays), tmp_path / "a.parquet", row_group_size=8)
    report = run(tmp_path / "a.parquet", tmp_path / "out")
    features = {name: (facts["dtype"], facts["shape"]) for name, facts in report["features"].items()}
    assert features == {
        "flag": ("int64", [1]), "byte": ("int64", [1]), "half": ("float32", [1]), "single": ("float32", [1]),
        "zip": ("string", [1]), "raw": ("string", [1]), "category": ("string", [1]), "nothing": ("float32", [None]),
        "pixels": ("int64", [3]), "words": ("string", [None]), "label": ("int64", [1]),
    }  # fmt: skip
    written = examples(tmp_path / "out")
    assert sorted(row["byte"][0] for row in written) == list(range(count))
    for row in written:
        number = row["byte"][0]
        assert row["flag"] == [number % 2 == 0] and row["label"] == [number % 3]
        assert row["zip"] == [f"0{number}".encode()] and row["raw"] == [b"\xff\x00"]
        assert row["category"] == [[b"a", b"b", b""][number % 3]]
        assert row["pixels"] == [number, number, 255] and row.get("words", []) == [b"x"] * (number % 3)
        assert np.float32(row["single"][0]) == np.float32(0.1) and "nothing" not in row


def test_json_values_have_the_types_of_json(tmp_path):
    table = [
        {"zip": f"0{n}", "flag": n % 2 == 0, "list": [n, 0.5], "ragged": [n] * (n % 3), "label": n % 2}
        for n in range(30)
    ]
    write(tmp_path / "a.jsonl", table)
    report = run(tmp_path / "a.jsonl", tmp_path / "out")
    features = {name: (facts["dtype"], facts["shape"]) for name, facts in report["features"].items()}
    assert features == {
        "zip": ("string", [1]), "flag": ("int64", [1]), "list": ("float32", [2]), "ragged": ("int64", [None]),
        "label": ("int64", [1]),
    }  # fmt: skip
    assert {row["zip"][0].decode() for row in examples(tmp_path / "out")} == {f"0{n}" for n in range(30)}


@pytest.mark.parametrize("kind", [pytest.param("jsonl", marks=pytest.mark.nightly), "parquet"])
def test_lists_are_packed_and_their_sizes_are_checked(kind, tmp_path):
    write(tmp_path / f"a.{kind}", [{"a": [n, 2 * n], "b": n / 2, "label": n % 2} for n in range(30)])
    report = run(tmp_path / f"a.{kind}", tmp_path / "out", pack="x=3")
    assert report["features"]["x"] | {"dtype": "float32", "shape": [3]} == report["features"]["x"]
    assert {tuple(row["x"]) for row in examples(tmp_path / "out")} == {(n, 2 * n, n / 2) for n in range(30)}
    assert "has 3 besides 'label'" in refusal(tmp_path / f"a.{kind}", tmp_path / "no", pack="x=4").received
    table = [{"a": [n, n] if n else None, "b": n, "label": n % 2} for n in range(30)]
    report = run(write(tmp_path / f"b.{kind}", table), tmp_path / "sparse", pack="x=3", missing="drop")
    assert (report["dropped"], report["features"]["x"]["shape"]) == (1, [3])


@pytest.mark.parametrize("kind", ["csv", pytest.param("jsonl", marks=pytest.mark.nightly), "parquet"])
def test_declared_columns_have_the_declared_type(kind, tmp_path):
    table = [{"a": n, "b": float(n), "code": f"0{n}", "label": str(n % 3)} for n in range(40)]
    columns = ["a:float32", "b:int64", "code:string", "label:string"]
    report = run(write(tmp_path / f"a.{kind}", table), tmp_path / "out", columns=columns)
    assert {name: facts["dtype"] for name, facts in report["features"].items()} == {
        "a": "float32", "b": "int64", "code": "string", "label": "int64"
    }  # fmt: skip
    assert report["classes"] == ["0", "1", "2"]
    written = examples(tmp_path / "out")
    assert sorted(row["b"][0] for row in written) == list(range(40))
    for row in written:
        assert row["code"] == [f"0{row['b'][0]}".encode()] and row["label"] == [row["b"][0] % 3]


@pytest.mark.parametrize("kind", ["tsv", pytest.param("jsonl", marks=pytest.mark.nightly), "parquet"])
def test_values_that_do_not_fit_a_declared_column_are_refused_with_file_and_row(kind, tmp_path):
    table = [{"x": 1.5 if n == 4 else float(n), "label": n % 2} for n in range(40)]
    write(tmp_path / "two words" / f"a.{kind}", table)
    error = refusal(tmp_path / "two words", tmp_path / "no", columns=["x:int64"])
    line = {"csv": 6, "tsv": 6}.get(kind, 5)
    assert f"a.{kind} line {line}: x: {repr('1.5') if line == 6 else 1.5} is no int64" in error.received
    if kind == "parquet":
        report = run(tmp_path / "two words", tmp_path / "out", columns=["x:int64"], max_rejected=0.03)
        assert report["rejected"]["count"] == 1 and report["features"]["x"]["dtype"] == "int64"


def test_whole_numbers_that_a_float_does_not_hold_exactly_do_not_fit_int64(tmp_path):
    (tmp_path / "a.csv").write_text("x,label\n" + "3.0,1\n" * 9 + "9007199254740994.0,0\n")
    error = refusal(tmp_path / "a.csv", tmp_path / "no", columns=["x:int64"])
    assert "a.csv line 11: x: '9007199254740994.0' is no int64" in error.received


def test_a_label_of_digits_and_words_is_declared_as_string(tmp_path):
    file = write(tmp_path / "a.csv", [{"x": n, "label": "07x"[n % 3]} for n in range(30)])
    assert run(file, tmp_path / "out", columns=["label:string"])["classes"] == ["0", "7", "x"]


@pytest.mark.parametrize(
    "kind", ["csv", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("jsonl", "parquet"))]
)
def test_contradictions_of_declared_columns_are_refused(kind, tmp_path):
    file = write(tmp_path / f"a.{kind}", [{"age": n, "name": f"n{n}", "label": n % 2} for n in range(30)])
    error = refusal(file, tmp_path / "no", columns=["agee:int64"])
    assert "'agee'" in error.received and "did you mean age?" in error.fix
    error = refusal(file, tmp_path / "no", columns=["name:string"], pack="x=2")
    assert "column 'name' holds words" in error.received
    error = refusal(file, tmp_path / "no", columns=["name:float32"])
    assert "name" in error.received and "float32" in error.received + error.expected
    for columns in (["age"], ["age:int32"], ["age:int64", "age:float32"], [":int64"]):
        assert 'columns=["age:int64"' in refusal(file, tmp_path / "no", columns=columns).fix


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        *(("csv", missing) for missing in ("omit", "default", "error")),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in (("csv", "drop"), ("tsv", "default"))),
        ("jsonl", "omit"),
        ("jsonl", "error"),
        ("parquet", "drop"),
    ],
)
def test_missing_values_follow_the_policy(kind, missing, tmp_path):
    table = [
        {
            "x": None if n in (3, 20) else n,
            "f": n / 4,
            "name": None if n in (3, 9) else f"n{n}",
            "label": None if n == 30 else n % 2,
        }
        for n in range(120)
    ]
    file = write(tmp_path / f"a.{kind}", table)
    if missing == "error":
        error = refusal(file, tmp_path / "no", missing=missing)
        line = 5 if kind in ("csv", "tsv") else 4
        assert f"4 of 120 rows lack a value, the first is 'name' in a.{kind} line {line}" in error.received
        assert "missing='omit', 'default' or 'drop'" in error.fix
        return
    report = run(file, tmp_path / "out", missing=missing)
    written = examples(tmp_path / "out")
    absent = [report["features"][name]["missing"] for name in ("x", "name")]
    if missing == "drop":
        assert (len(written), report["dropped"], report["rejected"]["count"], absent) == (116, 4, 0, [0, 0])
        return
    assert (len(written), report["rejected"]["count"], "dropped" in report) == (119, 1, False)
    assert report["rejected"]["shown"][0]["reason"] == "no label"
    if missing == "omit":
        assert absent == [2, 2]
        assert sum("x" not in row for row in written) == sum("name" not in row for row in written) == 2
    else:
        assert absent == [0, 0]
        by_f = {row["f"][0]: row for row in written}
        assert (by_f[0.75]["x"], by_f[0.75]["name"], by_f[5.0]["x"]) == ([0], [b""], [0])


@pytest.mark.parametrize("kind", ["jsonl", pytest.param("parquet", marks=pytest.mark.nightly)])
def test_a_missing_list_has_no_default_and_an_empty_list_is_not_missing(kind, tmp_path):
    table = [{"x": None if n == 5 else [n] * (n % 2), "label": n % 2} for n in range(30)]
    file = write(tmp_path / f"a.{kind}", table)
    error = refusal(file, tmp_path / "no", missing="default")
    assert f"'x' is a column of lists, and missing in a.{kind} line 6" in error.received
    assert "1 of 30 rows lack a value" in refusal(file, tmp_path / "no", missing="error").received
    assert run(file, tmp_path / "out", missing="drop")["dropped"] == 1
    table[5]["x"] = [1, None]
    error = refusal(write(tmp_path / f"b.{kind}", table), tmp_path / "no")
    assert f"b.{kind} line 6: x: a list with a missing value" in error.received


def test_packed_rows_follow_the_policy(tmp_path):
    table = [{"a": None if n == 5 else n, "b": n / 2, "label": n % 2} for n in range(30)]
    file = write(tmp_path / "a.csv", table)
    assert "x: 1 values instead of 2, a is missing" in refusal(file, tmp_path / "no", pack="x=2").received
    run(file, tmp_path / "default", pack="x=2", missing="default")
    expected = {(0 if n == 5 else n, n / 2) for n in range(30)}
    assert {tuple(row["x"]) for row in examples(tmp_path / "default")} == expected
    assert run(file, tmp_path / "drop", pack="x=2", missing="drop")["dropped"] == 1
    assert {tuple(row["x"]) for row in examples(tmp_path / "drop")} == expected - {(0, 2.5)}


def test_policies_and_columns_are_refused_for_other_formats(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(9), label=np.arange(9) % 2)
    for parameters in ({"missing": "drop"}, {"columns": ["x:int64"]}):
        error = refusal(tmp_path / "a.npz", tmp_path / "no", **parameters)
        assert "npz files" in error.received and "parquet" in error.expected
        assert error.fix == f"leave {next(iter(parameters))} out"


@pytest.mark.parametrize("kind", ["csv", pytest.param("jsonl", marks=pytest.mark.nightly), "parquet"])
def test_nan_and_values_beyond_float32_make_a_row_unusable(kind, tmp_path):
    table = [{"x": n / 2, "label": n % 2} for n in range(30)]
    table[3]["x"], table[7]["x"], table[11]["x"] = float("nan"), float("inf"), 1e300
    file = write(tmp_path / f"a.{kind}", table)
    report = run(file, tmp_path / "out", max_rejected=0.1)
    missing = int(kind == "csv")  # where nan is a word for a missing value
    assert (report["rejected"]["count"], report["features"]["x"]["missing"]) == (3 - missing, missing)
    assert all("is no finite float32" in reject["reason"] for reject in report["rejected"]["shown"][: 2 - missing])
    if kind == "parquet":
        assert "3 of 30 rows unusable" in refusal(file, tmp_path / "no").received


@pytest.mark.parametrize(
    ("line", "received"),
    [
        ("[1, 2]", "line 1: no JSON object"),
        ("[", "line 1: no JSON: Expecting value at column 2"),
        ('{"x": {"y": 1}, "label": 1}', "line 1: x: a nested object"),
        ('{"x": [[1]], "label": 1}', "line 1: x: a nested list"),
        ('{"x": 1, "x": 2, "label": 1}', "line 1: key 'x' occurs twice"),
        ('{"x": "\\ud800", "label": 1}', "line 1: not UTF-8"),
        ("[" * 100_000, "line 1: nested too deeply"),
        ('{"x": 1, "labels": 1}', "no column 'label'"),
        ('{"label": 1}', "only the label, column 'label'"),
        ('{"": 1, "label": 1}', "no name for column 1"),
    ],
)
def test_a_file_whose_first_line_is_no_usable_object_is_refused(line, received, tmp_path):
    (tmp_path / "a.jsonl").write_text(f"{line}\n")
    assert received in refusal(tmp_path / "a.jsonl", tmp_path / "no").received


def test_unusable_json_lines_are_rejected_with_file_and_line(tmp_path):
    good = '{"x": 1, "label": 0}\n'
    bad = [
        b'{"x": 1, "label":\n',
        b'{"x": "\xff", "label": 0}\n',
        b'{"x": "a", "label": 0}\n',
        b'{"y": 1, "label": 0}\n',
    ]
    (tmp_path / "a.jsonl").write_bytes(
        b"\xef\xbb\xbf" + (good * 9).encode() + b"\n" + b"".join(bad) + good.encode() * 9
    )
    error = refusal(tmp_path / "a.jsonl", tmp_path / "no")
    assert "a.jsonl line 11: no JSON: Expecting value at column 18" in error.received
    report = run(tmp_path / "a.jsonl", tmp_path / "out", max_rejected=0.2, splits=["all:1"])
    assert [(reject["line"], reject["reason"]) for reject in report["rejected"]["shown"]] == [
        (11, "no JSON: Expecting value at column 18"),
        (12, "not UTF-8"),
        (13, "x: 'a' is no int64"),
        (14, "key 'y', which the first object lacks; declare it in columns"),
    ]
    assert (report["read"], sum(report["splits"].values())) == (22, 18)


def test_a_declared_key_may_be_absent_in_the_first_object(tmp_path):
    table = [{"x": n, "label": n % 2} | ({"y": n} if n % 2 else {}) for n in range(30)]
    write(tmp_path / "a.jsonl", table)
    report = run(tmp_path / "a.jsonl", tmp_path / "out", columns=["y:float32"])
    assert (report["features"]["y"]["dtype"], report["features"]["y"]["missing"]) == ("float32", 15)


@pytest.mark.parametrize(("kind", "size"), [("jsonl", -4), ("jsonl.gz", -4), ("parquet", -4), ("parquet", 200)])
def test_a_truncated_file_is_refused(kind, size, tmp_path):
    file = write(tmp_path / f"a.{kind}", sample())
    file.write_bytes(file.read_bytes()[:size])
    error = refusal(file, tmp_path / "no")
    assert file.name in error.received and error.fix == "copy or write it again"


def test_a_damaged_page_of_parquet_is_refused(tmp_path):
    table = pa.table({"x": np.arange(2000.0), "label": np.arange(2000) % 2})
    parquet.write_table(table, tmp_path / "a.parquet", write_page_checksum=True, use_dictionary=False, compression=None)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[9000] ^= 1
    (tmp_path / "a.parquet").write_bytes(content)
    assert "a.parquet" in refusal(tmp_path / "a.parquet", tmp_path / "no").received


BOMBS = {  # what is large in memory, in small Parquet files
    "bytes or values": lambda: {"x": np.zeros(9_000_000), "label": np.zeros(9_000_000, np.int8)},
    "288000139 bytes or values": lambda: {"x": np.zeros(24_000_000), "label": np.zeros(24_000_000, np.int8)},
    "values of lists": lambda: {"x": one_list(pa.array(np.zeros(68_000_000, bool))), "label": [1]},
    "MiB of values": lambda: {"x": equal_texts(600), "id": np.arange(600), "label": np.arange(600) % 2},
    "more than 600 MiB of values": lambda: {"x": one_list(equal_texts(600).cast(pa.large_string())), "label": [1]},
}


def one_list(values: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)]), values)


def equal_texts(count: int) -> pa.Array:
    """Return a column of equal texts of 1 MiB each, as a dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["a" * (1 << 20)]))


NIGHTLY = ("288000139 bytes or values", "more than 600 MiB of values")


@pytest.mark.parametrize(
    "received", [pytest.param(name, marks=[pytest.mark.nightly] if name in NIGHTLY else []) for name in BOMBS]
)
def test_a_small_parquet_file_that_becomes_large_in_memory_is_refused(received, tmp_path):
    huge = {"data_page_size": 1 << 30, "write_batch_size": 1 << 30, "dictionary_pagesize_limit": 1 << 30}
    layout = huge | {"row_group_size": 1 << 30, "compression": "zstd", "use_dictionary": "bytes" not in received}
    parquet.write_table(pa.table(BOMBS[received]()), tmp_path / "a.parquet", **layout)
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    error = refusal(tmp_path / "a.parquet", tmp_path / "no")
    assert received in error.received and "times the compressed bytes" in error.expected


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_page_of_parquet_that_declares_gigabytes_is_refused(is_whole, tmp_path):
    table = pa.table({"x": np.arange(60.0), "label": np.arange(60) % 2})
    parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False, compression="zstd", write_statistics=False)
    content = (tmp_path / "a.parquet").read_bytes()
    start = parquet.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0).column(1).data_page_offset
    assert content[start : start + 3] == b"\x15\x00\x15"  # the type of the page, and then its uncompressed size
    declared = b"\xfe\xff\xff\xff\x0f" if is_whole else b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
    (tmp_path / "a.parquet").write_bytes(content[: start + 3] + declared + content[start + 5 :])
    error = refusal(tmp_path / "a.parquet", tmp_path / "no")
    assert ("Page was smaller" if is_whole else "page header failed") in error.received
    assert "a.parquet" in error.received and error.fix == "copy or write it again"


@pytest.mark.parametrize(("version", "compression"), [("1.0", "zstd"), ("2.0", "snappy"), ("2.0", "none")])
def test_large_rows_of_parquet_are_read_a_few_at_a_time(version, compression, tmp_path):
    draw = np.random.default_rng(0)
    columns = {
        "x": pa.array([list(row) for row in draw.random((40, 3000), np.float32)]),
        "name": [f"{number}" * 1000 for number in draw.integers(0, 9, 40)],
        "label": np.arange(40) % 2,
    }
    layout = {
        "use_dictionary": ["name"],
        "data_page_size": 5000,
        "data_page_version": version,
        "compression": compression,
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet", **layout)
    with pytest.MonkeyPatch.context() as patch, parquet.ParquetFile(tmp_path / "a.parquet") as table:
        assert parquet_reader._rows_per_batch("a", table.metadata, 0) == 1024
        patch.setattr(parquet_reader, "MAX_VALUES", 12_000)
        assert 1 <= parquet_reader._rows_per_batch("a", table.metadata, 0) <= 4
        patch.setattr(parquet_reader, "MAX_BATCH", 1)
        assert parquet_reader._rows_per_batch("a", table.metadata, 0) == 1
    if compression == "none":
        run(tmp_path / "a.parquet", tmp_path / "out")
        assert len(examples(tmp_path / "out")) == 40


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_texts_of_parquet_are_read_in_each_encoding(encoding, tmp_path):
    table = pa.table(
        {"name": [f"{number}" * 50 for number in range(40)], "tags": [["a", "b"]] * 40, "label": [0, 1] * 20}
    )
    encodings = {"name": encoding, "tags.list.element": encoding.replace("DELTA_BYTE", "DELTA_LENGTH_BYTE")}
    parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False, column_encoding=encodings)
    run(tmp_path / "a.parquet", tmp_path / "out")
    read = {(row["name"][0], *row["tags"]) for row in examples(tmp_path / "out")}
    assert read == {(f"{number}".encode() * 50, b"a", b"b") for number in range(40)}


def test_lists_of_texts_whose_encoding_repeats_their_beginnings_are_refused(tmp_path):
    encodings = {"tags.list.element": "DELTA_BYTE_ARRAY"}
    table = pa.table({"tags": [["a", "b"]] * 40, "label": [0, 1] * 20})
    parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False, column_encoding=encodings)
    error = refusal(tmp_path / "a.parquet", tmp_path / "no")
    assert "column tags.list.element: a list of texts with encoding DELTA_BYTE_ARRAY" in error.received


def test_equal_texts_of_parquet_are_converted_a_few_at_a_time(tmp_path, monkeypatch):
    table = pa.table({"name": pa.array(["a" * 1000] * 600), "label": [0, 1] * 300})
    parquet.write_table(table, tmp_path / "a.parquet")
    monkeypatch.setattr(parquet_reader, "MAX_BATCH", 100_000)
    sizes = []
    convert = parquet_reader._converted
    monkeypatch.setattr(
        parquet_reader, "_converted", lambda batch, *rest: sizes.append(len(batch)) or convert(batch, *rest)
    )
    assert len(list(parquet_reader._rows(str(tmp_path / "a.parquet")))) == 600
    assert max(sizes) < 100 and sum(sizes) == 600


def test_a_text_column_of_parquet_that_is_not_utf8_is_refused(tmp_path):
    texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    parquet.write_table(pa.table({"x": texts, "label": [0, 1]}), tmp_path / "a.parquet")
    assert "Invalid UTF8 sequence" in refusal(tmp_path / "a.parquet", tmp_path / "no").received


@pytest.mark.parametrize(
    ("column", "received"),
    [
        (pa.array([{"a": 1}] * 3), "column 'x' is struct<a: int64>"),
        (pa.array([0, 1, 2], pa.time32("s")), "column 'x' is time32[ms]"),
        (pa.array([[[1]], [[2]], [[3]]]), "column 'x' is list<"),
        (pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())), "column 'x' is map"),
    ],
)
def test_unsupported_parquet_types_are_refused_with_the_column(column, received, tmp_path):
    parquet.write_table(pa.table({"x": column, "label": [0, 1, 0]}), tmp_path / "a.parquet")
    error = refusal(tmp_path / "a.parquet", tmp_path / "no")
    assert received in error.received
    assert "lists of them" in error.expected


def test_parquet_files_of_different_schemas_are_refused_with_column_and_types(tmp_path):
    first = {"x": pa.array([1, 2, 3]), "label": pa.array([0, 1, 0])}
    others = {
        "float32": (first | {"x": pa.array([1.0, 2.0, 3.5])}, "column 'x' is float32", "columns=['x:float32']"),
        "string": (first | {"x": pa.array(["a", "b", "c"])}, "column 'x' is string", "one type"),
        "list": (first | {"x": pa.array([[1], [2], [3]])}, "column 'x' is list of int64", "one type"),
        "more": (first | {"y": pa.array([1, 2, 3])}, "columns x, label, y", "the same columns"),
    }
    for name, (arrays, received, fix) in others.items():
        (tmp_path / name).mkdir()
        parquet.write_table(pa.table(first), tmp_path / name / "a.parquet")
        parquet.write_table(pa.table(arrays), tmp_path / name / "b.parquet")
        error = refusal(tmp_path / name, tmp_path / "no")
        assert f"b.parquet: {received}" in error.received and fix in error.fix
        assert "first file" in error.expected
    report = run(tmp_path / "float32", tmp_path / "out", columns=["x:float32"], splits=["all:1"])
    assert report["features"]["x"]["dtype"] == "float32"
    error = refusal(tmp_path / "list", tmp_path / "no", columns=["x:float32"])
    assert ("column 'x' is list of int64" in error.received, error.expected) == (True, "int64, as in the first file")
    error = refusal(tmp_path / "string", tmp_path / "no", columns=["x:string"])
    assert ("int64" in error.received, error.expected) == (True, "string, as declared")


def test_parquet_columns_are_matched_by_name(tmp_path):
    (tmp_path / "data").mkdir()
    parquet.write_table(pa.table({"x": [1, 2], "label": [0, 1]}), tmp_path / "data" / "a.parquet")
    parquet.write_table(pa.table({"label": pa.array([1], pa.int8()), "x": [3]}), tmp_path / "data" / "b.parquet")
    run(tmp_path / "data", tmp_path / "out", splits=["all:1"])
    assert {(row["x"][0], row["label"][0]) for row in rows(tmp_path / "out", "all")} == {(1, 0), (2, 1), (3, 1)}


def test_parquet_with_columns_in_folder_names_is_refused(tmp_path):
    write(tmp_path / "data" / "year=2024" / "a.parquet", sample())
    assert "folder year=2024" in refusal(tmp_path / "data", tmp_path / "no").received


def test_an_index_of_pandas_is_no_feature(tmp_path):
    parquet.write_table(pa.table({"x": [1], "label": [0], "__index_level_0__": [7]}), tmp_path / "a.parquet")
    error = refusal(tmp_path / "a.parquet", tmp_path / "no")
    assert "'__index_level_0__'" in error.received and "index=False" in error.fix


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet"])
def test_empty_and_foreign_files_are_refused(kind, tmp_path):
    file = tmp_path / f"a.{kind}"
    file.write_bytes(b"")
    assert ("empty" if kind != "parquet" else "a.parquet") in refusal(file, tmp_path / "no").received
    file.write_bytes(b"\x89PNG\r\n\x1a\n" * 20)
    assert f"a.{kind}" in refusal(file, tmp_path / "no").received
    if kind == "parquet":
        parquet.write_table(pa.table({"x": pa.array([], pa.int64()), "label": pa.array([], pa.int64())}), file)
        assert "no rows" in refusal(file, tmp_path / "no").received
        assert "no column 'goal'" in refusal(file, tmp_path / "no", label="goal").received


def test_separators_of_the_other_text_format_are_reported(tmp_path):
    (tmp_path / "a.csv").write_text("x\tlabel\n1\t0\n")
    assert refusal(tmp_path / "a.csv", tmp_path / "no").fix == "pass format='tsv'"
    (tmp_path / "a.tsv").write_text("x,label\n1,0\n")
    assert refusal(tmp_path / "a.tsv", tmp_path / "no").fix == "pass format='csv'"
    assert run(tmp_path / "a.csv", tmp_path / "out", format="tsv", splits=["all:1"])["read"] == 1


def test_a_tsv_without_header_has_numbered_columns(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"{n}\t{n / 2}\t{n % 2}\n" for n in range(20)))
    assert set(run(tmp_path / "a.tsv", tmp_path / "out")["features"]) == {"c0", "c1", "label"}
    (tmp_path / "a.tsv").write_text('x\tlabel\n1\t"2\n')
    assert "a quote is opened and never closed" in refusal(tmp_path / "a.tsv", tmp_path / "no").received


def test_tables_at_a_remote_address_give_the_same_examples(tmp_path):
    """Read Parquet, in any order; test_prepare_examples_refusals.py reads lines of text at such an address."""
    write(tmp_path / "in" / "a.parquet", sample())
    run(tmp_path / "in", tmp_path / "local")
    from tfopt.components.prepare_examples.component import prepare_examples

    prepare_examples(data=f"objects://{tmp_path}/in", examples=f"objects://{tmp_path}/far")
    assert shards(tmp_path / "far") == shards(tmp_path / "local")
    assert records(tmp_path / "far", "train")


def test_integers_beyond_int64_make_a_row_unusable(tmp_path):
    table = [{"x": n, "label": n % 2} for n in range(30)]
    table[4]["x"] = 2**63
    assert (
        "line 5: x: 9223372036854775808 is no int64"
        in refusal(write(tmp_path / "a.jsonl", table), tmp_path / "no", columns=["x:int64"]).received
    )
    parquet.write_table(pa.table({"x": pa.array([2**63, 1], pa.uint64()), "label": [0, 1]}), tmp_path / "a.parquet")
    assert "line 1: x: 9223372036854775808 is no int64" in refusal(tmp_path / "a.parquet", tmp_path / "no").received


def test_the_words_that_pandas_reads_as_missing_are_missing_unless_the_column_is_declared_as_text(tmp_path):
    words = sorted(STR_NA_VALUES - {""})
    assert MISSING_WORDS == STR_NA_VALUES
    table = [
        {"x": words[n] if n < len(words) else n / 4, "name": words[n % len(words)], "n": n, "label": n % 2}
        for n in range(120)
    ]
    report = run(write(tmp_path / "a.csv", table), tmp_path / "out", columns=["name:string"])
    assert report["rejected"]["count"] == 0
    assert (report["features"]["x"]["dtype"], report["features"]["x"]["missing"]) == ("float32", len(words))
    assert (report["features"]["name"]["missing"], report["features"]["name"]["distinct"]) == (0, len(words))
    error = refusal(write(tmp_path / "b.csv", table), tmp_path / "no", columns=["name:string"], missing="error")
    assert f"{len(words)} of 120 rows lack a value, the first is 'x'" in error.received


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_declared_column_has_another_name_and_a_value_for_missing_ones(tmp_path, kind):
    table = [
        {"area m2": None if n % 5 == 0 else n / 4, "year": None if n % 7 == 0 else n, "word": None, "label": n % 2}
        for n in range(120)
    ]
    columns = ["area m2:float32 or -1", "year:int64 or 0", "word:string or none"]
    file = write(tmp_path / f"a.{kind}", table)
    report = run(file, tmp_path / "out", columns=columns, rename=["area m2=area_m2"], missing="drop")
    assert set(report["features"]) == {"area_m2", "year", "word", "label"}
    written = examples(tmp_path / "out")
    assert len(written) == 120 and {row["word"][0] for row in written} == {b"none"}
    assert sum(row["area_m2"] == [-1.0] for row in written) == 24 and sum(row["year"] == [0] for row in written) == 18


@pytest.mark.parametrize(
    ("columns", "received"),
    [
        (["x:int64 or none"], "columns="),
        (["x:float32 or nan"], "columns="),
    ],
)
def test_declared_values_that_cannot_be_are_refused(tmp_path, columns, received):
    file = write(tmp_path / "a.csv", [{"x": n / 4, "y": n, "label": n % 2} for n in range(60)])
    assert received in refusal(file, tmp_path / "out", columns=columns).received


def test_dates_of_parquet_are_texts(tmp_path):
    table = pa.table(
        {
            "day": pa.array(range(60), pa.date32()),
            "time": pa.array([n * 3_600_000_000 for n in range(60)], pa.timestamp("us")),
            "label": [n % 2 for n in range(60)],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    run(tmp_path / "a.parquet", tmp_path / "out")
    (row,) = (row for row in examples(tmp_path / "out") if row["time"] == [b"1970-01-02T06:00:00"])
    assert row["day"] == [b"1970-01-31"]

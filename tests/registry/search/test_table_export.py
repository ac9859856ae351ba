"""Tables of all artifacts in a file: Parquet, comma-separated values, lines."""

import csv
import json
import sys
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow.parquet
import pytest

from onnxreg.registry.search import table_export
from onnxreg.schema.core.errors import HostError, InputError
from onnxreg.schema.query.fields import FIELDS, LABELLED

Row = dict[str, Any]


def _row(number: int) -> Row:
    known = {
        "name": f"acme/m{number}",
        "version": "1.0.0",
        "license": 'a, "b"\n',
        "channels": ["stable", "ä"][:number],
        "providers": [],
        "size": 2**40,
        "certified": True,
        "recall": {"PHONE": 0.5, "FIRST NAME": 1.0} if number else {},
        "min_recall": 0.5 if number else None,
        "metric": {"sts/spearman": 0.83, "sts/spearman/loss": -0.25} if number else {},
    }
    return dict.fromkeys(FIELDS) | known


SOME = [_row(number) for number in range(3)]


def test_a_parquet_file_is_typed_and_engines_read_it(tmp_path):
    file = tmp_path / "all.parquet"
    assert table_export.write(file, iter(SOME)) == 3
    table = pyarrow.parquet.read_table(file)
    rows = [row | {name: dict(row[name]) for name in LABELLED} for row in table.to_pylist()]
    assert rows == SOME
    types = {field.name: str(field.type) for field in table.schema}
    assert list(types) == list(FIELDS)
    assert (types["size"], types["certified"], types["version"]) == ("int64", "bool", "string")
    question = f"SELECT name, recall['PHONE'], metric['sts/spearman'], size FROM '{file}' WHERE list_contains(channels, 'ä')"
    assert duckdb.sql(question).fetchall() == [("acme/m2", 0.5, 0.83, 2**40)]


def test_lines_and_comma_separated_values_hold_the_same(tmp_path):
    assert table_export.write(tmp_path / "all.jsonl", iter(SOME)) == 3
    assert [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()] == SOME
    assert table_export.write(tmp_path / "all.csv", iter(SOME)) == 3
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(FIELDS)
    for row, expected in zip(rows, SOME, strict=True):
        assert (row["name"], row["license"]) == (expected["name"], expected["license"])
        assert (row["certified"], row["family"], row["size"]) == ("true", "", str(2**40))
        assert json.loads(row["recall"]) == expected["recall"]
        assert json.loads(row["metric"]) == expected["metric"]
        assert json.loads(row["channels"]) == expected["channels"]


def test_an_empty_table_has_its_columns(tmp_path):
    for suffix in table_export.WRITERS:
        assert table_export.write(tmp_path / f"all{suffix}", iter([])) == 0
    assert pyarrow.parquet.read_table(tmp_path / "all.parquet").column_names == list(FIELDS)
    assert (tmp_path / "all.csv").read_text().strip() == ",".join(FIELDS)


@pytest.mark.parametrize("suffix", table_export.WRITERS)
def test_a_table_that_fails_leaves_the_one_before(tmp_path, suffix):
    def broken() -> Iterator[Row]:
        yield SOME[0]
        raise ValueError("no more")

    file = tmp_path / f"all{suffix}"
    table_export.write(file, iter(SOME))
    before = file.read_bytes()
    with pytest.raises(ValueError, match="no more"):
        table_export.write(file, broken())
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_is_refused_before_the_work(registry, tmp_path):
    (tmp_path / "there.csv").mkdir()
    for file in (
        tmp_path / "all.xlsx",
        tmp_path / "nowhere" / "all.csv",
        tmp_path / "there.csv",
        registry.store.root / "all.jsonl",
    ):
        with pytest.raises(InputError):
            table_export.check_file(file)
    table_export.check_file(tmp_path / "all.parquet")


def test_the_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HostError) as raised:
        table_export.check_file(tmp_path / "all.parquet")
    assert "pyarrow" in raised.value.message
    assert "[parquet]" in raised.value.hint
    table_export.check_file(tmp_path / "all.csv")

"""Write artifacts to a file as one table for other query engines, one row for each artifact.

The suffix of the file sets the format: `.parquet` (needs pyarrow), `.jsonl`, or `.csv` (with JSON for lists and maps).
"""

import csv
import json
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO

from onnxreg.registry.system import check_outfile, host_errors, replacement
from onnxreg.schema.core.errors import InputError, missing_extra
from onnxreg.schema.query.fields import FIELDS, LABELLED, FieldKind

Row = dict[str, Any]
BATCH_ROWS = 10_000  # the number of rows in memory at a time, and in a row group of a Parquet file


def check_file(target: Path) -> None:
    """Raise InputError if no table can be written to `target`, and HostError if the format's library is missing."""
    if target.suffix not in WRITERS:
        raise InputError(f"{target} has no known suffix", f"a table is called *{', *'.join(WRITERS)}")
    check_outfile(target)
    if target.suffix == ".parquet":
        _pyarrow()


def write(target: Path, rows: Iterator[Row]) -> int:
    """Write a table and return the number of rows. An earlier file is replaced only once the table is complete."""
    numbers = count()
    with host_errors(f"writing {target}"), replacement(target.resolve()) as file:
        WRITERS[target.suffix](file, (row for row, _ in zip(rows, numbers, strict=False)))
    return next(numbers)


def _jsonl(file: BinaryIO, rows: Iterable[Row]) -> None:
    file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def _csv(file: BinaryIO, rows: Iterable[Row]) -> None:
    text = TextIOWrapper(file, "utf-8", newline="")
    writer = csv.DictWriter(text, list(FIELDS))
    writer.writeheader()
    for row in rows:
        structured = {key: value for key, value in row.items() if isinstance(value, bool | list | dict)}
        cells = {key: json.dumps(value, ensure_ascii=False) for key, value in structured.items()}
        writer.writerow({**row, **cells})
    text.detach()


def _parquet(file: BinaryIO, rows: Iterable[Row]) -> None:
    arrow, parquet = _pyarrow()
    types = {
        **dict.fromkeys((FieldKind.TEXT, FieldKind.VERSION), arrow.string()),
        **dict.fromkeys((FieldKind.SIZE, FieldKind.COUNT), arrow.int64()),
        **dict.fromkeys((FieldKind.NUMBER, FieldKind.SHARE), arrow.float64()),
        FieldKind.FLAG: arrow.bool_(),
        FieldKind.LIST: arrow.list_(arrow.string()),
    }
    columns = {name: types[kind] for name, kind in FIELDS.items()}
    columns |= dict.fromkeys(LABELLED, arrow.map_(arrow.string(), arrow.float64()))
    schema, remaining = arrow.schema(columns), iter(rows)
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(remaining, BATCH_ROWS)):
            entries = [row | {name: list(row[name].items()) for name in LABELLED} for row in group]
            writer.write_table(arrow.Table.from_pylist(entries, schema))


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise missing_extra("pyarrow", "parquet", "writing a Parquet file") from error
    return pyarrow, pyarrow.parquet


WRITERS = {".parquet": _parquet, ".jsonl": _jsonl, ".csv": _csv}

"""The first read of a registry with many models, on all cores.

Each core has a share of the index files. This process reads the first share into the index; each other core has a
process that reads its share into a SQLite file of its own (a shard) with the same tables. The shards are then copied
into the index; SQLite copies rows far faster than Python makes them. Models that no shard holds (a process failed, a
file changed just now) are read by the update that follows, as ever, and it lists every directory that changed
meanwhile: so shards can make the first answer fast, but not wrong.
"""

import gc
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from pkgutil import resolve_name

from onnxreg.registry.search import db, scan
from onnxreg.registry.search.db import ModelTables, read_rows
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.schema.core.cores import count_cores

MIN_MODELS = 512
"""Fewer models are read by one process in the time that others need to start."""
BATCH_MODELS = 256
"""Models whose rows a process holds in memory."""
FAILURES = (OSError, sqlite3.Error, OverflowError, UnicodeEncodeError)
"""Failures after which the models are left to the update."""
Model = tuple[str, str, str]
"""The name of a model, the directory of its index file below the root, and the mark of the file."""


def load(database: sqlite3.Connection, remote: DirectoryRegistry, file: Path | None) -> None:
    """Fill an empty index with the models whose files are settled, if there are many and several cores.

    `file`: the path of the database, None if it is in memory.
    """
    workers = count_cores()
    if workers == 1 or not scan.has_more(remote.root, MIN_MODELS):
        return
    with tempfile.TemporaryDirectory() as directory, suppress(*FAILURES):
        shards = [Path(directory) / f"{number}.sqlite" for number in range(workers - 1)]
        with _readers(remote, shards) as processes:
            marks, models = _listed(remote.root, scan.clock(file))
            for number, (process, shard) in enumerate(zip(processes, shards, strict=True), 1):
                _share(shard).write_text(json.dumps(models[number::workers]), "utf-8")
                assert process.stdin is not None
                process.stdin.close()
            _fill(database, remote, models[::workers])
            for process, shard in zip(processes, shards, strict=True):
                if process.wait() == 0:
                    with suppress(sqlite3.Error):
                        _copy(shard, database)
        db.remember(database, marks, len(models))


def _listed(root: Path, now: int) -> tuple[dict[str, str], list[Model]]:
    """The marks of `registry.json` and of the directories of index files, taken before these are listed; the settled
    models in them.
    """
    marks = {db.IDENTITY: scan.settled_mark((root / db.IDENTITY).stat(), now)}
    models: list[Model] = []
    paths = [db.INDEX]
    for path in paths:
        marks[path] = scan.settled_mark((root / path).stat(), now)
        listing = scan.scan(root, path, now)
        paths += [f"{path}/{name}" for name in listing.directories]
        settled = [(name, path, mark) for name, mark in listing.models.items() if mark != scan.UNSETTLED]
        if len(settled) < len(listing.models):
            marks[path] = scan.UNSETTLED
        models += settled
    return marks, models


@contextmanager
def _readers(remote: DirectoryRegistry, shards: Sequence[Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start a process for each shard; all have ended afterwards. A share is there when the process's input ends.

    A process opens the registry by the same class: that of a server follows no links.
    """
    processes: list[subprocess.Popen[bytes]] = []
    store = f"{type(remote).__module__}:{type(remote).__qualname__}"
    root = str(remote.root.absolute())
    command = [sys.executable, "-P", "-m", "onnxreg.registry.search.shards", store, root]
    try:
        for shard in shards:
            process = subprocess.Popen(
                [*command, str(shard)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            processes.append(process)
        yield processes
    finally:
        for process in processes:
            with process:
                process.kill()


def _share(shard: Path) -> Path:
    """The file of the models that a shard gets."""
    return shard.with_suffix(".json")


def _fill(database: sqlite3.Connection, remote: DirectoryRegistry, models: Sequence[Model]) -> None:
    """Read models into tables without indexes, in one transaction."""
    tables, is_collecting = ModelTables(database, remote), gc.isenabled()
    gc.disable()  # a fifth of the time: rows make no cycles
    try:
        with db.transaction(database):
            for start in range(0, len(models), BATCH_MODELS):
                tables.add([read_rows(remote, *model) for model in models[start : start + BATCH_MODELS]])
    finally:
        if is_collecting:
            gc.enable()


def _copy(shard: Path, database: sqlite3.Connection) -> None:
    """Append the rows of a shard to an index that has none of its models."""
    database.execute("ATTACH ? AS shard", (str(shard),))
    try:
        with db.transaction(database):
            (last,) = database.execute("SELECT coalesce(max(id), 0) FROM main.models").fetchone()
            kinds = _copy_kinds(database)
            for table in ("models", "summaries", "artifacts"):
                columns = [row[1] for row in database.execute(f"PRAGMA main.table_info({table})")]
                values = {name: name for name in columns}
                values[columns[0]] = f"{columns[0]} + {last}"
                if "kind" in values:
                    values["kind"] = f"CASE kind {kinds} END"
                database.execute(
                    f"INSERT INTO main.{table} SELECT {', '.join(values.values())} FROM shard.{table}"
                )
    finally:
        database.execute("DETACH shard")


def _copy_kinds(database: sqlite3.Connection) -> str:
    """Copy the kinds; return the branches of a CASE from the shard's ids to those of the index."""
    names = "format, precision, state"
    database.execute(f"INSERT OR IGNORE INTO main.kinds({names}) SELECT {names} FROM shard.kinds")
    rows = database.execute(
        f"SELECT old.id, new.id FROM shard.kinds AS old JOIN main.kinds AS new USING ({names})"
    )
    return " ".join(f"WHEN {old} THEN {new}" for old, new in rows) or "WHEN NULL THEN NULL"


def main(store: type[DirectoryRegistry], root: Path, shard: Path) -> None:
    """Read a share of the models into a new shard, without indexes."""
    remote = store.open(root)
    sys.stdin.buffer.read()
    models = json.loads(_share(shard).read_text("utf-8"))
    with closing(sqlite3.connect(shard, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        db.create(database, remote.registry_id)
        _fill(database, remote, models)


if __name__ == "__main__":
    main(resolve_name(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))

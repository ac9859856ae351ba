"""Pushes and pulls of two clients in pairs: wall time, peak memory and processor time of each."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.clients import Client, Input
from benchmarks.measure import Row, Run, pairs, processor, rows, run


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        yield Path(directory)


def pushes(
    ours: Client, theirs: Client, fresh: Callable[[], str], made: Input, aim: str, count: int
) -> list[Row]:
    """Each push goes to a fresh place."""
    measured = pairs(lambda: ours.time_push(fresh()), lambda: theirs.time_push(fresh()), count, warm_up=False)
    return rows_of(f"push of {made.amount},", ours, theirs, measured, aim)


def pulls(
    ours: Client, theirs: Client, fresh: Callable[[], str], made: Input, aim: str, count: int
) -> list[Row]:
    """Each client pulls what it pushed, untimed, into a fresh directory."""
    places = {client: fresh() for client in (ours, theirs)}
    for client, place in places.items():
        client.prepare(place, Path())
        run(client.push(place), client.env)

    def pull(client: Client) -> Run:
        return client.time_pull(places[client], made.fresh(), made.size)

    measured = pairs(lambda: pull(ours), lambda: pull(theirs), count, warm_up=False)
    return rows_of(f"pull of {made.amount},", ours, theirs, measured, aim)


def rows_of(verb: str, ours: Client, theirs: Client, measured: list[tuple[Run, Run]], aim: str) -> list[Row]:
    what = f"{verb} {ours.name}"
    return [*rows(what, theirs.name, measured, aim), processor(what, theirs.name, measured)]

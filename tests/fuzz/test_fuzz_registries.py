"""Whole registries with one wrong file: `verify` reports every change, and `copy` brings nothing bad across.

A failing case names the test and the seed: `wrong(seed)` makes the registry again.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from support.fuzz import specimens
from support.fuzz.mutation import forge, mutate, rechained
from support.fuzz.time_limit import bounded
from support.sampling import sampled

from onnxreg.registry.log.log import open_log
from onnxreg.registry.maintain import verify
from onnxreg.registry.store.protocol import blob_path, index_path
from onnxreg.registry.transfer.exchange import ExchangeRequest, exchange
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import RegError

SAMPLE, MORE = 50, 100
PRISTINE = specimens.tree()
OTHER = specimens.tree("e" * 32)
INDEXES = [path for path in PRISTINE if path.startswith("index/")]
REFERENCED = specimens.referenced(PRISTINE)
TEXTS = [path for path in REFERENCED if PRISTINE[path][:1] == b"{" and len(PRISTINE[path]) > 99]
"""Manifests, a segment, a checkpoint: what is read as a document."""


@dataclass(frozen=True)
class Wrong:
    """A registry that differs from the pristine one in one file.

    `changed`: bytes that the rest refers to are others now, which must be found. Else a stranger was at work who fitted
    the rest to them, so that it may be a registry like any other.
    """

    files: specimens.Tree
    changed: bool


TABLES = ("channels", "versions", "summaries")
"""Keys of a state line whose values are tables: a row more is no key of a later build."""


def is_same(before: bytes, after: bytes) -> bool:
    """True if an index file differs at most by keys of its state that this build does not know: these are not compared."""
    states = [data.partition(b"\n") for data in (before, after)]
    if states[0][2] != states[1][2]:
        return False
    try:
        known, changed = (json.loads(state) for state, _, _ in states)
    except (ValueError, RecursionError):
        return False
    return contains(changed, known) and all(changed[table].keys() == known[table].keys() for table in TABLES)


def contains(value: Any, part: Any) -> bool:
    """True if a JSON value is `part`, with keys more at any depth; 1, 1.0 and true are three values."""
    if isinstance(part, dict) and isinstance(value, dict):
        return all(key in value and contains(value[key], part[key]) for key in part)
    if isinstance(part, list) and isinstance(value, list):
        return len(part) == len(value) and all(map(contains, value, part))
    return type(part) is type(value) and bool(part == value)


def wrong(seed: int) -> Wrong:
    dice, files = Random(seed), dict(PRISTINE)
    match dice.randrange(5):
        case 0 | 1:
            path = dice.choice(INDEXES)
            files[path] = mutate(files[path], [files[index] for index in INDEXES], dice, honest=True)
            return Wrong(files, not is_same(PRISTINE[path], files[path]))
        case 2:
            path = dice.choice(REFERENCED)
            files[path] = mutate(files[path], [files[blob] for blob in REFERENCED], dice)
        case 3:
            path = dice.choice(INDEXES)
            files[path] = forge(files[path], [files[index] for index in INDEXES], dice)
            return Wrong(files, False)
        case _:
            plant(files, dice)
            return Wrong(files, False)
    return Wrong(files, files != PRISTINE)


def plant(files: specimens.Tree, dice: Random) -> None:
    """A document that is wrong but stands under its own digest, and indexes that name it in unbroken chains."""
    path = dice.choice(TEXTS)
    data = mutate(files[path], [files[other] for other in TEXTS], dice)
    before, after = path.rpartition("/")[2].encode(), Digest.of(data)
    files[blob_path(after)] = data
    for index in INDEXES:
        files[index] = rechained(files[index].replace(before, after.hex.encode()))


def report_is_right(found: Wrong) -> None:
    report = verify(specimens.remote(found.files))
    assert report.models == len(INDEXES)
    assert report.damages or not found.changed, "all intact, although referenced bytes have changed"


def copy_is_right(found: Wrong) -> None:
    """Into an empty registry, one that has it all, or a mirror: refused, or afterwards all is well there."""
    source = specimens.remote(found.files)
    for name in source.names():
        places = (specimens.empty("0" * 32), OTHER, specimens.empty(source.registry_id))
        there = specimens.remote(Random(found.files[index_path(name)]).choice(places))
        before = there.read_index(name)
        try:
            versions = open_log(source, name).versions
            chosen = [version for version in versions if versions[version].usable]
            exchange(source, there, ExchangeRequest(name, chosen))
        except RegError:
            assert there.read_index(name) == before, "refused, but not as it was"
            continue
        assert not verify(there).damages, "what came across is damaged"
        got = open_log(there, name).versions if chosen else {}
        assert all(got[version].manifest == versions[version].manifest for version in chosen)


LARGE = {report_is_right: 10_000, copy_is_right: 8_000}


def run(judge: Callable[[Wrong], None], seeds: range) -> int:
    changed = 0
    for seed in seeds:
        found = wrong(seed)
        changed += found.changed
        try:
            with bounded():
                judge(found)
        except Exception as error:
            error.add_note(f"{judge.__name__}(wrong({seed}))")
            raise
    return changed


def test_the_pristine_registry_is_intact_and_travels() -> None:
    assert not verify(specimens.remote(PRISTINE)).damages
    copy_is_right(Wrong(PRISTINE, False))


@pytest.mark.parametrize("cases", [SAMPLE, pytest.param(MORE, marks=pytest.mark.more)])
@pytest.mark.parametrize("judge", sampled(LARGE, 2))
def test_one_wrong_file(judge: Callable[[Wrong], None], cases: int) -> None:
    assert run(judge, range(cases)) > cases // 3


@pytest.mark.large
@pytest.mark.parametrize(("judge", "cases"), LARGE.items())
def test_one_wrong_file_at_length(judge: Callable[[Wrong], None], cases: int, record_property: Any) -> None:
    assert run(judge, range(cases)) > cases // 3
    record_property("fuzz cases", cases)

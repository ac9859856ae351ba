"""Measured speeds: recorded once beside their document, kept in the state by class of machine, carried, and compared."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.home import NAME, Home
from support.registries.timed import MACHINE, document, record
from support.registries.timed import check as ratio

from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.log import Log
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.log.events import BENCHMARK, Attest, Timing
from onnxreg.schema.log.state import SEGMENT_LINES, Speed, Speeds

ONE = f"{NAME}:1.0.0"


def time(registry: Home, *checks: Any, version: str = "1.0.0", **changes: Any) -> None:
    record(registry, f"{NAME}:{version}", *checks, **changes)


def table(registry: Home, version: str = "1.0.0") -> dict[str, list[tuple[object, ...]]]:
    """The speeds of a version's artifacts, by path."""
    states = registry.get(f"{NAME}:{version}").states
    return {
        state.path: [(item.isa, item.runtime, item.threads, item.ratio, item.low) for item in state.speeds]
        for state in states.values()
        if state.speeds
    }


def speeds(registry: Home) -> Speeds:
    return registry.state(NAME).speeds


@pytest.fixture
def one(registry: Home) -> Home:
    registry.make("1.0.0")
    return registry


def small(registry: Home) -> str:
    return registry.get(ONE).manifest.artifacts[1].path


def test_the_slower_input_counts_and_is_recorded_once(one: Home) -> None:
    long = "latency, long"
    checks = (ratio(0.5, [0.4, 0.6]), ratio(1.5, [1.25, 2], long), ratio(12.5, None, long, "median_ms"))
    for _ in range(2):
        time(one, *checks)
    assert one.kinds() == ["publish", "attest", "timing"]
    ((speed,),) = speeds(one)[one.get(ONE).digest].values()
    expected = Speed(**MACHINE, ratio=1.5, low=1.25, median_ms=12.5, seq=3)  # type: ignore[arg-type]
    assert speed == expected
    one.check()


def test_a_benchmark_that_an_earlier_build_logged_gets_its_timing(one: Home) -> None:
    report, release = document(one, ONE, ratio(1.5)), one.get(ONE)
    about = {"name": NAME, "time": "2026-01-01T00:00:00Z", "nonce": "ab" * 16, "manifest": release.digest}

    def change(log: Log) -> Collection[Digest]:
        log.append(Attest(**about, statement=log.attach(report), media_type=BENCHMARK))  # type: ignore[arg-type]
        return []

    with one.store.push() as push:
        commit(one.store, push, NAME, change)
    for _ in range(2):
        time(one, ratio(1.5))
    assert one.kinds() == ["publish", "attest", "timing"]
    one.check()


def test_a_benchmark_without_ratios_has_no_speeds(one: Home) -> None:
    time(one, ratio(12.5, None, metric="median_ms"))
    assert one.kinds() == ["publish", "attest"]
    assert speeds(one) == {}


def test_the_newest_speed_of_each_class_of_machine_counts(one: Home) -> None:
    for value, threads in ((1.5, 1), (0.5, 4), (2, 1)):
        time(one, ratio(value), threads=threads)
    isa, runtime = MACHINE["isa"], MACHINE["runtime"]
    assert table(one) == {small(one): [(isa, runtime, 4, 0.5, 0.5), (isa, runtime, 1, 2, 2)]}
    for threads in range(1, 10):
        time(one, ratio(3), threads=threads)
    assert [item.threads for item in one.get(ONE).states[small(one)].speeds] == [*range(2, 10)]
    one.check()


@pytest.mark.parametrize("value", [0, -1, 1e10])
def test_an_impossible_ratio_is_refused(one: Home, value: float) -> None:
    with pytest.raises(InputError):
        time(one, ratio(value))
    assert one.kinds() == ["publish"]


def test_speeds_travel_with_a_version_and_only_once(one: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    time(one, ratio(1.5))
    for _ in range(2):
        one.push(ONE, other.place)
    assert other.kinds() == ["publish", "attest", "timing"]
    time(one, ratio(0.5))
    one.push(ONE, other.place)
    assert table(other) == table(one)
    other.check()


def lie(registry: Home) -> None:
    """Append a timing of other speeds than its document has."""
    report = document(registry, ONE, ratio(1.5))
    blob = Descriptor(Digest.of(report), len(report))
    release = registry.get(ONE)
    (event,) = [line.event for line in registry.log(NAME) if isinstance(line.event, Timing)]
    made_up = {artifact: speed.replace(ratio=0.1, low=0.1) for artifact, speed in event.speeds.items()}
    about = {"name": NAME, "time": event.time, "nonce": "ab" * 16, "manifest": release.digest}

    def change(log: Log) -> Collection[Digest]:
        log.append(Timing(**about, blobs=(blob,), speeds=made_up))  # type: ignore[arg-type]
        return []

    with registry.store.push() as push:
        commit(registry.store, push, NAME, change)


def test_a_line_that_contradicts_its_document_is_found(one: Home, tmp_path: Path) -> None:
    time(one, ratio(1.5))
    lie(one)
    assert [damage.kind for damage in owner.verify(one).damages] == ["statement"]
    with pytest.raises(IntegrityError):
        one.push(ONE, Home(tmp_path / "other").place)


def test_sealing_keeps_the_speeds_of_shown_versions_and_never_seals_them(one: Home) -> None:
    for number in range(1, 6):
        one.make(f"1.{number}.0", seed=str(number))
        time(one, ratio(1 + number / 10), version=f"1.{number}.0")
    time(one, ratio(1.5))
    assert len(speeds(one)) == 6
    while one.state(NAME).seq < SEGMENT_LINES + 2:
        one.tag(f"{NAME}:1.{one.state(NAME).seq % 2 + 3}.0", "beta")
    state = one.state(NAME)
    assert speeds(one).keys() == {
        entry.manifest for version, entry in state.versions.items() if version.minor > 1
    }
    assert table(one, "1.5.0")
    assert state.checkpoint is not None
    assert "speeds" not in json.loads(one.tree.blob(state.checkpoint).read_bytes())
    one.check()
    time(one, ratio(0.5), version="1.5.0")
    assert [items[0][3] for items in table(one, "1.5.0").values()] == [0.5]
    one.check()


def test_speeds_that_the_lines_do_not_have_are_damage(one: Home) -> None:
    time(one, ratio(1.5))

    def raise_ratio(state: Any) -> None:
        (tables,) = state["speeds"].values()
        (items,) = tables.values()
        items[0]["ratio"] = 0.25

    one.tree.edit_state(NAME, raise_ratio)
    assert "state" in [damage.kind for damage in owner.verify(one).damages]

"""Events, lines and states as documents: what is written is read again byte for byte, and nothing else is."""

from pathlib import Path
from typing import Any

import pytest

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import POLICY_LOG, Version
from onnxreg.schema.log.events import Hold, LogLine, RolloutStep, Via, genesis
from onnxreg.schema.log.state import Checkpoint, Speed, State, VersionEntry

ABOUT: dict[str, Any] = {"name": "acme/pii", "time": "2026-01-02T03:04:05Z", "nonce": "0" * 32}
MANIFEST = Digest.of(b"manifest")
VERSION: dict[str, Any] = {"version": Version(1, 0, 0), "manifest": MANIFEST}


@pytest.mark.parametrize("paths", [None, ("a.onnx",), ("a.onnx", "b/c.onnx")])
def test_a_hold_is_read_as_it_was_written(paths):
    event = Hold(**ABOUT, **VERSION, paths=paths)
    assert ("paths" in event.to_json()) == (paths is not None)
    line = LogLine.make(1, genesis("f" * 32, "acme/pii"), event)
    assert LogLine.decode(line.raw).event == event


@pytest.mark.parametrize(
    "paths", [[], ["b", "a"], ["a", "a"], ["../a"], ["/a"], [""], [1], "a", {"a": 1}, None], ids=str
)
def test_a_hold_of_anything_else_is_refused(paths):
    value = {**Hold(**ABOUT, **VERSION).to_json(), "paths": paths}
    with pytest.raises(InputError):
        LogLine.decode(canonical.encode({"seq": 1, "prev": str(MANIFEST), "event": value}))


@pytest.mark.parametrize(
    "time", ["2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "2026-01-01T00:00:60Z"]
)
def test_a_time_that_no_calendar_has_is_refused(time):
    value = {**Hold(**ABOUT, **VERSION).to_json(), "time": time}
    with pytest.raises(InputError, match="not a time"):
        LogLine.decode(canonical.encode({"seq": 1, "prev": str(MANIFEST), "event": value}))


@pytest.mark.parametrize("arrived", ["2026-03-04T05:06:07Z", None])
def test_a_line_has_the_time_of_its_arrival_or_else_of_its_event(arrived):
    first = LogLine.make(1, genesis("f" * 32, "acme/pii"), Hold(**ABOUT, **VERSION))
    taken = LogLine.make(1, first.prev, first.event, Via("e" * 32, 9, first.digest, arrived))
    assert (first.time, taken.time) == (ABOUT["time"], arrived or ABOUT["time"])


@pytest.mark.parametrize(
    ("threads", "machine"), [(1, "avx2, ort 1.2, 1 thread"), (2, "avx2, ort 1.2, 2 threads")]
)
def test_the_class_of_a_machine_in_a_diff(threads, machine):
    assert Speed("avx2", "ort 1.2", threads, 1.5, 1.2).machine == machine


def test_an_entry_says_what_is_held_only_where_that_is_not_all():
    whole, part = VersionEntry(MANIFEST, 9, 1), VersionEntry(MANIFEST, 9, 1, held=("a.onnx",))
    assert whole.to_json() == {"manifest": str(MANIFEST), "size": 9, "seq": 1}
    assert part.to_json() == {**whole.to_json(), "held": ["a.onnx"]}
    assert (VersionEntry.read(whole.to_json()), VersionEntry.read(part.to_json())) == (whole, part)
    assert (whole.status(()), part.status(()), part.usable) == ("", "partial", True)


@pytest.mark.parametrize("held", [["b", "a"], "a", ["../a"]], ids=str)
def test_an_entry_that_holds_anything_else_is_refused(held):
    with pytest.raises(InputError):
        VersionEntry.read({**VersionEntry(MANIFEST, 9, 1).to_json(), "held": held})


@pytest.mark.parametrize("name", ["a", "acme/pii-small_2.x", POLICY_LOG])
def test_the_first_predecessor_is_the_digest_of_canonical_json(name):
    registry = "0123456789abcdef" * 2
    assert genesis(registry, name) == Digest.of(canonical.encode({"registry": registry, "name": name}))


TREE = Path(__file__).parents[2] / "fixtures" / "registry-v1" / "tree"
BLOBS = [path.read_bytes() for path in sorted(TREE.glob("blobs/**/*")) if path.is_file()]
INDEXES = [path.read_bytes().splitlines() for path in sorted(TREE.glob("index/**/*.jsonl"))]
SEALED = [blob.splitlines() for blob in BLOBS if blob.startswith(b'{"event":') and blob.count(b"\n") == 64]
LINES = [line for lines in (*(index[1:] for index in INDEXES), *SEALED) for line in lines]


def test_every_line_of_the_frozen_registry_is_written_as_it_was_read():
    assert len(LINES) > 200
    for line in LINES:
        assert LogLine.decode(line).raw == line
        assert canonical.encode(LogLine.decode(line).to_json()) == line


def test_states_and_checkpoints_are_written_as_they_were_read():
    for first, *_ in INDEXES:
        assert State.decode(first).encode() == first
    checkpoints = [
        blob for blob in BLOBS if b'"versions":{"' in blob[:2000] and blob.startswith(b'{"channels"')
    ]
    assert checkpoints
    for blob in checkpoints:
        assert Checkpoint.decode(blob).encode() == blob


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"percent":5,', b'"percent":5.0,'),
        (b'"seq":1', b'"seq":1.0'),
        (b'"seq":1', b'"seq":01'),
        (b'"seq":1', b'"seq":true'),
        (b'"prev":', b'"prev": '),
        (b'"kind":', b'"kind":"publish","kind":'),
        (b'"salt":', b'"reason":null,"salt":'),
        (b"acme/pii", b"acme/p\\u0069i"),
        (b'"tag":"s"', b'"tag":"1.0.0"'),
    ],
)
def test_other_bytes_are_refused(old, new):
    about: dict[str, Any] = {"name": "acme/pii", "time": "2026-01-02T03:04:05Z", "nonce": "0" * 32}
    held = {"version": Version(1, 0, 0), "manifest": Digest.of(b"")}
    event = RolloutStep(**about, **held, tag="s", expects=Digest.of(b"?"), percent=5, salt="a" * 32)
    raw = LogLine.make(1, Digest.of(b""), event).raw
    assert LogLine.decode(raw) and raw.count(old) == 1
    with pytest.raises(InputError):
        LogLine.decode(raw.replace(old, new))

"""Events and entries as documents: what is written is read again, and nothing else is."""

from typing import Any

import pytest

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import POLICY_LOG, Version
from onnxreg.schema.log.events import Hold
from onnxreg.schema.log.logline import LogLine, genesis
from onnxreg.schema.log.state import VersionEntry

ABOUT: dict[str, Any] = {"name": "acme/pii", "time": "2026-01-02T03:04:05Z", "nonce": "0" * 32}
MANIFEST = Digest.of(b"manifest")
VERSION: dict[str, Any] = {"version": Version(1, 0, 0), "manifest": MANIFEST}


@pytest.mark.parametrize("paths", [None, ("a.onnx",), ("a.onnx", "b/c.onnx")])
def test_a_hold_is_read_as_it_was_written(paths: tuple[str, ...] | None) -> None:
    event = Hold(**ABOUT, **VERSION, paths=paths)
    assert ("paths" in event.to_json()) == (paths is not None)
    line = LogLine.make(1, genesis("f" * 32, "acme/pii"), event)
    assert LogLine.decode(line.raw).event == event


@pytest.mark.parametrize(
    "paths", [[], ["b", "a"], ["a", "a"], ["../a"], ["/a"], [""], [1], "a", {"a": 1}, None], ids=str
)
def test_a_hold_of_anything_else_is_refused(paths: Any) -> None:
    value = {**Hold(**ABOUT, **VERSION).to_json(), "paths": paths}
    with pytest.raises(InputError):
        LogLine.decode(canonical.encode({"seq": 1, "prev": str(MANIFEST), "event": value}))


@pytest.mark.parametrize(
    "time", ["2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "2026-01-01T00:00:60Z"]
)
def test_a_time_that_no_calendar_has_is_refused(time: str) -> None:
    value = {**Hold(**ABOUT, **VERSION).to_json(), "time": time}
    with pytest.raises(InputError, match="not a time"):
        LogLine.decode(canonical.encode({"seq": 1, "prev": str(MANIFEST), "event": value}))


def test_an_entry_says_what_is_held_only_where_that_is_not_all() -> None:
    whole, part = VersionEntry(MANIFEST, 9, 1), VersionEntry(MANIFEST, 9, 1, held=("a.onnx",))
    assert whole.to_json() == {"manifest": str(MANIFEST), "size": 9, "seq": 1}
    assert part.to_json() == {**whole.to_json(), "held": ["a.onnx"]}
    assert (VersionEntry.read(whole.to_json()), VersionEntry.read(part.to_json())) == (whole, part)
    assert (whole.status(None), part.status(None), part.usable) == ("", "partial", True)


@pytest.mark.parametrize("held", [["b", "a"], "a", ["../a"]], ids=str)
def test_an_entry_that_holds_anything_else_is_refused(held: Any) -> None:
    with pytest.raises(InputError):
        VersionEntry.read({**VersionEntry(MANIFEST, 9, 1).to_json(), "held": held})


@pytest.mark.parametrize("name", ["a", "acme/pii-small_2.x", POLICY_LOG])
def test_the_first_predecessor_is_the_digest_of_canonical_json(name: str) -> None:
    registry = "0123456789abcdef" * 2
    assert genesis(registry, name) == Digest.of(canonical.encode({"registry": registry, "name": name}))

"""A hostile index file: what it says of lines that are no events of ours is an integrity error, never a traceback."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.registry.trust.known_heads import KnownHead, observe
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Publish, Tag, Unyank, Yank
from onnxreg.schema.log.logline import genesis

REGISTRY, NAME = "0" * 32, "acme/pii"
MANIFEST = Digest.of(b"manifest")
ABOUT = {"name": NAME, "time": "2026-01-01T00:00:00Z"}
V1 = Version(1, 0, 0)
HELD = {"version": V1, "manifest": MANIFEST}
YANK = Yank(**ABOUT, nonce="2" * 32, **HELD)
EVENTS = [
    Publish(**ABOUT, nonce="1" * 32, **HELD, size=10),
    YANK,
    Unyank(**ABOUT, nonce="3" * 32, **HELD, yank=YANK.id),
    Tag(**ABOUT, nonce="4" * 32, **HELD, tag="stable"),
]
NOTHING = object()
VALUES = st.one_of(
    st.just(NOTHING),
    st.none(),
    st.integers(-9, 9),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.sampled_from(["2026-01-01T00:00:00+02:00", "2026-01-01T00:00:00.5Z", "2026-01-01t00:00:00z"]),
)


def index_file(events: list[dict[str, Any]], base: int = 0, **more: Any) -> bytes:
    """The chain is whole, and the state says what the unharmed events say."""
    prev, lines = genesis(REGISTRY, NAME), []
    for seq, event in enumerate(events, base + 1):
        lines.append(canonical.encode({"seq": seq, "prev": str(prev), "event": event}))
        prev = Digest.of(lines[-1])
    held = {"version": "1.0.0", "manifest": str(MANIFEST), "seq": 4}
    state = {
        "registry": REGISTRY,
        "name": NAME,
        "seq": base + len(events),
        "head": str(prev),
        "channels": {"stable": held},
        "versions": {"1.0.0": {"manifest": str(MANIFEST), "size": 10, "seq": 1}},
        "summaries": {"1.0.0": {"artifacts": [], "files": [], "manifest": str(MANIFEST), "size": 10}},
        "segments": [],
    } | more
    return b"".join(line + b"\n" for line in (canonical.encode(state), *lines))


def look(data: bytes, before: KnownHead | None = None) -> KnownHead | None:
    return observe(before, REGISTRY, NAME, data, "here", {}.__getitem__)


def test_the_unharmed_index_file_is_taken() -> None:
    look(index_file([event.to_json() for event in EVENTS]))


@given(
    st.integers(0, len(EVENTS) - 1),
    st.sampled_from(["version", "manifest", "yank", "tag", "size", "time", "kind", "name", "nonce", "more"]),
    VALUES,
)
def test_a_field_that_is_not_what_it_must_be_is_an_integrity_error(
    number: int, field: str, value: object
) -> None:
    events = [event.to_json() for event in EVENTS]
    before = json.dumps(events)
    if value is NOTHING:
        events[number].pop(field, None)
    else:
        events[number][field] = value
    if json.dumps(events) == before or (
        events[number].get("kind") == "publish" and field == "size" and isinstance(value, int) and value >= 0
    ):
        return
    with pytest.raises(IntegrityError):
        look(index_file(events))


def test_a_line_after_what_is_known_is_read_as_strictly() -> None:
    whole = [event.to_json() for event in EVENTS]
    first = look(index_file(whole))
    assert isinstance(first, KnownHead)
    with pytest.raises(IntegrityError):
        look(index_file([*whole, {"kind": "tag", "name": NAME}]), first)

"""Records are read and written byte for byte: the lines and states of the frozen registry, and any line that can be made."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Attest, Event, PolicyEvent, Publish, Purge, RolloutStep, Tag
from onnxreg.schema.log.logline import LogLine, Via
from onnxreg.schema.log.state import Checkpoint, State

TREE = Path(__file__).parents[2] / "fixtures" / "registry-v1" / "tree"
BLOBS = [path.read_bytes() for path in sorted(TREE.glob("blobs/**/*")) if path.is_file()]
INDEXES = [path.read_bytes().splitlines() for path in sorted(TREE.glob("index/**/*.jsonl"))]
SEALED = [blob.splitlines() for blob in BLOBS if blob.startswith(b'{"event":') and blob.count(b"\n") == 64]
LINES = [line for lines in (*(index[1:] for index in INDEXES), *SEALED) for line in lines]


def test_every_line_of_the_frozen_registry_is_written_as_it_was_read() -> None:
    assert len(LINES) > 200
    for line in LINES:
        assert LogLine.decode(line).raw == line
        assert canonical.encode(LogLine.decode(line).to_json()) == line


def test_states_and_checkpoints_are_written_as_they_were_read() -> None:
    for first, *_ in INDEXES:
        assert State.decode(first).encode() == first
    checkpoints = [
        blob for blob in BLOBS if b'"versions":{"' in blob[:2000] and blob.startswith(b'{"channels"')
    ]
    assert checkpoints
    for blob in checkpoints:
        assert Checkpoint.decode(blob).encode() == blob


DIGESTS = st.binary(max_size=2).map(Digest.of)
TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
ABOUT = st.fixed_dictionaries(
    {
        "name": st.just("acme/pii"),
        "time": st.just("2026-01-02T03:04:05Z"),
        "nonce": st.just("0" * 32),
        "reason": TEXTS,
        "actor": TEXTS,
    }
)
HELD = st.fixed_dictionaries({"version": st.just(Version(1, 2, 3, ("rc", "1"), "b")), "manifest": DIGESTS})
PERCENT = st.one_of(st.integers(1, 100), st.sampled_from([0.01, 12.5, 99.99, 1.0]))
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(lambda a, h, n: Publish(**a, **h, size=n), ABOUT, HELD, st.integers(0, 2**53 - 1)),
    st.builds(lambda a, h, d: Tag(**a, **h, tag="stable", expects=d), ABOUT, HELD, st.none() | DIGESTS),
    st.builds(lambda a, h, d: Purge(**a, **h, blobs=tuple(d)), ABOUT, HELD, st.lists(DIGESTS, max_size=3)),
    st.builds(lambda a, d: Attest(**a, manifest=d, statement=d, media_type="é/\U0001f600"), ABOUT, DIGESTS),
    st.builds(
        lambda a, h, p: RolloutStep(**a, **h, tag="s", expects=h["manifest"], percent=p, salt="a" * 32),
        ABOUT,
        HELD,
        PERCENT,
    ),
    st.builds(
        lambda a, rules: PolicyEvent(**a | {"name": ".policy"}, rules=rules),
        ABOUT,
        st.lists(
            st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
                st.one_of(st.floats(-1e30, 1e30), st.integers(-(2**53) + 1, 2**53 - 1), st.booleans()),
                max_size=3,
            ),
            max_size=2,
        ),
    ),
)


@given(EVENTS, st.none() | st.builds(Via, st.just("0" * 32), st.integers(0, 9), DIGESTS))
def test_any_line_is_canonical_json_and_read_again(event: Event, via: Via | None) -> None:
    try:
        line = LogLine.make(1, Digest.of(b""), event, via)
    except InputError:
        return  # a whole float beyond 2**53 - 1
    assert canonical.encode(canonical.decode(line.raw)) == line.raw
    assert LogLine.decode(line.raw) == line


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
def test_other_bytes_are_refused(old: bytes, new: bytes) -> None:
    about: dict[str, Any] = {"name": "acme/pii", "time": "2026-01-02T03:04:05Z", "nonce": "0" * 32}
    held = {"version": Version(1, 0, 0), "manifest": Digest.of(b"")}
    event = RolloutStep(**about, **held, tag="s", expects=Digest.of(b"?"), percent=5, salt="a" * 32)
    raw = LogLine.make(1, Digest.of(b""), event).raw
    assert LogLine.decode(raw) and raw.count(old) == 1
    with pytest.raises(InputError):
        LogLine.decode(raw.replace(old, new))

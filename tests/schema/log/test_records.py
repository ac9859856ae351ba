"""Records are read and written byte for byte: the lines and states of the frozen registry, and any line that can be made."""

from pathlib import Path
from typing import Any

import pytest

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import RolloutStep
from onnxreg.schema.log.logline import LogLine
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

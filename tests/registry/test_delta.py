"""Deltas are chosen, applied, or refused, by the vectors of docs/delta.md."""

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry.delta import apply
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.delta.delta_format import Delta, DeltaHeader, choose_deltas

VECTORS = Path(__file__).parents[1] / "vectors" / "delta"
CASES = json.loads((VECTORS / "apply.json").read_text())["vectors"]
CHOICES = json.loads((VECTORS / "choose.json").read_text())["vectors"]
GOOD = [case for case in CASES if "new" in case]


@pytest.mark.parametrize("case", CHOICES, ids=lambda case: case["name"])
def test_a_choice(case: dict[str, Any]) -> None:
    chosen = choose_deltas(
        [Delta.read(delta) for delta in case["deltas"]],
        {Digest.parse(file): size for file, size in case["sizes"].items()},
        frozenset(map(Digest.parse, case["present"])),
    )
    assert {str(file): str(delta.digest) for file, delta in chosen.items()} == case["chosen"]


def applied(case: dict[str, Any], start: int = 0) -> bytes:
    """What a vector's delta makes. InputError also if it is not the file that the header names."""
    stream = BytesIO(base64.b64decode(case["delta"]))
    header = DeltaHeader.read_from(stream)
    old = [BytesIO(base64.b64decode(data)) for data in case["old"]]
    data = b"".join(bytes(part) for part in apply(stream, header, old, start))
    if start == 0 and Digest.of(data) != header.new.digest:
        raise InputError("other bytes")
    return data


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_vector(case: dict[str, Any]) -> None:
    if "new" in case:
        assert applied(case) == base64.b64decode(case["new"])
    else:
        with pytest.raises(InputError):
            applied(case)


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case["name"])
def test_it_can_begin_anywhere(case: dict[str, Any]) -> None:
    new = base64.b64decode(case["new"])
    for start in {0, 1, len(new) // 2, len(new) - 1, len(new)} - {-1}:
        assert applied(case, start) == new[start:]


def test_every_damaged_byte_is_noticed_or_does_no_harm() -> None:
    """A flipped bit anywhere gives an InputError or the same file, never another exception."""
    case = next(case for case in GOOD if case["name"].startswith("a difference of a part"))
    delta = base64.b64decode(case["delta"])
    for at in range(len(delta)):
        damaged = delta[:at] + bytes([delta[at] ^ 0x41]) + delta[at + 1 :]
        try:
            data = applied(case | {"delta": base64.b64encode(damaged).decode()})
        except InputError:
            continue
        assert data == base64.b64decode(case["new"])


def test_an_old_file_that_became_shorter_is_an_error() -> None:
    case = next(case for case in GOOD if case["name"] == "the whole file is copied")
    with pytest.raises(InputError, match="shorter"):
        applied(case | {"old": [base64.b64encode(bytes(10)).decode()]})

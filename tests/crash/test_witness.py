"""Every state that a power cut may leave of a witness log: the next run continues it, and all of it is right."""

import tempfile
from pathlib import Path

import pytest
from support.crash.invariants import check, record
from support.crash.workloads import add, home
from support.sampling import sampled

from onnxreg.registry.signing import generate
from onnxreg.registry.witness.inspection import verify_log
from onnxreg.registry.witness.signers import LogPublisher, WitnessMemory

SAMPLE_STATES = 20
KEY = generate("ed25519")


def publish(base: Path) -> None:
    """Publish, and read every file of the log. The publisher remembers nothing: only the store keeps it right."""
    publisher = LogPublisher(home(base).store, KEY)
    with tempfile.TemporaryDirectory() as state:
        publisher._memory = WitnessMemory(publisher._origin, publisher.verifier, Path(state))
        publisher.publish()
    found = verify_log(home(base).store, str(publisher.verifier))
    assert (found.changed, found.refused) == ({}, {})


@pytest.mark.parametrize("size", [SAMPLE_STATES, pytest.param(None, marks=pytest.mark.more)])
@pytest.mark.parametrize(
    "before", sampled([(add("a"), publish, add("b")), (add("a"),)], 2), ids=["second", "first"]
)
def test_a_power_cut(before: tuple, size: int | None, tmp_path: Path) -> None:  # type: ignore[type-arg]
    assert check(record(tmp_path, before, publish), publish, size) > 10

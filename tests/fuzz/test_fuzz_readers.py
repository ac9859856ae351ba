"""Index and manifest readers on bytes from a stranger: an answer or a RegError, soon, and nothing else.

The volume is plain seeded loops, a thousand cases and more a second; hypothesis drives the same engine where a failure
should come back small. A failing case names the reader and the seed: `case(readers(directory)[name], seed)` makes it again.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzz import specimens
from support.fuzz.mutation import mutate
from support.fuzz.readers import Reader, readers
from support.fuzz.time_limit import bounded
from support.sampling import sampled

from onnxreg.registry.store.protocol import index_path
from onnxreg.schema.log.events import KINDS, LogLine

READERS = (
    *("index", "lookup", "state", "line", "segment", "checkpoint", "manifest", "stored manifest"),
    *("diff of a manifest", "recipe", "identity", "remotes", "ref", "delta", "table of deltas"),
    *("owner's facts", "dossier profile"),
)
SAMPLE, LARGE = 250, 13_000
"""Cases for each reader; with those of test_fuzz_registries 200,000 in all."""


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return readers(tmp_path_factory.mktemp("fuzz"))


def case(reader: Reader, seed: int) -> bytes:
    """The document of one case."""
    dice = Random(seed)
    return mutate(dice.choice(reader.documents), reader.documents, dice)


def try_one(reader: Reader, data: bytes) -> bool:
    """Whether the reader accepts; fails on whatever else leaves it, and where it does not come to an end."""
    with bounded():
        return reader.accepts(data)


def run(name: str, reader: Reader, seeds: range) -> tuple[int, int]:
    """How many cases were accepted and refused."""
    accepted = 0
    for seed in seeds:
        data = case(reader, seed)
        try:
            accepted += try_one(reader, data)
        except Exception as error:
            error.add_note(f"reader {name!r}, seed {seed}, {len(data)} bytes: {data[:3000]!r}")
            raise
    return accepted, len(seeds) - accepted


@pytest.mark.parametrize("name", READERS)
def test_the_specimens_themselves_are_accepted(name: str, every: dict[str, Reader]) -> None:
    known = [document for document in every[name].documents if try_one(every[name], document)]
    assert len(known) == len(every[name].documents) if name != "stored manifest" else known


def test_the_specimens_hold_every_kind_of_event_and_a_segment() -> None:
    files = specimens.tree()
    lines = files[index_path(specimens.EVENTFUL)].split(b"\n")[1:-1]
    assert {LogLine.decode(line).event.kind for line in lines} == set(KINDS)
    assert files[index_path(specimens.SEALED)].count(b"\n") < 10
    assert specimens.tree() == files


@pytest.mark.parametrize("name", sampled(READERS, 2))
def test_a_reader_answers_or_refuses(name: str, every: dict[str, Reader]) -> None:
    accepted, refused = run(name, every[name], range(SAMPLE))
    assert refused > SAMPLE // 10, "the mutations do not reach the reader"
    assert accepted, "nothing gets past the first check"


@pytest.mark.large
@pytest.mark.parametrize("name", READERS)
def test_a_reader_answers_or_refuses_at_length(
    name: str, every: dict[str, Reader], record_property: Any
) -> None:
    accepted, refused = run(name, every[name], range(LARGE))
    assert accepted and refused
    record_property("fuzz cases", accepted + refused)


@settings(derandomize=True, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(READERS), dice=st.randoms(use_true_random=False))
def test_a_mutated_document(name: str, dice: Random, every: dict[str, Reader]) -> None:
    documents = every[name].documents
    try_one(every[name], mutate(dice.choice(documents), documents, dice))


@settings(derandomize=True, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(READERS), data=st.binary(max_size=200))
def test_any_bytes(name: str, data: bytes, every: dict[str, Reader]) -> None:
    try_one(every[name], data)

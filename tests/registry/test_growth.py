"""No step is worse than linear in what grows: blobs of a version, versions of a model, models, pushers. Counted, not timed."""

import math
from pathlib import Path

import pytest
from support.made_once import stock
from support.registries import growing

LINEAR = 1.1
"""The exponent that counts as linear."""
SIZES = {
    "blobs of a version": (50, 200),
    "versions of a model": (70, 210),
    "models": (8, 32),
    "pushers at once": (4, 16),
}
LARGEST = [
    ("blobs of a version", "add", (10_000, 100_000)),
    ("blobs of a version", "push", (10_000, 100_000)),
    ("versions of a model", "push all", (5_000, 20_000)),
    ("versions of a model", "push one more", (5_120, 20_000)),
    ("models", "mirror to a bucket", (1_000, 10_000)),
    ("models", "mirror to a bucket, nothing changed", (1_000, 10_000)),
]
"""Steps and sizes that docs/dev/scale.md names. After every 64 lines of a log the list of all versions is sent anew; one
version more than 5,120 or 20,000 (6,144 and 24,000 lines) does that."""
FLAT = {("models", "resolve one")}
"""What costs the same however large its input. (An index file has at most so many lines: `test_scale` has its bound.)"""
CONTENDED = 2
"""Who lost the race for one model tries again after a random pause that doubles: n log n requests. Bytes are not held to
it, since each writes the lines of the others too until a segment of them is sealed."""

STEPS = [(kind, name) for kind, steps in growing.GROWTH.items() for name in steps]


def exponents(kind: str, name: str, sizes: tuple[int, int], directory: Path) -> dict[str, float]:
    counts = []
    for size in sizes:
        (directory / str(size)).mkdir()
        counts.append(growing.GROWTH[kind][name](size, directory / str(size)))
    steps = math.log(sizes[1] / sizes[0])
    return {what: math.log(max(counts[1][what], 1) / max(counts[0][what], 1)) / steps for what in counts[0]}


@pytest.mark.more
@pytest.mark.parametrize(("kind", "name"), STEPS)
def test_no_step_is_worse_than_linear(kind: str, name: str, tmp_path: Path) -> None:
    found = exponents(kind, name, SIZES[kind], tmp_path)
    assert found
    if name == "to one model":
        assert found["requests"] < CONTENDED
    else:
        limit = 0.1 if (kind, name) in FLAT else LINEAR
        assert {what: value for what, value in found.items() if value > limit} == {}


@pytest.mark.large
@pytest.mark.parametrize(("kind", "name", "sizes"), LARGEST)
def test_the_largest_sizes_are_linear(
    kind: str, name: str, sizes: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted are requests, bytes and files; calls of functions would take hours."""
    monkeypatch.setattr(growing, "PROFILED", False)
    found = exponents(kind, name, sizes, tmp_path)
    del found["processor"]
    assert found
    assert {what: value for what, value in found.items() if value > LINEAR} == {}


@pytest.mark.more
@pytest.mark.parametrize("kind", ["blobs of a version", "versions of a model", "models"])
def test_no_step_reaches_the_registry_that_others_start_from(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, before = 7, {}
    for number, step in enumerate(growing.GROWTH[kind].values()):
        monkeypatch.setenv("REG_STATE", str(tmp_path / f"state-{number}"))
        directory = tmp_path / str(number)
        directory.mkdir()
        step(size, directory)
        found = {path: path.read_bytes() for path in stock().rglob("*") if path.is_file()}
        assert {path: found.get(path) for path in before} == before
        before = found
    assert before

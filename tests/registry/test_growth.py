"""No step is worse than linear in what grows: blobs of a version, versions of a model, models, pushers. Counted, not timed."""

import math
from pathlib import Path

import pytest
from support.registries import growing

LINEAR = 1.1
"""The exponent that counts as linear."""
SIZES = {
    "blobs of a version": (50, 200),
    "versions of a model": (70, 210),
    "models": (8, 32),
    "pushers at once": (4, 16),
}
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
def test_no_step_is_worse_than_linear(kind, name, tmp_path):
    found = exponents(kind, name, SIZES[kind], tmp_path)
    assert found
    if name == "to one model":
        assert found["requests"] < CONTENDED
    else:
        limit = 0.1 if (kind, name) in FLAT else LINEAR
        assert {what: value for what, value in found.items() if value > limit} == {}

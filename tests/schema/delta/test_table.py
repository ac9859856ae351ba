"""Which deltas a client takes, by the vectors of docs/delta.md."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.delta.table import APPLY_BYTES_PER_SECOND, Delta, RoutePlanner

VECTORS = Path(__file__).parents[2] / "vectors"
CASES = json.loads((VECTORS / "delta" / "choose.json").read_text())["vectors"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_vector(case: dict[str, Any]) -> None:
    planner = RoutePlanner(
        {Digest.parse(file): size for file, size in case["sizes"].items()},
        frozenset(map(Digest.parse, case["present"])),
        [Delta.read(delta) for delta in case["deltas"]],
        case.get("rate"),
        case.get("apply_rate", APPLY_BYTES_PER_SECOND),
    )
    routes = {
        str(file): [str(delta.digest) for delta in route.deltas] for file, route in planner.plan().items()
    }
    assert routes == case["routes"]


def test_a_long_row_of_files_is_planned() -> None:
    """A hostile table makes each file from the next."""
    files = [Digest.of(b"%d" % index) for index in range(2000)]
    deltas = [Delta(new, (old,), new, 1) for new, old in pairwise(files)]
    assert len(RoutePlanner(dict.fromkeys(files, 1000), frozenset(), deltas).plan()) == 2000


def test_the_vectors_are_those_of_their_script() -> None:
    command = [sys.executable, str(VECTORS / "make_delta.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run tests/vectors/make_delta.py"

"""The table of contrib operators: as the docs and the web client have it, and the words of a rejection."""

import re
from pathlib import Path

import pytest

from onnxreg.schema.query import runtimes
from onnxreg.schema.query.runtimes import FIRST_RELEASES, RELEASES

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", ["web-client/contrib.mjs", "jvm-client/src/org/onnxreg/client/Contrib.java"])
def test_a_client_has_the_same_table(path: str) -> None:
    text = (ROOT / "examples" / path).read_text("utf-8")
    rows = re.findall(r"""^ +['"](\d+): (.+)['"],$""", text, re.MULTILINE)
    assert {need: (1, int(minor)) for minor, needs in rows for need in needs.split(", ")} == FIRST_RELEASES


def test_every_release_is_one_that_the_other_table_has() -> None:
    assert set(FIRST_RELEASES.values()) <= RELEASES.keys()


def test_a_feature_is_newer_than_its_operator() -> None:
    for need, release in FIRST_RELEASES.items():
        operator = need.split()[0]
        assert operator == need or release > FIRST_RELEASES.get(operator, (1, 15)), need


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("1.23", ""),
        ("1.23.2", ""),
        ("2.0", ""),
        ("1.22.1", "needs MatMulNBits bits=8, ONNX Runtime 1.22.1 lacks it, 1.23 has it"),
        ("1.15", "needs MatMulNBits, ONNX Runtime 1.15 lacks it, 1.16 has it"),
    ],
)
def test_the_first_need_that_a_release_lacks_is_named(release: str, words: str) -> None:
    assert runtimes.problem(["MatMulNBits", "MatMulNBits bits=8"], release) == words


def test_an_operator_of_no_release_is_named() -> None:
    words = "needs Imaginary, which no release of ONNX Runtime known here runs on the CPU"
    assert runtimes.problem(["Imaginary"], "1.31") == words

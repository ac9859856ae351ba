"""The library does not speak the command line: it states codes, and `cli/hints.py` has their texts."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from onnxreg.cli import hints
from onnxreg.schema.core.errors import Advice

ROOT = Path(__file__).parents[2]
LIBRARY = ("schema", "registry", "converters")


@cache
def modules() -> dict[str, ast.Module]:
    paths = [path for folder in LIBRARY for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


def codes(tree: ast.Module) -> Iterator[str]:
    """The codes of every `Advice(...)`, of both branches if it is conditional."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Advice":
            first = node.args[0]
            for branch in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                if isinstance(branch, ast.Constant):
                    yield branch.value


def test_every_code_of_the_library_has_a_text_and_every_text_a_code() -> None:
    stated = {code for tree in modules().values() for code in codes(tree)}
    assert stated == set(hints.TEMPLATES)


@pytest.mark.parametrize(
    ("advice", "text"),
    [
        ("check the path", "check the path"),
        (
            Advice("name-member", nearest="d is one stage", member="det"),
            "d is one stage; name one, such as --member det",
        ),
        (
            Advice("pull-part", ref="a/b:1.0.0", members=["x", "y"], format="onnx", precision="int8"),
            (
                "reg pull a/b:1.0.0 there fetches the rest; or take what it has: "
                "reg pull a/b:1.0.0 --member x --member y --format onnx --precision int8"
            ),
        ),
        (
            Advice("finish-mirroring", mirror="m", first=Advice("verify-both")),
            (
                "the state line of one of them is wrong: run `reg verify` in both; "
                "m has only what arrived: run `reg mirror` again, it goes on there"
            ),
        ),
    ],
)
def test_an_advice_becomes_what_to_type(advice: str | Advice, text: str) -> None:
    assert hints.text(advice) == text

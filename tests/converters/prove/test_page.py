"""docs/prove.md lists every rewrite, every rule of scales and every rule of float16, and no other rewrite."""

import re
from pathlib import Path

from onnxreg.converters.prove import read_formulas  # noqa: F401  enters the rules
from onnxreg.converters.prove.comparison import HALF_RULES, SCALE_RULES
from onnxreg.converters.prove.rewrites import RULES

PAGE = (Path(__file__).parents[3] / "docs" / "prove.md").read_text("utf-8")


def test_every_rewrite_is_on_the_page() -> None:
    table = PAGE.partition("| rewrite |")[2].partition("\n\n")[0]
    names = {name for row in table.splitlines() for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    assert names == {name for rules in RULES.values() for name, _ in rules} | {"constant-folding", "sizes"}


def test_every_rule_of_scales_and_of_float16_is_on_the_page() -> None:
    table = PAGE.partition("| scale rule |")[2].partition("\n\n")[0]
    for name in SCALE_RULES:
        kind, steps = name.split("/")
        assert any(kind in row and f"/{steps}`" in row for row in table.splitlines()), name
    for name in HALF_RULES:
        assert name.removeprefix("float16 ") in PAGE

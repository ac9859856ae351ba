"""The table of rules in docs/diff.md is that of the code."""

from pathlib import Path

from onnxreg.schema.compare.severity import FIELD, RULES, Rule

PAGE = Path(__file__).parents[3] / "docs" / "diff.md"
OPERATIONS = ("added", "removed", "changed", "reordered")


def row(place: str, rule: Rule) -> str:
    cells = [getattr(rule, operation) for operation in OPERATIONS]
    shown = [cell if isinstance(cell, str) else "by case" for cell in cells]
    return f"| `{place}` | {rule.noun} | {' | '.join(shown)} |"


def test_the_table_is_the_one_of_the_code() -> None:
    expected = [*(row(place, rule) for place, rule in RULES.items()), row("*", FIELD)]
    found = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert found == expected, "\n".join(expected)

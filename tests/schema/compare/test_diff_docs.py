"""The table of rules in docs/diff.md is that of the code."""

from pathlib import Path

from onnxreg.schema.compare.severity import FIELD, RULES, Rule

PAGE = Path(__file__).parents[3] / "docs" / "diff.md"
USUAL = Rule("usual")


def row(pattern: str, rule: Rule) -> str:
    severities: dict[str, list[str]] = {}
    for operation in ("added", "removed", "changed", "reordered"):
        cell = getattr(rule, operation)
        if cell != getattr(USUAL, operation):
            severities.setdefault(cell if isinstance(cell, str) else "by case", []).append(operation)
    cells = "; ".join(f"{severity}: {', '.join(which)}" for severity, which in severities.items())
    return f"| `{pattern}` | {rule.noun} | {cells} |"


def test_the_table_is_the_one_of_the_code() -> None:
    expected = [*(row(pattern, rule) for pattern, rule in RULES.items()), row("*", FIELD)]
    found = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert found == expected, "\n".join(expected)

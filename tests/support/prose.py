"""Count the worst patterns of our English (docs/dev/style.md), and fail if there are more than the ceiling allows.

    python tests/support/prose.py          # compare with the ceilings
    python tests/support/prose.py --lower  # write today's counts as the new ceilings

Ceilings only go down. A name, a quotation or a file format that needs such a word counts too; rephrase something else.
"""

import ast
import json
import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CEILINGS = Path(__file__).with_name("prose.json")
PATTERNS = {
    "is no": r"(?<!\b[Tt]here )\b(?:is|are) (?:no(?! longer)|none)\b",
    "be had": r"\bbe had\b",
    "whoever": r"\bwho(?:so)?ever\b",
    "stands": r"\bstands?\b",
    "lies": r"\blies?\b",
    "told": r"\btold\b",
    "buried": r"\bburied\b",
    "lent": r"\blent\b",
    "mend": r"\bmend(?:s|ed)?\b",
    "strange": r"\bstrangers?\b|\bstrange\b",
    "docstring begins with a question word": r'"""(?:What|Whether|Where|How|Which)\b',
    "docstring of a fragment": r'"""As `',
}
BAD_NAMES = re.compile(
    "asked|bad|done|each|found|held|kept|known|made|ours|place|rest|said|seen|theirs|there|told|wanted|what|whole"
)
LONG_LINES = "lines of a page over 100 columns"
MAX_COLUMNS = 100
NOT_PROSE = re.compile(r"^ *```.*?^ *```$|<!-- generated.*?<!-- end -->|<!--.*?-->", re.DOTALL | re.MULTILINE)


def texts() -> list[Path]:
    """Return the files of code and of documentation, which people read."""
    code = [
        path
        for top in ("cli", "converters", "registry", "schema", "examples")
        for path in (REPOSITORY / top).rglob("*.py")
    ]
    return [*code, *(path for path in pages() if path.name != "style.md")]


def pages() -> list[Path]:
    """The pages of the documentation."""
    patterns = ("*.md", "docs/**/*.md", "tests/*.md", "examples/*/*.md")
    return [path for pattern in patterns for path in REPOSITORY.glob(pattern)]


def count() -> dict[str, int]:
    """Return the number of times that each pattern occurs."""
    contents = [path.read_text("utf-8") for path in texts()]
    counts = {
        name: sum(len(re.findall(pattern, text)) for text in contents) for name, pattern in PATTERNS.items()
    }
    counts[LONG_LINES] = sum(len(long_lines(path.read_text("utf-8"))) for path in pages())
    modules = [path.read_text("utf-8") for path in texts() if path.suffix == ".py"]
    counts["values named by a participle or pronoun"] = sum(map(bad_names, modules))
    return counts


def long_lines(page: str) -> list[str]:
    """Return the lines of a page that are too long. Tables and code are not counted."""
    prose = NOT_PROSE.sub("", page)
    return [line for line in prose.splitlines() if len(line) > MAX_COLUMNS and not line.startswith("|")]


def bad_names(source: str) -> int:
    """Count the variables and parameters whose names do not say their role (`BAD_NAMES`)."""
    names = (
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )
    return sum(BAD_NAMES.fullmatch(name) is not None for name in names)


def main() -> int:
    counts = count()
    if "--lower" in sys.argv:
        CEILINGS.write_text(json.dumps(counts, indent=2) + "\n", "utf-8")
        return 0
    ceilings = json.loads(CEILINGS.read_text("utf-8"))
    worse = [name for name in counts if counts[name] > ceilings[name]]
    for name in worse:
        print(f"{name}: {counts[name]} times, at most {ceilings[name]}: see docs/dev/style.md")
    return bool(worse)


if __name__ == "__main__":
    raise SystemExit(main())

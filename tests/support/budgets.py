"""Count the lines of each package beside its budget, and fail if one is above its ceiling.

    python tests/support/budgets.py          # print the table and compare with the ceilings
    python tests/support/budgets.py --lower  # write today's counts as the new ceilings

The ceiling of a row is its budget, or the lowest count so far while that is above the budget. Lines are those of
the files, with docstrings and blanks. A file counts in the row with the longest path above it.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("budgets.json")
"""For each row its paths, the suffix of its files unless it is `.py`, its unit, its budget and its ceiling."""
SOURCE = ("schema", "registry", "converters", "cli")


def count(rows: dict[str, Any]) -> Counter[str]:
    """The lines or words of each row, and the files and lines of all source."""
    owners = {(path, row.get("suffix", ".py")): name for name, row in rows.items() for path in row["paths"]}
    counts: Counter[str] = Counter()
    for top in {path.partition("/")[0] for path, _ in owners}:
        for file in (REPOSITORY / top, *(REPOSITORY / top).rglob("*.*")):
            path = file.relative_to(REPOSITORY)
            keys = ((folder.as_posix(), file.suffix) for folder in (path, *path.parents))
            name = next((owners[key] for key in keys if key in owners), None)
            if name is not None and file.is_file():
                text = file.read_text("utf-8")
                number = len(text.split()) if rows[name]["unit"] == "words" else text.count("\n")
                counts[name] += number
                if top in SOURCE:
                    counts.update({top: number, "all source": number, "files of source": 1})
    return counts


def main() -> int:
    rows = json.loads(TABLE.read_text("utf-8"))
    counts = count(rows)
    if "--lower" in sys.argv:
        for name, row in rows.items():
            row["ceiling"] = max(row["budget"], min(row.get("ceiling", counts[name]), counts[name]))
        TABLE.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")
    for name, row in rows.items():
        fault = f", ABOVE THE CEILING {row['ceiling']}" if counts[name] > row["ceiling"] else ""
        print(f"{name:40}{counts[name]:7} {row['unit']}, budget {row['budget']}{fault}")
    print(*(f"{name}: {counts[name]} lines" for name in (*SOURCE, "all source")), sep=", ")
    return any(counts[name] > row["ceiling"] for name, row in rows.items())


if __name__ == "__main__":
    raise SystemExit(main())

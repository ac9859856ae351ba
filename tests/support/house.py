"""Count what a stranger would stumble over in the layout, and fail if there is more than the ceiling allows.

    python tests/support/house.py          # compare with the ceilings
    python tests/support/house.py --lower  # write today's counts as the new ceilings

Ceilings only go down.
"""

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CEILINGS = Path(__file__).with_name("house.json")
TOPS = ("cli", "converters", "registry", "schema")
MAX_MODULES_OF_A_NAME = 2
DOCSTRING_LINES = range(5, 21)
"""The lines that the docstring of a package may have."""


def modules() -> list[Path]:
    """The source files."""
    return sorted(path for top in TOPS for path in (REPOSITORY / top).rglob("*.py"))


def public_classes(path: Path) -> Iterator[str]:
    """The names of the classes of a module that others may import."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def repeated(names: Sequence[str], most: int) -> list[str]:
    """The names that occur more often than `most` times."""
    return sorted(name for name, count in Counter(names).items() if count > most)


def has_good_docstring(package: Path) -> bool:
    docstring = ast.get_docstring(ast.parse(package.read_text("utf-8"))) or ""
    return len(docstring.splitlines()) in DOCSTRING_LINES


def survey() -> dict[str, list[str]]:
    """The names and files that break each rule."""
    files = modules()
    packages = [path for path in files if path.name == "__init__.py"]
    stems = [path.stem for path in files if path not in packages]
    return {
        "class names that exist twice": repeated(
            [name for path in files for name in public_classes(path)], 1
        ),
        "module names that exist three times": repeated(stems, MAX_MODULES_OF_A_NAME),
        "packages without a docstring of 5 to 20 lines": [
            str(path.relative_to(REPOSITORY)) for path in packages if not has_good_docstring(path)
        ],
    }


def main() -> int:
    breaches = survey()
    if "--lower" in sys.argv:
        counts = {rule: len(names) for rule, names in breaches.items()}
        CEILINGS.write_text(json.dumps(counts, indent=2) + "\n", "utf-8")
        return 0
    ceilings = json.loads(CEILINGS.read_text("utf-8"))
    worse = [rule for rule, names in breaches.items() if len(names) > ceilings[rule]]
    for rule in worse:
        print(f"{rule}: {len(breaches[rule])}, at most {ceilings[rule]}: {', '.join(breaches[rule])}")
    return bool(worse)


if __name__ == "__main__":
    raise SystemExit(main())

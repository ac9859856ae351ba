"""`python -m onnxreg.cli.reference [--check]`: write the pages of a checkout's docs/, or say which are stale."""

import sys
from collections.abc import Callable
from pathlib import Path

from onnxreg.cli.reference.pages import cli_page, man_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES: dict[str, Callable[[], str]] = {"cli.md": cli_page, "reg.1": man_page}


def stale() -> list[str]:
    """The names of the pages that are not what the code gives."""
    return [
        name
        for name, text in PAGES.items()
        if not (DOCS / name).is_file() or (DOCS / name).read_text("utf-8") != text()
    ]


def main(arguments: list[str]) -> int:
    """Exit status 1 if `--check` finds a stale page."""
    pages = stale()
    for name in pages:
        if "--check" in arguments:
            print(f"docs/{name} is stale: run `make generate`", file=sys.stderr)
        else:
            (DOCS / name).write_text(PAGES[name](), "utf-8")
    return int(bool(pages) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A difference as Markdown, for a pull request or the summary of a build."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from onnxreg.cli.render import manifest_view, output
from onnxreg.cli.reports import diff_overview
from onnxreg.cli.reports.deep_diff import lines as deep_lines
from onnxreg.schema.compare.graphs import DeepDiff
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import DiffOverview

if TYPE_CHECKING:
    from onnxreg.registry.read.versions import PublishedVersion

OPEN = ("breaking", "degrading")
"""Severities whose changes are shown at once; the others can be unfolded."""


def markdown(
    old: "PublishedVersion",
    new: "PublishedVersion",
    changes: ManifestDiff,
    screen: DiffOverview,
    deep: list[DeepDiff] | None = None,
) -> str:
    """The whole text, with a newline at its end: the screen of `reg diff`, then every change."""
    parts = [f"### {escaped(f'{old.ref} → {new.ref}')}", ""]
    parts += [f"**{escaped(screen.verdict[0])}**", *map(escaped, screen.verdict[1:])]
    parts += _list(manifest_view.doubts_of((old, new)))
    parts += _screen(screen)
    for severity, count in changes.counts.items():
        messages = [escaped(change.message) for change in changes.changes if change.severity == severity]
        if count:
            parts += _group(f"{count} {severity}", [f"- {message}" for message in messages], severity in OPEN)
    if deep:
        inside = "\n".join(deep_lines(deep)).replace("```", "'''")
        parts += _group("inside the files", [f"```text{inside}\n```"], is_open=False)
    return "\n".join(parts) + "\n"


def _screen(screen: DiffOverview) -> Iterator[str]:
    """The tables of the overview, and the count of what it folds."""
    for table in diff_overview.tables(screen):
        yield from _table(table.header, table.rows)
        yield from (f"\n{escaped(line)}" for line in table.notes)
    if folded := diff_overview.folded_line(screen, "below"):
        yield f"\n{escaped(folded)}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table without the columns that are empty in every row."""
    shown = [index for index in range(len(header)) if any(row[index] for row in rows)]
    if not rows:
        return
    yield ""
    yield _row([header[index] for index in shown])
    yield _row(["---:" if header[index] in output.NUMBERS else "---" for index in shown], str)
    for row in rows:
        yield _row([row[index] for index in shown])


def _row(cells: Iterable[str], written: Callable[[str], str] | None = None) -> str:
    return f"| {' | '.join(map(written or escaped, cells))} |"


def _list(lines: Iterable[str]) -> list[str]:
    items = [f"- {escaped(line)}" for line in lines]
    return ["", *items] if items else []


def escaped(text: str) -> str:
    """Text from somebody's document, escaped so that Markdown and HTML read it as text only."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|&~$@-])", r"\\\1", output.printable(text))


def _group(title: str, body: list[str], is_open: bool) -> list[str]:
    if is_open:
        return ["", f"#### {title}", "", *body]
    return ["", f"<details><summary>{title}</summary>", "", *body, "", "</details>"]

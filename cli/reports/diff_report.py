"""A difference as one screen of a terminal, about 40 lines of 80 columns, and as Markdown for a pull request."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxreg.cli.render import manifest_view, output
from onnxreg.cli.render.output import counted, printable
from onnxreg.schema.compare.figures import VERDICTS, FigureRow
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import ArtifactRow, ArtifactSide, DiffOverview, FactRow
from onnxreg.schema.compare.severity import SEVERE

if TYPE_CHECKING:
    from onnxreg.registry.log.lookup import Release


MAX_ARTIFACTS, MAX_FIGURES, MAX_FACTS, MAX_REASONS = 10, 15, 7, 2
"""Rows of each table. Breaking and degrading facts are always shown."""
WITHOUT_EFFECT = "without effect on an app"
BASES = {
    "published": "the published interval of each version",
    "samples": "the number of gold spans or items",
}
"""The end of the line that says what an interval is made of."""
_REFERENCE = re.compile(r"(?<=[@#])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH)(?=-\d)", re.IGNORECASE)
"""The places at which `https://host`, `www.host`, `@name`, `#1` and `GH-1` are parted."""
OPEN = ("breaking", "degrading")
"""Severities whose changes are shown at once; the others can be unfolded."""


@dataclass(frozen=True)
class OverviewTable:
    """A table of the screen; `notes` are lines below it."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def lines(screen: DiffOverview) -> Iterator[str]:
    """The screen for a terminal, without the count of what is folded."""
    yield from (output.fold_line(printable(sentence), "  ") for sentence in screen.verdict)
    for table in tables(screen):
        rows = list(output.table(table.header, table.rows))
        rows += [output.fold_line(printable(note), "  ") for note in table.notes]
        if rows:
            yield from ("", *rows)


def markdown(old: "Release", new: "Release", changes: ManifestDiff, screen: DiffOverview) -> str:
    """The whole text, with a newline at its end: the screen of `reg diff`, then every change."""
    parts = [f"### {escaped(f'{old.ref} → {new.ref}')}", ""]
    parts += [f"**{escaped(screen.verdict[0])}**", *map(escaped, screen.verdict[1:])]
    parts += _list(manifest_view.doubts_of((old, new)))
    parts += _screen(screen)
    for severity, count in changes.counts.items():
        messages = [escaped(change.message) for change in changes.changes if change.severity == severity]
        if count:
            parts += _group(f"{count} {severity}", [f"- {message}" for message in messages], severity in OPEN)
    return "\n".join(parts) + "\n"


def tables(screen: DiffOverview) -> list[OverviewTable]:
    """The tables of artifacts, figures and facts, each cut to what a screen holds; none if nothing changed."""
    if screen.is_empty:
        return []
    return [_artifact_table(screen.artifacts), _figure_table(screen), _fact_table(screen.facts)]


def places(screen: DiffOverview, rows: Sequence[FigureRow]) -> dict[str, str]:
    """A short name for the artifact of each row: its precision, its file name or its path, the first that no other has."""
    sides = {row.name: row.new or row.old for row in screen.artifacts}
    paths = {row.artifact: row.path for row in rows}
    names = [
        {name: side.precision for name, side in sides.items() if side is not None and name in paths},
        {name: path.rpartition("/")[2] for name, path in paths.items()},
    ]
    return next((short for short in names if len(set(short.values())) == len(paths)), paths)


def number(value: float | None) -> str:
    """A figure with four decimals; `-` if there is none."""
    return "-" if value is None else f"{value:.4f}"


def folded_line(screen: DiffOverview, listing: str) -> str:
    """`and 47 changes that follow from new weights (--full)`; "" if none is folded. `listing` says where they are listed."""
    groups = [
        (len(group.changes), f"from {group.cause}" if group.cause else WITHOUT_EFFECT)
        for group in screen.folded
    ]
    total = sum(count for count, _ in groups)
    if not total:
        return ""
    if len(groups) == 1:
        verb = "" if groups[0][1] == WITHOUT_EFFECT else "that follows " if total == 1 else "that follow "
        return f"and {counted(total, 'change')} {verb}{groups[0][1]} ({listing})"
    return f"and {total} changes that follow ({listing}): {', '.join(f'{count} {cause}' for count, cause in groups)}"


def escaped(text: str) -> str:
    """Text from somebody's document, escaped so that Markdown and HTML read it as text only.

    Forges look for addresses, mentions and references in the text that is left: a space of no width parts them.
    """
    inert = _REFERENCE.sub("\u200b", output.printable(text))
    return re.sub(r"([\\`*_{}\[\]<>()#+!|&~$@-])", r"\\\1", inert)


def _artifact_table(rows: Sequence[ArtifactRow]) -> OverviewTable:
    """Artifacts that changed come first; below are the reasons of verdicts that do not certify."""
    ordered = sorted(rows, key=lambda row: not row.changes and (row.graph, row.weights) == ("same", "same"))
    hidden = len(ordered) - MAX_ARTIFACTS
    reasons = [
        f"{row.name if row.new is None else row.new.path}: {reason}"
        for row in ordered
        for reason in _reasons(row)
    ]
    return OverviewTable(
        ("MEMBER", "ARTIFACT", "PRECISION", "SIZE", "CERTIFICATION", "GRAPH", "WEIGHTS"),
        [_artifact(row) for row in ordered[:MAX_ARTIFACTS]],
        ([f"and {counted(hidden, 'artifact')} more"] if hidden > 0 else []) + reasons,
    )


def _reasons(row: ArtifactRow) -> list[str]:
    """The first reasons, and the count of the others."""
    others = len(row.reasons) - MAX_REASONS
    return [*row.reasons[:MAX_REASONS], *([counted(others, "more reason")] if others > 0 else [])]


def _artifact(row: ArtifactRow) -> tuple[str, ...]:
    graph = row.graph or ("added" if row.old is None else "removed")
    return row.member or "", _name(row), *_sides(row), graph, row.weights or ""


def _name(row: ArtifactRow) -> str:
    paths = [side.path for side in (row.old, row.new) if side is not None]
    return " -> ".join(dict.fromkeys(paths))


def _sides(row: ArtifactRow) -> tuple[str, str, str]:
    """Precision, size and state, each with both values if they differ."""
    sides: list[ArtifactSide] = [side for side in (row.old, row.new) if side is not None]
    columns = (
        [side.precision for side in sides],
        [output.size(side.size) for side in sides],
        [side.state for side in sides],
    )
    precision, size, state = (" -> ".join(dict.fromkeys(values)) for values in columns)
    unit = columns[1][-1][-3:]
    return precision, size.replace(f"{unit} ->", " ->") if columns[1][0].endswith(unit) else size, state


def _figure_table(screen: DiffOverview) -> OverviewTable:
    """The figures that changed, the worst first; below are the others, counted, and the meaning of the interval."""
    shown = [row for row in screen.figures if row.changes][:MAX_FIGURES]
    names = places(screen, shown)
    bases = dict.fromkeys(row.basis for row in shown if row.basis)
    return OverviewTable(
        ("FIGURE", "IN", "BEFORE", "AFTER", "CHANGE", "95 %", "VERDICT"),
        [(*_figure(row, names[row.artifact]), row.verdict_text) for row in shown],
        [
            *_more(screen.figures, shown),
            *(f"95 %: interval of the change, from {BASES[basis]}" for basis in bases),
            *(["unclear: the interval includes 0"] if bases else []),
        ],
    )


def _figure(row: FigureRow, artifact: str) -> tuple[str, ...]:
    interval = "" if row.interval is None else f"{row.interval[0]:+.3f}, {row.interval[1]:+.3f}"
    change = "" if row.change is None else f"{row.change:+.4f}"
    return row.name, artifact, number(row.old), number(row.new), change, interval


def _more(rows: Sequence[FigureRow], shown: Sequence[FigureRow]) -> Iterator[str]:
    """The count of the other figures, by verdict."""
    counts = Counter(row.verdict for row in rows)
    counts.subtract(Counter(row.verdict for row in shown))
    words = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]
    if words:
        others = counted(len(rows) - len(shown), "figure")
        yield f"{f'and {others} more' if shown else others}: {', '.join(words)}"


def _fact_table(rows: Sequence[FactRow]) -> OverviewTable:
    """Other changes, the worst first, those that are not severe up to a limit."""
    severe = sum(row.severity in SEVERE for row in rows)
    shown = rows[: max(severe, MAX_FACTS)]
    hidden: Counter[str] = Counter()
    for row in rows[len(shown) :]:
        hidden[row.section] += len(row.changes)
    topics = ", ".join(f"{section} {count}" for section, count in hidden.items())
    return OverviewTable(
        ("  SEVERITY", "WHAT"),
        [(f"  {row.severity}", row.text) for row in shown],
        [f"and {counted(hidden.total(), 'more change')} by topic: {topics}"] if hidden else [],
    )


def _screen(screen: DiffOverview) -> Iterator[str]:
    """The tables of the overview, and the count of what it folds."""
    for table in tables(screen):
        yield from _table(table.header, table.rows)
        yield from (f"\n{escaped(line)}" for line in table.notes)
    if folded := folded_line(screen, "below"):
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


def _group(title: str, body: list[str], is_open: bool) -> list[str]:
    if is_open:
        return ["", f"#### {title}", "", *body]
    return ["", f"<details><summary>{title}</summary>", "", *body, "", "</details>"]

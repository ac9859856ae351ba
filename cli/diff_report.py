"""Show how two versions differ: on a screen of about 40 lines of 80 columns, or as Markdown for a pull request."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from onnxreg.cli.output import NUMBERS, counted, fold_line, printable, size, standing, table
from onnxreg.cli.versions import doubts
from onnxreg.registry.log.contents import Release
from onnxreg.schema.compare.figures import VERDICTS, FigureRow
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import ArtifactRow, ArtifactSide, DiffOverview, FactRow
from onnxreg.schema.compare.severity import SEVERE

# Rows of the three tables, and reasons for a verdict. Breaking and degrading facts are always shown.
MAX_ARTIFACTS, MAX_FIGURES, MAX_FACTS, MAX_REASONS = 10, 15, 7, 2
# From which an interval was computed
BASES = {
    "published": "the published interval of each version",
    "samples": "the number of gold spans or items",
}
# The positions in `https://host`, `www.host`, `@name`, `#1` and `GH-1` where `escaped` inserts a zero-width
# space.
_REFERENCE = re.compile(r"(?<=[@#])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH)(?=-\d)", re.IGNORECASE)

Table = tuple[Sequence[str], Sequence[Sequence[str]], Sequence[str]]  # header, rows, and the lines below


def lines(screen: DiffOverview) -> Iterator[str]:
    """Yield the lines of the screen, except the line that counts the folded changes."""
    yield from (fold_line(printable(sentence), "  ") for sentence in screen.verdict)
    for header, rows, notes in tables(screen):
        below = (fold_line(printable(note), "  ") for note in notes)
        if block := [*table(header, rows), *below]:
            yield from ("", *block)


def markdown(old: Release, new: Release, changes: ManifestDiff, screen: DiffOverview) -> str:
    """Return a difference as Markdown: the screen of `reg diff`, then every change."""
    parts = [f"### {escaped(f'{old.ref} → {new.ref}')}", ""]
    parts += [f"**{escaped(screen.verdict[0])}**", *map(escaped, screen.verdict[1:])]
    if later := [f"- {escaped(line)}" for line in doubts_of((old, new))]:
        parts += ["", *later]
    for header, rows, notes in tables(screen):
        parts += [*_table(header, rows), *(f"\n{escaped(note)}" for note in notes)]
    if folded := folded_line(screen, "below"):
        parts.append(f"\n{escaped(folded)}")
    for severity, count in changes.counts.items():
        listed = [f"- {escaped(item.message)}" for item in changes.changes if item.severity == severity]
        if count and severity in SEVERE:
            parts += ["", f"#### {count} {severity}", "", *listed]
        elif count:
            parts += ["", f"<details><summary>{count} {severity}</summary>", "", *listed, "", "</details>"]
    return "\n".join(parts) + "\n"


def doubts_of(sides: Iterable[Release]) -> Iterator[str]:
    return (f"{side.ref}: {line}" for side in sides for line in doubts(side))


def tables(screen: DiffOverview) -> list[Table]:
    """Return the tables of artifacts, figures and facts, cut to fit a screen. Return [] if nothing changed."""
    if screen.is_empty:
        return []
    return [_artifact_table(screen.artifacts), _figure_table(screen), _fact_table(screen.facts)]


def folded_line(screen: DiffOverview, listing: str) -> str:
    """Return a line such as `and 47 changes that follow from new weights (LISTING)`, or "" if no change is folded."""
    groups = {group.cause: len(group.changes) for group in screen.folded}
    total = sum(groups.values())
    causes = {cause: f"from {cause}" if cause else "without effect on an app" for cause in groups}
    if not total:
        return ""
    if len(groups) > 1:
        counts = ", ".join(f"{count} {causes[cause]}" for cause, count in groups.items())
        return f"and {total} changes that follow ({listing}): {counts}"
    (cause,) = groups
    verb = f"that {'follows' if total == 1 else 'follow'} " if cause else ""
    return f"and {counted(total, 'change')} {verb}{causes[cause]} ({listing})"


def escaped(text: str) -> str:
    """Escape text from other people in Markdown and HTML. A zero-width space breaks addresses and mentions."""
    inert = _REFERENCE.sub("\u200b", printable(text))
    return re.sub(r"([\\`*_{}\[\]<>()#+!|&~$@-])", r"\\\1", inert)


def _artifact_table(rows: Sequence[ArtifactRow]) -> Table:
    ordered = sorted(rows, key=lambda row: not row.changes and (row.graph, row.weights) == ("same", "same"))
    hidden = len(ordered) - MAX_ARTIFACTS
    notes = [f"and {counted(hidden, 'artifact')} more"] if hidden > 0 else []
    for row in ordered:
        others = len(row.reasons) - MAX_REASONS
        reasons = [*row.reasons[:MAX_REASONS], *([counted(others, "more reason")] if others > 0 else [])]
        notes += [f"{row.name if row.new is None else row.new.path}: {reason}" for reason in reasons]
    header = ("MEMBER", "ARTIFACT", "PRECISION", "SIZE", "CERTIFICATION", "LATENCY", "GRAPH", "WEIGHTS")
    return header, list(map(_artifact, ordered[:MAX_ARTIFACTS])), notes


def _artifact(row: ArtifactRow) -> tuple[str, ...]:
    sides: list[ArtifactSide] = [side for side in (row.old, row.new) if side is not None]
    sizes = [size(side.size) for side in sides]
    unit = sizes[-1][-3:]
    if len(set(sizes)) > 1 and sizes[0].endswith(unit):
        sizes[0] = sizes[0].removesuffix(unit)
    columns = [
        [side.path, side.precision, size_, standing(side)] for side, size_ in zip(sides, sizes, strict=True)
    ]
    cells = [" -> ".join(dict.fromkeys(values)) for values in zip(*columns, strict=True)]
    latencies = dict.fromkeys(side.latency or "-" for side in sides)
    cells.append("" if {*latencies} == {"-"} else " -> ".join(latencies))
    graph = row.graph or ("added" if row.old is None else "removed")
    return row.member or "", *cells, graph, row.weights or ""


def _figure_table(screen: DiffOverview) -> Table:
    shown = [row for row in screen.figures if row.changes][:MAX_FIGURES]
    names, counts = places(screen, shown), Counter(row.verdict for row in screen.figures)
    counts.subtract(Counter(row.verdict for row in shown))
    notes = []
    if words := [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]:
        others = counted(len(screen.figures) - len(shown), "figure")
        notes.append(f"{f'and {others} more' if shown else others}: {', '.join(words)}")
    bases = dict.fromkeys(row.basis for row in shown if row.basis)
    notes += [f"95 %: interval of the change, from {BASES[basis]}" for basis in bases]
    notes += ["unclear: the interval includes 0"] if bases else []
    header = ("FIGURE", "IN", "BEFORE", "AFTER", "CHANGE", "95 %", "VERDICT")
    return header, [_figure(row, names[row.artifact]) for row in shown], notes


def places(screen: DiffOverview, rows: Sequence[FigureRow]) -> dict[str, str]:
    """Name each row's artifact by its precision. If this is ambiguous, use the file names and, at last, the paths."""
    sides = {row.name: row.new or row.old for row in screen.artifacts}
    paths = {row.artifact: row.path for row in rows}
    precisions = {name: side.precision for name, side in sides.items() if side is not None and name in paths}
    names = [precisions, {name: path.rpartition("/")[2] for name, path in paths.items()}]
    return next((short for short in names if len(set(short.values())) == len(paths)), paths)


def _figure(row: FigureRow, artifact: str) -> tuple[str, ...]:
    old, new = ("-" if value is None else f"{value:.4f}" for value in (row.old, row.new))
    interval = "" if row.interval is None else f"{row.interval[0]:+.3f}, {row.interval[1]:+.3f}"
    change = "" if row.change is None else f"{row.change:+.4f}"
    return row.name, artifact, old, new, change, interval, "now fails" if row.is_new_failure else row.verdict


def _fact_table(rows: Sequence[FactRow]) -> Table:
    limit = max(sum(row.severity in SEVERE for row in rows), MAX_FACTS)
    hidden: Counter[str] = Counter()
    for row in rows[limit:]:
        hidden[row.section] += len(row.changes)
    topics = ", ".join(f"{section} {count}" for section, count in hidden.items())
    notes = [f"and {counted(hidden.total(), 'more change')} by topic: {topics}"] if hidden else []
    return ("  SEVERITY", "WHAT"), [(f"  {row.severity}", row.text) for row in rows[:limit]], notes


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, without columns that are empty in every row."""
    shown = [index for index in range(len(header)) if any(row[index] for row in rows)]
    if rows:
        marks = ["---:" if header[index] in NUMBERS else "---" for index in shown]
        cells = [[escaped(row[index]) for index in shown] for row in (header, *rows)]
        yield from ("", *(f"| {' | '.join(row)} |" for row in (cells[0], marks, *cells[1:])))

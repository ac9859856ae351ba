"""A difference as one screen: what changed in artifacts and figures, the other facts, and what follows from them.

Pure: from two manifests and their `ManifestDiff`. Every change is in exactly one place: a row, a fact, or folded under
its cause and counted. The text of a terminal, Markdown and the pages show this one document.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from onnxreg.schema.compare.artifact_rows import ArtifactPairs, ArtifactRow, ArtifactRows, causes_of
from onnxreg.schema.compare.change_place import ARTIFACT, CHECK, SUITE, ChangeKeys, Key
from onnxreg.schema.compare.facts import FactRow, FoldedChanges, fact_rows, folded_changes
from onnxreg.schema.compare.figures import (
    FigureRow,
    UncomparedFigures,
    figure_rows,
    suite_of,
)
from onnxreg.schema.compare.manifests import ManifestDiff, all_artifacts
from onnxreg.schema.core.document import Document, Items
from onnxreg.schema.core.units import counted
from onnxreg.schema.log.summary import ArtifactStates
from onnxreg.schema.manifest.manifest import Manifest


class DiffOverview(Document):
    """One screen. `verdict` are its sentences; `figures` and `facts` are sorted, the worst first."""

    verdict: Items[str]
    artifacts: Items[ArtifactRow]
    figures: Items[FigureRow]
    uncompared: Items[UncomparedFigures]
    facts: Items[FactRow]
    folded: Items[FoldedChanges]

    @property
    def is_empty(self) -> bool:
        """True if the two versions do not differ."""
        rows = (self.artifacts, self.figures, self.uncompared, self.facts, self.folded)
        return not any(row.changes for table in rows for row in table)


class ComparedSide(Protocol):
    """A version that is compared: its manifest, and the states of its artifacts."""

    @property
    def manifest(self) -> Manifest: ...
    @property
    def states(self) -> ArtifactStates: ...


def overview(old: ComparedSide, new: ComparedSide, diff: ManifestDiff) -> DiffOverview:
    """Group the changes of a diff by what an auditor asks."""
    pairs = {name: (before, after) for name, before, after in all_artifacts(old.manifest, new.manifest)}
    rows = figure_rows(pairs, diff.changes)
    by_key: dict[Key, list[int]] = defaultdict(list)
    keys = ChangeKeys(diff.changes, causes_of(pairs), rows)
    for position, change in enumerate(diff.changes):
        by_key[keys.of(change)].append(position)
    of_artifacts = {name: by_key[ARTIFACT, name] for name in pairs if (ARTIFACT, name) in by_key}
    tables = ArtifactRows((old.manifest, new.manifest), (old.states, new.states))
    artifacts = tuple(tables.rows(pairs, of_artifacts))
    sorted_rows = sorted(rows.values(), key=lambda row: row.rank)
    figures = tuple(sorted(_figures(rows, by_key), key=lambda row: row.rank))
    return DiffOverview(
        verdict=tuple(sentences(old.manifest, new.manifest, diff, artifacts, sorted_rows)),
        artifacts=artifacts,
        figures=figures,
        uncompared=tuple(_uncompared(pairs, rows, by_key)),
        facts=tuple(fact_rows(diff.changes, by_key, pairs)),
        folded=tuple(folded_changes(diff.changes, by_key)),
    )


def _figures(
    rows: Mapping[tuple[str, str], FigureRow], by_key: Mapping[Key, Sequence[int]]
) -> Iterator[FigureRow]:
    """The rows with their changes; of figures that are not compared those whose verdict changed."""
    for names, row in rows.items():
        positions = by_key.get((CHECK, *names), ())
        if positions or row.verdict != "uncompared":
            yield row.model_copy(update={"changes": tuple(positions)})


def _uncompared(
    pairs: ArtifactPairs, rows: Mapping[tuple[str, str], FigureRow], by_key: Mapping[Key, Sequence[int]]
) -> Iterator[UncomparedFigures]:
    """One for each artifact with figures that were measured on two suites."""
    counts = Counter(row.artifact for row in rows.values() if row.verdict == "uncompared")
    for name, figures in counts.items():
        old, new = pairs[name]
        if new is not None:
            yield UncomparedFigures(
                artifact=name,
                path=new.path,
                old_suite=suite_of(old),
                new_suite=suite_of(new),
                figures=figures,
                changes=tuple(by_key.get((SUITE, name), ())),
            )


MAX_NAMED = 3
"""Figures and files that a sentence names."""


def sentences(
    old: Manifest,
    new: Manifest,
    diff: ManifestDiff,
    artifacts: Sequence[ArtifactRow],
    figures: Sequence[FigureRow],
) -> Iterator[str]:
    """The verdict, the effect on an app first."""
    effect, label, counts = diff.summary.partition("Changes: ")
    yield effect.strip()
    if counts:
        yield label + counts
    if not diff.changes:
        return
    if old.name != new.name:
        yield f"They are versions of two models: {old.name} and {new.name}."
    yield _figures_sentence(figures)
    if failures := [f"{row.name} in {row.path}" for row in figures if row.is_new_failure]:
        yield f"Now failing: {_named(failures)}."
    yield _states(artifacts)
    yield from _moves(artifacts)
    if diff.members:
        yield f"Members that changed: {_named(list(diff.members))}."


def _figures_sentence(figures: Sequence[FigureRow]) -> str:
    """The figures that got worse, by how much, and if that is more than its interval."""
    counts = Counter(row.verdict for row in figures)
    total = counted(sum(row.change is not None for row in figures), "comparable figure")
    others = counts["uncompared"]
    if not figures:
        return "No figure was measured in both versions."
    if all(row.change is None for row in figures):
        return "No figure is compared: they were measured on different suites."
    worse = [row for row in figures if row.verdict == "worse" and row.change is not None]
    if worse:
        text = f"{len(worse)} of {total} got worse: {_named(list(map(_worse, worse)))}"
    else:
        unclear = f"; {counts['unclear']} changed by less than the interval" if counts["unclear"] else ""
        text = f"Of {total} none is clearly worse{unclear}"
    verb = "is" if others == 1 else "are"
    return f"{text}." + (
        f" {counted(others, 'figure')} {verb} not compared: another suite." if others else ""
    )


def _worse(row: FigureRow) -> str:
    """`DATE in model_int8.onnx by 0.0801 (95 %: 0.0267 to 0.14)`"""
    bounds = sorted(map(abs, row.interval)) if row.interval else ()
    interval = f" (95 %: {bounds[0]:.3g} to {bounds[1]:.3g})" if bounds else ""
    return f"{row.name} in {row.path} by {abs(row.change or 0):.3g}{interval}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def _states(artifacts: Sequence[ArtifactRow]) -> str:
    counts: Counter[str] = Counter()
    for row in artifacts:
        if row.new is not None:
            counts[row.new.state] += row.count
    total = counted(sum(counts.values()), "artifact")
    words = {"certified": "certified", "refused": "refused", "unknown": "not judged"}
    return f"Of {total}: " + ", ".join(f"{counts[state]} {word}" for state, word in words.items()) + "."


def _moves(artifacts: Sequence[ArtifactRow]) -> Iterator[str]:
    """Artifacts that may ship now, or no longer may."""
    names: dict[str, list[str]] = {}
    for row in artifacts:
        if row.new is not None and (move := _move(row.old.state if row.old else None, row.new.state)):
            names.setdefault(move, []).append(row.new.path if row.count == 1 else row.name)
    for move in sorted(names):
        yield f"{move}: {_named(names[move])}."


def _move(old: str | None, new: str) -> str:
    """The words for a change of state; "" for one that needs none."""
    if old == "certified" and new != old:
        return "No longer certified"
    if new == "refused" and old != new:
        return "Newly refused"
    return "Newly certified" if new == "certified" and old != new else ""

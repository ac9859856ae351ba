"""A difference as one screen: what changed in artifacts and figures, the other facts, and what follows from them.

Pure: from two manifests and their `ManifestDiff`. Every change is in exactly one place: a row, a fact, or folded under
its cause and counted. The text of a terminal, Markdown and the pages show this one document.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from onnxreg.schema.compare.artifact_rows import ArtifactPairs, ArtifactRow, ArtifactRows, causes_of
from onnxreg.schema.compare.change_place import (
    ARTIFACT,
    CHECK,
    FACT,
    FOLLOWS,
    SECTIONS,
    SUITE,
    ChangeKeys,
    Key,
)
from onnxreg.schema.compare.figures import (
    FigureRow,
    UncomparedFigures,
    figure_rows,
    suite_of,
)
from onnxreg.schema.compare.json_changes import parsed_path
from onnxreg.schema.compare.manifests import SEVERITIES, Change, ManifestDiff, all_artifacts
from onnxreg.schema.compare.severity import Severity, kind_words
from onnxreg.schema.core.document import Count, Document, Items
from onnxreg.schema.core.units import counted
from onnxreg.schema.log.summary import ArtifactStates
from onnxreg.schema.manifest.manifest import Manifest

MAX_SUBJECTS = 3
"""Changes of one kind that a fact names."""
MAX_SUBJECT_LETTERS = 40
"""Letters of each with its values, if there are several; if one is longer, the fields alone are named."""
MAX_NAMED = 3
"""Figures and files that a sentence names."""


class FactRow(Document):
    """Changes of one kind, in a line of text. `section` is the topic, such as `contract` or `licence`."""

    section: str
    severity: Severity
    kind: str
    text: str
    changes: Items[Count]


class FoldedChanges(Document):
    """Changes that follow from another; `kinds` counts them. `cause` is "" for changes without effect on an app."""

    cause: str
    kinds: dict[str, Count]
    changes: Items[Count]


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
        verdict=tuple(sentences(old.manifest, new.manifest, diff, artifacts, sorted_rows, figures)),
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


def sentences(
    old: Manifest,
    new: Manifest,
    diff: ManifestDiff,
    artifacts: Sequence[ArtifactRow],
    figures: Sequence[FigureRow],
    shown: Sequence[FigureRow],
) -> Iterator[str]:
    """The verdict, the effect on an app first. `shown` are the figures with their changes."""
    effect, label, counts = diff.summary.partition("Changes: ")
    settled = {position for row in shown if not row.is_clearly_worse for position in row.changes}
    degrading = {i for i, change in enumerate(diff.changes) if change.severity == "degrading"}
    if diff.compatible and degrading and degrading <= settled:
        effect = "An app that runs the old version can run the new one unchanged; no figure is clearly worse."
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
    interval = f" (95 %: {bounds[0]:.3g} to {bounds[1]:.3g})" if bounds else " (no interval)"
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


def fact_rows(
    changes: Sequence[Change], by_key: Mapping[Key, Sequence[int]], pairs: ArtifactPairs
) -> list[FactRow]:
    """The facts, the worst first."""
    groups: dict[tuple[str, str, Severity], list[int]] = {}
    for (shown, *names), positions in by_key.items():
        for position in positions if shown == FACT else ():
            change = changes[position]
            groups.setdefault((names[0], change.kind, change.severity), []).append(position)
    rows = [
        FactRow(
            section=section,
            severity=severity,
            kind=kind,
            text=_text([changes[position] for position in positions], pairs),
            changes=tuple(positions),
        )
        for (section, kind, severity), positions in groups.items()
    ]
    return sorted(
        rows, key=lambda row: (SEVERITIES.index(row.severity), SECTIONS.index(row.section), row.kind)
    )


def folded_changes(changes: Sequence[Change], by_key: Mapping[Key, Sequence[int]]) -> Iterator[FoldedChanges]:
    """The groups of changes that follow from others, the largest first."""
    groups = {names[0]: positions for (shown, *names), positions in by_key.items() if shown == FOLLOWS}
    for cause, positions in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        kinds = Counter(changes[position].kind for position in positions)
        yield FoldedChanges(cause=cause, kinds=dict(sorted(kinds.items())), changes=tuple(positions))


def _text(changes: Sequence[Change], pairs: ArtifactPairs) -> str:
    """`opset added in 2 artifacts: opset_imports["com.microsoft"] 1 (an older runtime may refuse it)`"""
    first = changes[0]
    artifacts = list(dict.fromkeys(change.artifact for change in changes if change.artifact))
    subjects = dict.fromkeys(_subject(change, pairs) for change in changes)
    if len(subjects) > 1 and max(map(len, subjects)) > MAX_SUBJECT_LETTERS:
        subjects = dict.fromkeys(map(_field, changes))
    listed = list(subjects)[:MAX_SUBJECTS]
    more = f" and {len(subjects) - MAX_SUBJECTS} more" if len(subjects) > MAX_SUBJECTS else ""
    where = (
        f" in {_file(artifacts[0], pairs) if len(artifacts) == 1 else counted(len(artifacts), 'artifact')}"
    )
    note = f" ({first.note})" if first.note else ""
    return f"{kind_words(first.kind)}{where if artifacts else ''}: {', '.join(listed)}{more}{note}"


def _subject(change: Change, pairs: ArtifactPairs) -> str:
    """The changed thing with its values: of a companion its role and path, of a tensor its shapes."""
    pattern, names = parsed_path(change.path)
    if pattern.startswith("files[]"):
        return names[0]
    if change.kind.endswith("-reshaped"):
        return _shapes(pattern, names, pairs) or change.subject
    return change.subject


def _shapes(pattern: str, names: Sequence[str], pairs: ArtifactPairs) -> str:
    """`ids [batch, 3] -> [batch, 5]`; "" for a tensor whose name changed too."""
    sides = [artifact.metadata for artifact in pairs[names[0]] if artifact]
    is_input = pattern.startswith("artifacts[].metadata.inputs")
    specs = [spec for side in sides for spec in (side.inputs if is_input else side.outputs)]
    shapes = [spec.shape_text for spec in specs if spec.name == names[1]]
    return f"{names[1]} {' -> '.join(shapes)}" if len(shapes) == 2 else ""


def _field(change: Change) -> str:
    """The path of a field inside its artifact; of an item of a list its name."""
    pattern, names = parsed_path(change.path)
    return names[-1] if pattern.endswith("[]") else change.path.removeprefix(f"artifacts[{change.artifact}].")


def _file(name: str, pairs: ArtifactPairs) -> str:
    """The path of an artifact in the new version, or in the old one if only that has it."""
    old, new = pairs[name]
    artifact = new or old
    assert artifact is not None, "a pair has at least one artifact"
    return artifact.path

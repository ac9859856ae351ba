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
from onnxreg.schema.compare.verdict import sentences
from onnxreg.schema.core.document import Document, Items
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

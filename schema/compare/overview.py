"""A difference as one screen: artifacts and figures side by side, the other facts, and what follows from them.

Pure: from two manifests and their `ManifestDiff`. Every change is in exactly one place: a row, a fact, or folded under
its cause and counted. The text of a terminal, Markdown and the pages show this one document.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from onnxreg.schema.compare.figures import (
    ArtifactPairs,
    FigureRow,
    UncomparedFigures,
    figure_rows,
    suite_of,
)
from onnxreg.schema.compare.manifests import (
    LocatedChange,
    ManifestDiff,
    artifact_pairs,
    diff_of,
    field,
    located_changes,
    subject,
)
from onnxreg.schema.compare.severity import (
    ARTIFACT,
    BYTES,
    CHECK,
    EVALUATION,
    SECTIONS,
    SEVERE,
    SEVERITIES,
    SUITE,
    Severity,
    Share,
    kind_words,
    rule_for,
    shares,
)
from onnxreg.schema.core.document import Count, Document, Items, Size
from onnxreg.schema.core.units import counted
from onnxreg.schema.log.summary import ArtifactStates
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.vocabulary import ASIDE, LOSS, UNJUDGED

MAX_NAMED = 3
"""Figures, files and changes of one kind that a sentence or a fact names."""
MAX_SUBJECT_LETTERS = 40
"""Letters of each change with its values, if there are several; if one is longer, the fields alone are named."""
NO_EFFECT = ""
"""The cause of changes without effect on an app."""
CAUSES = {
    ("same", "same"): "another producer",
    ("new", "same"): "another graph",
    ("same", "new"): "new weights",
    ("new", "new"): "another graph and new weights",
}
"""The cause of what follows from the bytes of an artifact, by graph and weights."""
_OF_EVALUATIONS = ("report:", "certificate:", "item-scores:")
"""Roles of companions that an evaluation writes."""
_MIRRORS = {
    "certified": "certification.state",
    LOSS: f"checks[{LOSS}/character_recall].value",
}
"""Keys of version 1 that repeat a value of an artifact, with the end of its path."""

Place = tuple[str, ...]
"""A row (`ARTIFACT`, `CHECK` or `SUITE` with its names), or `FACT` with a section, or `FOLLOWS` with a cause."""
FACT, FOLLOWS = "fact", "follows"
Positions = Mapping[Place, Sequence[int]]
"""The positions of changes in a diff, by their place on the screen."""


class ArtifactSide(Document):
    """An artifact in one version. `size`: bytes of what a runtime loads; `state` counts later refusals."""

    path: str
    format: str
    precision: str
    size: Size
    state: str


class ArtifactRow(Document):
    """An artifact before and after; null on the side that lacks it.

    `graph` and `weights` say if both compute the same; null if a side lacks the artifact.
    `count` is the number of heads of a family that share the row; their sizes are added. `reasons` are those of a new
    state that is not `certified`. `changes` are positions in the diff's `changes`.
    """

    name: str
    count: Count = 1
    member: str | None = None
    old: ArtifactSide | None
    new: ArtifactSide | None
    graph: Share | None = None
    weights: Share | None = None
    reasons: Items[str] = ()
    changes: Items[Count] = ()


class FactRow(Document):
    """Changes of one kind, in a line of text. `section` is the topic, such as `contract` or `licence`."""

    section: str
    severity: Severity
    kind: str
    text: str
    changes: Items[Count]

    @property
    def rank(self) -> tuple[int, int, str]:
        """The order of a screen: the worst first."""
        return SEVERITIES.index(self.severity), SECTIONS.index(self.section), self.kind


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


def overview(
    old: Manifest, new: Manifest, states: tuple[ArtifactStates, ArtifactStates] = ((), ())
) -> tuple[ManifestDiff, DiffOverview]:
    """Compare two manifests, and group the changes of the diff by what an auditor asks.

    `states` are those of the artifacts of both versions, after later evaluations.
    """
    changes = located_changes(old, new)
    diff = diff_of(changes, old, new)
    pairs = artifact_pairs(old, new)
    rows = figure_rows(pairs, changes)
    positions: dict[Place, list[int]] = defaultdict(list)
    for position, spot in enumerate(_places(changes, pairs, rows)):
        positions[spot].append(position)
    figures = sorted(
        (
            row.model_copy(update={"changes": tuple(positions.get((CHECK, *names), ()))})
            for names, row in rows.items()
        ),
        key=lambda row: row.rank,
    )
    uncompared = Counter(row.artifact for row in figures if row.verdict == "uncompared")
    artifacts = tuple(_artifact_rows((old, new), states, pairs, positions))
    screen = DiffOverview(
        verdict=tuple(_sentences(old, new, diff, artifacts, figures)),
        artifacts=artifacts,
        figures=tuple(row for row in figures if row.changes or row.verdict != "uncompared"),
        uncompared=tuple(
            UncomparedFigures(
                artifact=name,
                path=after.path,
                old_suite=suite_of(before),
                new_suite=suite_of(after),
                figures=uncompared[name],
                changes=tuple(positions.get((SUITE, name), ())),
            )
            for name, (before, after) in pairs.items()
            if after is not None and name in uncompared
        ),
        facts=tuple(sorted(_facts(changes, positions, pairs), key=lambda row: row.rank)),
        folded=tuple(
            FoldedChanges(
                cause=spot[1],
                kinds=dict(sorted(Counter(diff.changes[position].kind for position in members).items())),
                changes=tuple(members),
            )
            for spot, members in sorted(positions.items(), key=lambda item: (-len(item[1]), item[0]))
            if spot[0] == FOLLOWS
        ),
    )
    return diff, screen


def _places(
    changes: Sequence[LocatedChange], pairs: ArtifactPairs, rows: Mapping[tuple[str, str], FigureRow]
) -> Iterator[Place]:
    """The place of each change. A severe one is folded only if its cause is shown with the same severity."""
    causes = {
        name: CAUSES.get(_shares(old, new), "new bytes")
        for name, (old, new) in pairs.items()
        if old and new and _loaded_bytes(old) != _loaded_bytes(new)
    }
    first_cause = next(iter(causes.values()), None)
    uncompared = {row.artifact for row in rows.values() if row.verdict == "uncompared"}
    severe = [change.path for change, _ in changes if change.severity in SEVERE and change.artifact]
    mirrored = {key for key, end in _MIRRORS.items() if any(path.endswith(end) for path in severe)}
    for change, delta in changes:
        pattern, names = delta.at.pattern, delta.at.names
        section = rule_for(pattern).section
        spot: Place = (FACT, section)
        if section == CHECK:
            spot = _of_check(pattern, names, rows.get((names[0], names[1])))
        elif section == ARTIFACT or (section == SUITE and names[0] in uncompared):
            spot = (section, names[0])
        elif section == EVALUATION or (
            pattern.startswith("files[]") and names[0].startswith(_OF_EVALUATIONS)
        ):
            spot = (FOLLOWS, EVALUATION)
        if spot == (FACT, BYTES):
            # under what changed in the artifact; if it is of none, in the first
            cause = causes.get(change.artifact or "", first_cause)
            spot = (FACT, "other") if cause is None else (FOLLOWS, cause)
        if change.severity == "cosmetic" and spot[0] == FACT and spot[1] != "tools":
            spot = (FOLLOWS, NO_EFFECT)
        elif spot[0] == FOLLOWS and change.severity in SEVERE and change.path not in mirrored:
            spot = (FACT, "certification" if spot[1] == EVALUATION else "other")
        yield spot


def _of_check(pattern: str, names: Sequence[str], row: FigureRow | None) -> Place:
    """The place of a change in a check, or of a whole one."""
    artifact, check = names[:2]
    leaf = pattern.removeprefix("artifacts[].checks[]").strip(".")
    if row is not None and row.verdict == "uncompared" and leaf in ("value", "dataset"):
        return SUITE, artifact
    if row is not None and leaf in ("", "value", "verdict"):
        return CHECK, artifact, check
    if row is not None and leaf == "limit":
        return FACT, "limits"
    if leaf in ("", "dataset", "interval", "samples"):
        return FOLLOWS, EVALUATION
    return (FACT, BYTES) if leaf in ("limit", "value") else (FACT, "checks")


def _loaded_bytes(artifact: Artifact) -> list[object]:
    """The digests of what a runtime loads."""
    return [file.digest for file in artifact.all_files() if file.role not in ASIDE]


def _shares(old: Artifact, new: Artifact) -> tuple[Share, Share]:
    """Graph and weights of two artifacts, by their bytes or else by their semantic digests."""
    if _loaded_bytes(old) == _loaded_bytes(new):
        return "same", "same"
    return shares(*(None if side.semantic is None else side.semantic.to_json() for side in (old, new)))


def _artifact_rows(
    manifests: tuple[Manifest, Manifest],
    states: tuple[ArtifactStates, ArtifactStates],
    pairs: ArtifactPairs,
    positions: Positions,
) -> Iterator[ArtifactRow]:
    """One row for each artifact, in the order of the pairs; heads of a family that are alike share one."""
    members = manifests[1].stages | manifests[0].stages
    heads = [manifest.heads for manifest in manifests]
    effective = [{artifact.path: artifact.state for artifact in side} for side in states]
    alike: dict[tuple[object, ...], list[ArtifactRow]] = defaultdict(list)
    for name, (before, after) in pairs.items():
        old, new = (
            None if artifact is None else artifact_side(artifact, side)
            for artifact, side in zip((before, after), effective, strict=True)
        )
        graph, weights = _shares(before, after) if before and after else (None, None)
        row = ArtifactRow(
            name=name,
            member=next((members.get(side.path) for side in (new, old) if side), None),
            old=old,
            new=new,
            graph=graph,
            weights=weights,
            reasons=_reasons(after, new),
            changes=tuple(positions.get((ARTIFACT, name), ())),
        )
        is_head = any(side and side.path in paths for side, paths in zip((old, new), heads, strict=True))
        kinds = [side and (side.format, side.precision, side.state) for side in (old, new)]
        alike[(*kinds, graph, weights) if is_head else (name,)].append(row)
    yield from map(_together, alike.values())


def artifact_side(artifact: Artifact, states: Mapping[str, str]) -> ArtifactSide:
    """An artifact with its state: of those by path, or as its manifest says."""
    return ArtifactSide(
        path=artifact.path,
        format=artifact.format,
        precision=artifact.precision,
        size=artifact.own_size,
        state=states.get(artifact.path, artifact.certification.state),
    )


def _reasons(artifact: Artifact | None, side: ArtifactSide | None) -> tuple[str, ...]:
    """The reasons for which an artifact is not certified, if somebody measured."""
    if artifact is None or side is None or "certified" in (side.state, artifact.certification.state):
        return ()
    reasons = artifact.certification.reasons
    return () if reasons == UNJUDGED else reasons


def _together(rows: Sequence[ArtifactRow]) -> ArtifactRow:
    """Heads that are alike as one row."""
    first = rows[0]
    if len(rows) == 1:
        return first
    sides = {
        key: side.model_copy(update={"size": sum(getattr(row, key).size for row in rows)})
        for key in ("old", "new")
        if (side := getattr(first, key)) is not None
    }
    changes = tuple(position for row in rows for position in row.changes)
    update = {**sides, "name": f"{len(rows)} heads", "count": len(rows), "changes": changes, "reasons": ()}
    return first.model_copy(update=update)


def _sentences(
    old: Manifest,
    new: Manifest,
    diff: ManifestDiff,
    artifacts: Sequence[ArtifactRow],
    figures: Sequence[FigureRow],
) -> Iterator[str]:
    """The verdict, the effect on an app first."""
    effect, label, counts = diff.summary.partition("Changes: ")
    settled = {position for row in figures if not row.is_clearly_worse for position in row.changes}
    degrading = {i for i, change in enumerate(diff.changes) if change.severity == "degrading"}
    if diff.compatible and degrading and degrading <= settled:
        effect = "An app that runs the old version can run the new one unchanged; no figure is clearly worse."
    yield effect.strip()
    if not diff.changes:
        return
    if counts:
        yield label + counts
    if old.name != new.name:
        yield f"They are versions of two models: {old.name} and {new.name}."
    yield _figures_sentence(figures)
    if failures := [f"{row.name} in {row.path}" for row in figures if row.is_new_failure]:
        yield f"Now failing: {_named(failures)}."
    states: Counter[str] = Counter()
    moves: dict[str, list[str]] = defaultdict(list)
    for row in artifacts:
        if row.new is None:
            continue
        states[row.new.state] += row.count
        before, after = row.old and row.old.state, row.new.state
        if before != after and "certified" in (before, after):
            move = "Newly certified" if after == "certified" else "No longer certified"
        elif before != after and after == "refused":
            move = "Newly refused"
        else:
            continue
        moves[move].append(row.new.path if row.count == 1 else row.name)
    words = {"certified": "certified", "refused": "refused", "unknown": "not judged"}
    listed = ", ".join(f"{states[state]} {word}" for state, word in words.items())
    yield f"Of {counted(states.total(), 'artifact')}: {listed}."
    yield from (f"{move}: {_named(names)}." for move, names in sorted(moves.items()))
    if diff.members:
        yield f"Members that changed: {_named(list(diff.members))}."


def _figures_sentence(figures: Sequence[FigureRow]) -> str:
    """The figures that got worse, by how much, and if that is more than its interval."""
    if not figures:
        return "No figure was measured in both versions."
    compared = sum(row.change is not None for row in figures)
    if not compared:
        return "No figure is compared: they were measured on different suites."
    counts = Counter(row.verdict for row in figures)
    total = counted(compared, "comparable figure")
    worse = []
    for row in figures:
        if row.verdict == "worse" and row.change is not None:
            low, high = sorted(map(abs, row.interval or (0, 0)))
            interval = f"(95 %: {low:.3g} to {high:.3g})" if row.interval else "(no interval)"
            worse.append(f"{row.name} in {row.path} by {abs(row.change):.3g} {interval}")
    if worse:
        text = f"{len(worse)} of {total} got worse: {_named(worse)}."
    else:
        unclear = f"; {counts['unclear']} changed by less than the interval" if counts["unclear"] else ""
        text = f"Of {total} none is clearly worse{unclear}."
    if others := counts["uncompared"]:
        verb = "is" if others == 1 else "are"
        text += f" {counted(others, 'figure')} {verb} not compared: another suite."
    return text


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def _facts(changes: Sequence[LocatedChange], positions: Positions, pairs: ArtifactPairs) -> Iterator[FactRow]:
    """The facts of each section, severity and kind."""
    groups: dict[tuple[str, Severity, str], list[int]] = defaultdict(list)
    for spot, members in positions.items():
        for position in members if spot[0] == FACT else ():
            change = changes[position].change
            groups[spot[1], change.severity, change.kind].append(position)
    for (section, severity, kind), members in groups.items():
        text = _fact_text([changes[position] for position in members], pairs)
        yield FactRow(section=section, severity=severity, kind=kind, text=text, changes=tuple(members))


def _fact_text(changes: Sequence[LocatedChange], pairs: ArtifactPairs) -> str:
    """`opset added in 2 artifacts: opset_imports["com.microsoft"] 1 (an older runtime may refuse it)`"""
    first = changes[0].change
    artifacts = list(dict.fromkeys(change.artifact for change, _ in changes if change.artifact))
    subjects = list(dict.fromkeys(_subject(item, pairs) for item in changes))
    if len(subjects) > 1 and max(map(len, subjects)) > MAX_SUBJECT_LETTERS:
        names = (d.at.names[-1] if d.at.pattern.endswith("[]") else field(d) for _, d in changes)
        subjects = list(dict.fromkeys(names))
    inside = f" in {counted(len(artifacts), 'artifact')}" if artifacts else ""
    if len(artifacts) == 1:
        inside = next(f" in {side.path}" for side in reversed(pairs[artifacts[0]]) if side)
    note = f" ({first.note})" if first.note else ""
    return f"{kind_words(first.kind)}{inside}: {_named(subjects)}{note}"


def _subject(item: LocatedChange, pairs: ArtifactPairs) -> str:
    """The changed thing with its values: of a companion its role and path, of a tensor its shapes."""
    change, delta = item
    pattern, names = delta.at.pattern, delta.at.names
    if pattern.startswith("files[]"):
        return names[0]
    if change.kind.endswith("-reshaped"):  # `ids [batch, 3] -> [batch, 5]`
        is_input = pattern.startswith("artifacts[].metadata.inputs")
        sides = [artifact.metadata for artifact in pairs[names[0]] if artifact]
        specs = [spec for side in sides for spec in (side.inputs if is_input else side.outputs)]
        shapes = [spec.shape_text for spec in specs if spec.name == names[1]]
        if len(shapes) == 2:
            return f"{names[1]} {' -> '.join(shapes)}"
    return subject(delta)

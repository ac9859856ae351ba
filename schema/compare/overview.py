"""The difference of two versions on one screen: a table of artifacts, a table of figures, and a list of facts.

Every change occurs once: in a row, in a fact, or in a count (`folded`). Each count is about one cause.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from onnxreg.schema.compare.figures import ArtifactPairs, FigureRow, figure_rows
from onnxreg.schema.compare.manifests import (
    LocatedChange,
    ManifestDiff,
    diff_of,
    field,
    located_changes,
    paired,
    subject,
)
from onnxreg.schema.compare.severity import (
    ARTIFACT,
    ARTIFACTS,
    BYTES,
    CAUSES,
    CHECK,
    EVALUATION,
    SECTIONS,
    SEVERE,
    SEVERITIES,
    Severity,
    Share,
    rule_for,
    shares,
)
from onnxreg.schema.core.canonical import Count, Record
from onnxreg.schema.core.errors import listing
from onnxreg.schema.core.units import counted
from onnxreg.schema.log.state import ArtifactState, ArtifactStates, Speed
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.vocabulary import ASIDE, UNJUDGED

MAX_NAMED = 3  # figures, files or changes that one sentence names
# If a line has several changes and one is longer, the line shows the fields without values.
MAX_SUBJECT_LETTERS = 40
_OF_EVALUATIONS = ("report:", "certificate:", "item-scores:")  # roles of files that evaluations write

# Where a change is shown: in a row (`ARTIFACT`, name) or (`CHECK`, artifact, check), as a fact (`FACT`,
# section), or in a count (`FOLLOWS`, cause).
Place = tuple[str, ...]
FACT, FOLLOWS = "fact", "follows"


class ArtifactSide(Record, frozen=True):
    """An artifact in one of the two versions. `state` is its state after later evaluations."""

    path: str
    format: str
    precision: str
    size: Count  # the bytes that a runtime loads
    state: str
    speeds: tuple[Speed, ...] = ()  # from the log, the newest last

    @property
    def latency(self) -> str:
        return str(self.speeds[-1]) if self.speeds else ""


class ArtifactRow(Record, frozen=True):
    """A row of the table of artifacts: one artifact, in the old and in the new version.

    `graph` and `weights` say if the graphs and the weights are the same.
    """

    name: str
    member: str | None  # the stage in a pipeline
    old: ArtifactSide | None  # null: only the new version has the artifact
    new: ArtifactSide | None  # null: only the old version has the artifact
    graph: Share | None
    weights: Share | None
    reasons: tuple[str, ...]  # why the new artifact is not certified
    changes: tuple[Count, ...]  # indexes into the diff's changes


class FactRow(Record, frozen=True):
    """A row of the list of facts: all changes of one kind, in one line of text.

    `section` is the topic, such as `contract` or `licence`.
    """

    section: str
    severity: Severity
    kind: str
    text: str
    changes: tuple[Count, ...]


class FoldedChanges(Record, frozen=True):
    """Changes that the screen only counts. All have the same `cause`; "" means that they do not affect an app."""

    cause: str
    kinds: dict[str, Count]
    changes: tuple[Count, ...]


class DiffOverview(Record, frozen=True):
    """The comparison of two versions on one screen. `verdict` has sentences. The worst figures and facts come first."""

    verdict: tuple[str, ...]
    artifacts: tuple[ArtifactRow, ...]
    figures: tuple[FigureRow, ...]
    facts: tuple[FactRow, ...]
    folded: tuple[FoldedChanges, ...]

    @property
    def is_empty(self) -> bool:
        tables = (self.artifacts, self.figures, self.facts, self.folded)
        return not any(row.changes for table in tables for row in table)


def overview(
    old: Manifest, new: Manifest, states: tuple[ArtifactStates, ArtifactStates] = ({}, {})
) -> tuple[ManifestDiff, DiffOverview]:
    """Compare two manifests. Return all changes, and the comparison on one screen.

    `states` is a pair: the states and speeds of the old version's artifacts, and those of the new version's. The states
    include later evaluations.
    """
    changes = located_changes(old, new, states)
    diff = diff_of(changes)
    pairs = paired(old.artifacts, new.artifacts, ARTIFACTS)
    rows = figure_rows(pairs, changes)
    positions: dict[Place, list[int]] = defaultdict(list)
    for position, spot in enumerate(_places(changes, pairs, rows)):
        positions[spot].append(position)
    figures = [row.replace(changes=tuple(positions.get((CHECK, *names), ()))) for names, row in rows.items()]
    figures.sort(key=lambda row: row.rank)
    stages = new.stages | old.stages
    artifacts = []
    for name, (before, after) in pairs.items():
        graph, weights = _shares(before, after) if before and after else (None, None)
        old_side = None if before is None else artifact_side(before, states[0])
        new_side = None if after is None else artifact_side(after, states[1])
        artifacts.append(
            ArtifactRow(
                name=name,
                member=next((stages.get(item.path) for item in (after, before) if item), None),
                old=old_side,
                new=new_side,
                graph=graph,
                weights=weights,
                reasons=_reasons(after, new_side.state) if after and new_side else (),
                changes=tuple(positions.get((ARTIFACT, name), ())),
            )
        )
    folded = [
        FoldedChanges(
            cause=spot[1],
            kinds=dict(sorted(Counter(diff.changes[position].kind for position in members).items())),
            changes=tuple(members),
        )
        for spot, members in sorted(positions.items(), key=lambda item: (-len(item[1]), item[0]))
        if spot[0] == FOLLOWS
    ]
    return diff, DiffOverview(
        verdict=tuple(_sentences((old.name, new.name), diff, artifacts, figures)),
        artifacts=tuple(artifacts),
        figures=tuple(row for row in figures if row.changes or row.verdict != "uncompared"),
        facts=tuple(_facts(changes, positions, pairs)),
        folded=tuple(folded),
    )


def _places(
    changes: Sequence[LocatedChange], pairs: ArtifactPairs, rows: Mapping[tuple[str, str], FigureRow]
) -> Iterator[Place]:
    """Yield the place of each change on the screen: a row, a fact or a count. A severe change is never only counted."""
    causes = {
        name: CAUSES.get(_shares(old, new), "new bytes")
        for name, (old, new) in pairs.items()
        if old and new and _loaded_bytes(old) != _loaded_bytes(new)
    }
    first_cause = next(iter(causes.values()), None)
    for change, delta in changes:
        pattern, names = delta.at.pattern, delta.at.names
        section = rule_for(pattern).section
        spot: Place = (FACT, section)
        if section == CHECK:
            spot = _of_check(pattern, names, rows.get((names[0], names[1])))
        elif section == ARTIFACT and change.severity != "breaking":
            spot = (ARTIFACT, names[0])
        elif section == EVALUATION or (
            pattern.startswith("files[]") and names[0].startswith(_OF_EVALUATIONS)
        ):
            spot = (FOLLOWS, EVALUATION)
        if spot == (FACT, BYTES):
            # the cause of its artifact; for a file of no artifact, the first cause
            cause = causes.get(change.artifact or "", first_cause)
            spot = (FACT, "other") if cause is None else (FOLLOWS, cause)
        if change.severity == "cosmetic" and spot[0] == FACT and spot[1] != "tools":
            spot = (FOLLOWS, "")
        elif spot[0] == FOLLOWS and change.severity in SEVERE:
            spot = (FACT, "certification" if spot[1] == EVALUATION else "other")
        yield spot


def _of_check(pattern: str, names: Sequence[str], row: FigureRow | None) -> Place:
    leaf = pattern.removeprefix("artifacts[].checks[]").strip(".")
    if row is not None and leaf in ("", "value", "verdict"):
        is_compared = leaf != "value" or row.verdict != "uncompared"
        return (CHECK, *names[:2]) if is_compared else (FOLLOWS, EVALUATION)
    if leaf in ("", "dataset", "interval", "samples"):
        return FOLLOWS, EVALUATION
    if leaf == "limit" and row is not None:
        return FACT, "limits"
    return FACT, BYTES if leaf in ("limit", "value") else CHECK


def _loaded_bytes(artifact: Artifact) -> list[object]:
    return [file.digest for file in artifact.all_files() if file.role not in ASIDE]


def _shares(old: Artifact, new: Artifact) -> tuple[Share, Share]:
    if _loaded_bytes(old) == _loaded_bytes(new):
        return "same", "same"
    return shares(*(None if side.semantic is None else side.semantic.to_json() for side in (old, new)))


def artifact_side(artifact: Artifact, states: ArtifactStates) -> ArtifactSide:
    effective = states.get(artifact.path, ArtifactState(artifact.path, artifact.certification.state))
    return ArtifactSide(
        path=artifact.path,
        format=artifact.format,
        precision=artifact.precision,
        size=artifact.own_size,
        state=effective.state,
        speeds=effective.speeds,
    )


def _reasons(artifact: Artifact, state: str) -> tuple[str, ...]:
    stated = artifact.certification
    return () if "certified" in (state, stated.state) or stated.reasons == UNJUDGED else stated.reasons


def _sentences(
    names: Sequence[str], diff: ManifestDiff, artifacts: Sequence[ArtifactRow], figures: Sequence[FigureRow]
) -> Iterator[str]:
    effect, label, counts = diff.summary.partition("Changes: ")
    failed = [row for row in figures if row.is_new_failure]
    got_worse = (row for row in figures if row.verdict in ("worse", "removed"))
    worse = [row for row in got_worse if row.interval or row not in failed]
    settled = {position for row in {*figures} - {*failed, *worse} for position in row.changes}
    degrading = {i for i, change in enumerate(diff.changes) if change.severity == "degrading"}
    runs = "An app that runs the old version can run the new one unchanged"
    if diff.compatible and degrading and degrading <= settled:
        effect = f"{runs}; no figure is clearly worse."
    elif diff.compatible and failed and not worse:
        limits = {row: "" if row.limit is None else f" ({row.limit:g})" for row in failed}
        named = [f"{row.name} in {row.path}{limit}" for row, limit in limits.items()]
        effect = f"{runs}, but the new one fails a limit: {listing(named, MAX_NAMED, None)}."
    yield effect.strip()
    if not diff.changes:
        return
    if counts:
        yield label + counts
    if len(set(names)) > 1:
        yield f"They are versions of two models: {' and '.join(names)}."
    yield _figures_sentence(figures)
    moves: dict[str, list[str]] = defaultdict(list)
    for row in artifacts:
        before, after = row.old and row.old.state, row.new and row.new.state
        if row.new is not None and before != after and "certified" in (before, after):
            move = "Newly certified" if after == "certified" else "No longer certified"
            moves[move].append(row.new.path)
        elif row.new is not None and before != after and after == "refused":
            moves["Newly refused"].append(row.new.path)
    yield from (f"{move}: {listing(names, MAX_NAMED, None)}." for move, names in sorted(moves.items()))


def _figures_sentence(figures: Sequence[FigureRow]) -> str:
    counts = Counter(row.verdict for row in figures)
    compared, others = sum(row.change is not None for row in figures), counts["uncompared"]
    if not compared:
        no_suite = "No figure is compared: the versions have no suite in common."
        return no_suite if others else "No figure was measured in both versions."
    total = counted(compared, "comparable figure")
    worse = []
    for row in (row for row in figures if row.verdict == "worse" and row.change is not None):
        low, high = sorted(map(abs, row.interval or (0, 0)))
        interval = f"(95 %: {low:.3g} to {high:.3g})" if row.interval else "(no interval)"
        worse.append(f"{row.name} in {row.path} by {abs(row.change or 0):.3g} {interval}")
    unclear = f"; {counts['unclear']} changed by less than the interval" if counts["unclear"] else ""
    text = f"Of {total} none is clearly worse{unclear}."
    if worse:
        text = f"{len(worse)} of {total} got worse: {listing(worse, MAX_NAMED, None)}."
    return f"{text} {others} not compared: no common suite." if others else text


def _facts(
    changes: Sequence[LocatedChange], positions: Mapping[Place, Sequence[int]], pairs: ArtifactPairs
) -> list[FactRow]:
    """Make one fact from all changes that have the same section, severity and kind. The worst facts come first.

    Example: `opset added in 2 artifacts: opset_imports["com.microsoft"] 1 (an older runtime may refuse it)`.
    """
    groups: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for spot, members in positions.items():
        for position in members if spot[0] == FACT else ():
            change = changes[position].change
            groups[SEVERITIES.index(change.severity), SECTIONS.index(spot[1]), change.kind].append(position)
    rows = []
    for (severity, section, kind), members in sorted(groups.items()):
        located = [changes[position] for position in members]
        owners = (change.artifact for change, delta in located if delta.at.pattern != "artifacts[]")
        artifacts = list(dict.fromkeys(filter(None, owners)))
        subjects = {
            d.at.names[0] if d.at.pattern.startswith("files[]") else subject(d): d for _, d in located
        }
        if len(subjects) > 1 and max(map(len, subjects)) > MAX_SUBJECT_LETTERS:
            subjects = {d.at.names[-1] if d.at.pattern.endswith("[]") else field(d): d for _, d in located}
        inside = f" in {counted(len(artifacts), 'artifact')}" if artifacts else ""
        if len(artifacts) == 1:
            inside = next(f" in {side.path}" for side in reversed(pairs[artifacts[0]]) if side)
        note = f" ({located[0].change.note})" if located[0].change.note else ""
        rows.append(
            FactRow(
                section=SECTIONS[section],
                severity=SEVERITIES[severity],
                kind=kind,
                text=f"{kind.replace('-', ' ')}{inside}: {listing(list(subjects), MAX_NAMED, None)}{note}",
                changes=tuple(members),
            )
        )
    return rows

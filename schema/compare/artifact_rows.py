"""The artifacts of two versions side by side: size, precision, state, and if both compute the same."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from onnxreg.schema.core.document import Count, Document, Items, Size
from onnxreg.schema.log.summary import ArtifactStates
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.vocabulary import ASIDE, UNJUDGED

ArtifactPairs = Mapping[str, tuple[Artifact | None, Artifact | None]]
"""The artifacts of both versions by their names in the changes' paths; None on the side that lacks it."""

Share = Literal["same", "new", "not known"]
"""Of a graph or of weights: those of the new version are the same, others, or nobody says."""
CAUSES = {
    ("same", "same"): "another producer",
    ("new", "same"): "another graph",
    ("same", "new"): "new weights",
    ("new", "new"): "another graph and new weights",
}
"""The cause of what follows from the bytes of an artifact, by graph and weights."""


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


def loaded_bytes(artifact: Artifact) -> list[object]:
    """The digests of what a runtime loads."""
    return [file.digest for file in artifact.all_files() if file.role not in ASIDE]


def shares(old: Artifact, new: Artifact) -> tuple[Share, Share]:
    """Graph and weights of two artifacts, by their bytes or else by their semantic digests."""
    if loaded_bytes(old) == loaded_bytes(new):
        return "same", "same"
    if old.semantic is None or new.semantic is None:
        return "not known", "not known"
    return (
        "same" if old.semantic.graph == new.semantic.graph else "new",
        "same" if old.semantic.weights == new.semantic.weights else "new",
    )


def causes_of(pairs: ArtifactPairs) -> dict[str, str]:
    """The cause of what follows from the bytes of each artifact whose bytes changed."""
    return {
        name: CAUSES.get(shares(old, new), "new bytes")
        for name, (old, new) in pairs.items()
        if old and new and loaded_bytes(old) != loaded_bytes(new)
    }


class ArtifactRows:
    """The rows of two versions. `states` are the effective states of each side, by path."""

    def __init__(
        self, manifests: tuple[Manifest, Manifest], states: tuple[ArtifactStates, ArtifactStates]
    ) -> None:
        self._members = manifests[1].stages | manifests[0].stages
        self._heads = [manifest.heads for manifest in manifests]
        self._states = [{artifact.path: artifact.state for artifact in side} for side in states]

    def rows(self, pairs: ArtifactPairs, changes: Mapping[str, Sequence[int]]) -> Iterator[ArtifactRow]:
        """One row for each artifact, in the order of the pairs; heads of a family that are alike share one.

        Args:
            changes: positions of changes by the name of the artifact.
        """
        alike: dict[tuple[object, ...], list[ArtifactRow]] = {}
        for name, pair in pairs.items():
            row = self._row(name, pair, changes.get(name, ()))
            is_head = any(
                side is not None and side.path in heads for side, heads in zip(pair, self._heads, strict=True)
            )
            sides = [
                None if side is None else (side.format, side.precision, side.state)
                for side in (row.old, row.new)
            ]
            alike.setdefault((*sides, row.graph, row.weights) if is_head else (name,), []).append(row)
        yield from map(_together, alike.values())

    def _row(
        self, name: str, pair: tuple[Artifact | None, Artifact | None], changes: Sequence[int]
    ) -> ArtifactRow:
        old, new = pair
        sides = [
            None if artifact is None else self._side(artifact, states)
            for artifact, states in zip(pair, self._states, strict=True)
        ]
        artifact = new or old
        assert artifact is not None, "a pair has at least one artifact"
        graph, weights = shares(old, new) if old and new else (None, None)
        return ArtifactRow(
            name=name,
            member=self._members.get(artifact.path),
            old=sides[0],
            new=sides[1],
            graph=graph,
            weights=weights,
            reasons=_reasons(new, sides[1]),
            changes=tuple(changes),
        )

    def _side(self, artifact: Artifact, states: Mapping[str, str]) -> ArtifactSide:
        return ArtifactSide(
            path=artifact.path,
            format=artifact.format,
            precision=artifact.precision,
            size=artifact.own_size,
            state=states.get(artifact.path, artifact.certification.state),
        )


def _reasons(artifact: Artifact | None, side: ArtifactSide | None) -> tuple[str, ...]:
    """The reasons for which an artifact is not certified, if somebody measured."""
    if artifact is None or side is None or side.state == "certified":
        return ()
    reasons = artifact.certification.reasons
    return () if reasons == UNJUDGED or artifact.certification.state == "certified" else reasons


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

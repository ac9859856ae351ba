"""The state of an artifact as every verb and page names it. Light: no pydantic on this path."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.schema.core.digest import Digest

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Manifest

STATES = ("certified", "unknown", "refused")
"""From best to worst; a refused artifact is chosen only if nothing else of its version answers."""


def effective_state(stated: str, *verdicts: str | None) -> str:
    """The state that counts, of what the manifest states and of later verdicts on the same bytes: a refusal
    wins.

    A certificate after the fact lifts neither a refusal nor an unknown: a writer of the registry could
    attest it.
    """
    return "refused" if "refused" in verdicts else stated


class ArtifactState(NamedTuple):
    """An artifact's state with its reasons: the manifest, later evaluations, and refusals of the bytes in
    other versions.

    `attested` is the worst verdict of later evaluations of this version's artifact, if there are any.
    """

    path: str
    stated: str
    attested: str | None = None
    refused_elsewhere: bool = False

    @property
    def state(self) -> str:
        return effective_state(self.stated, self.attested, "refused" if self.refused_elsewhere else None)

    @property
    def remark(self) -> str:
        """The reason for which the manifest is not the last word on the artifact; empty if it is."""
        if self.state != self.stated:
            why = (
                "by a later evaluation"
                if self.attested == self.state
                else "with the bytes of another version"
            )
            return f"{self.state} {why}: {self.path} (its manifest says {self.stated})"
        if self.attested not in (None, "refused", self.stated):
            return f"{self.state} as its manifest says: {self.path} (a later evaluation says {self.attested})"
        return ""


ArtifactStates = tuple[ArtifactState, ...]
"""Those of all artifacts of a version, in the manifest's order."""
Verdict = tuple[str, Digest, str]
"""An artifact's path and digest, and the state that its manifest gives it."""


def artifact_states(
    verdicts: Iterable[Verdict], attested: Mapping[Digest, str], refused: Collection[Digest]
) -> ArtifactStates:
    """The states of a version's artifacts.

    Args:
        attested: what later evaluations say of them; see `VersionEntry`.
        refused: the artifacts that the model's log refuses in any version.
    """
    return tuple(
        ArtifactState(path, stated, verdict, digest in refused and verdict != "refused")
        for path, digest, stated in verdicts
        for verdict in (attested.get(digest),)
    )


def verdicts_of(manifest: "Manifest") -> list[Verdict]:
    return [(item.path, item.digest, item.certification.state) for item in manifest.artifacts]


def verdicts_of_json(manifest: Mapping[str, Any]) -> list[Verdict]:
    """The same of a manifest's document that was not validated again."""
    return [
        (item["path"], Digest.parse(item["digest"]), item["certification"]["state"])
        for item in manifest["artifacts"]
    ]

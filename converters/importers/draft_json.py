"""A draft as JSON: how it comes back from the process that read the files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onnxreg.schema.core.given_file import FileState
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict


@dataclass(frozen=True)
class Difference:
    """A field of the version 1 manifest (`artifacts.2.metadata.operators`), its claim, and what the files
    say.

    `actual` is None if nothing supports the claim; `claimed` is None if a fact was not claimed.
    """

    path: str
    claimed: Any
    actual: Any


ImportResult = tuple[Draft, list[Difference]]


def encode(draft: Draft, differences: list[Difference]) -> dict[str, Any]:
    """Without the workspace's place. The verdicts of files that were made elsewhere have no suite."""
    return {
        "name": draft.name,
        "artifacts": [_artifact(artifact) for artifact in draft.artifacts],
        "companions": [asdict(file) for file in draft.companions],
        "fields": dict(draft.fields),
        "seen": {path: state.to_json() for path, state in draft.file_states.items()},
        "document": None if draft.document is None else draft.document.decode(),
        "differences": [asdict(difference) for difference in differences],
    }


def _artifact(artifact: DraftArtifact) -> dict[str, Any]:
    verdict = {"state": artifact.verdict.state, "reasons": list(artifact.verdict.reasons)}
    return {
        "format": artifact.format,
        "precision": artifact.precision,
        "path": artifact.path,
        "sidecars": [asdict(file) for file in artifact.sidecars],
        "parent": artifact.parent,
        "verdict": verdict,
        "fields": dict(artifact.fields),
    }


def decode(value: Mapping[str, Any], workspace: Path) -> ImportResult:
    """The draft in its workspace, and the differences."""
    draft = Draft(
        value["name"],
        workspace,
        tuple(map(_read_artifact, value["artifacts"])),
        _files(value["companions"]),
        value["fields"],
        {path: FileState.from_json(state) for path, state in value["seen"].items()},
        None if value["document"] is None else value["document"].encode(),
    )
    return draft, [Difference(**item) for item in value["differences"]]


def _read_artifact(value: Mapping[str, Any]) -> DraftArtifact:
    verdict = Verdict(value["verdict"]["state"], reasons=tuple(value["verdict"]["reasons"]))
    return DraftArtifact(**{**value, "sidecars": _files(value["sidecars"]), "verdict": verdict})


def _files(values: list[Mapping[str, str]]) -> tuple[DraftFile, ...]:
    return tuple(DraftFile(**value) for value in values)

"""Drafts: files in a workspace and facts read from them, which a converter passes to a registry. No store digests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError
from onnxreg.schema.core.file_state import FileState
from onnxreg.schema.manifest import manifest as doc
from onnxreg.schema.manifest.vocabulary import FILENAME, UNJUDGED


@dataclass(frozen=True)
class DraftFile:
    """A file of the workspace, by its path relative to the workspace's root."""

    role: str
    path: str


@dataclass(frozen=True)
class Verdict:
    """A certification before its artifact has a digest. `report` is the path of the report in the workspace.

    `synthetic` is what the suite says of its texts; None if it does not say.
    """

    state: str
    rule: str | None = None
    reasons: tuple[str, ...] = ()
    suite: Digest | None = None
    report: str | None = None
    synthetic: bool | None = None


NOT_EVALUATED = Verdict("unknown", reasons=UNJUDGED)


@dataclass(frozen=True)
class DraftArtifact:
    """One runnable export in the workspace.

    `parent` is the path of the artifact it was derived from. `fields` are further keys of `manifest.Artifact` in
    their JSON form: metadata, opset_imports, ir_version, operators, quantization, checks, reproducible, ...
    """

    format: str
    precision: str
    path: str
    sidecars: tuple[DraftFile, ...] = ()
    parent: str | None = None
    verdict: Verdict = NOT_EVALUATED
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Draft:
    """A version that has no digests yet.

    `root` is the workspace; it contains every file named below. `fields` are the manifest-level keys in their JSON
    form (task, family, source, recipe, labels, ...); name, formats, artifacts and files are filled in from the rest.
    `file_states` are the states of files that stay where they are, of which the workspace has links, from before they were looked into.
    `document` is the manifest of a version that was written out before: it describes the files, and is kept as it is.
    """

    name: str
    root: Path
    artifacts: tuple[DraftArtifact, ...]
    companions: tuple[DraftFile, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    file_states: Mapping[str, FileState] = field(default_factory=dict)
    document: bytes | None = None

    def paths(self) -> list[str]:
        """Every file of the version, each once."""
        all_paths = [
            path for a in self.artifacts for path in (a.path, *(sidecar.path for sidecar in a.sidecars))
        ]
        return list(dict.fromkeys([*all_paths, *(companion.path for companion in self.companions)]))

    def manifest(self, measured: Mapping[str, Descriptor]) -> doc.Manifest:
        """The manifest of this draft, given the descriptor of every path.

        Raises InputError, naming the field, if the draft's facts do not make a valid manifest, and naming the
        path if a file that the draft speaks of was not measured; IntegrityError if one is not the file that
        `document` describes.
        """
        if self.document is not None:
            return _check_files(doc.Manifest.decode(self.document), measured)
        source = self.fields.get("source") or {}
        artifacts = [_artifact(artifact, measured, source.get("digest")) for artifact in self.artifacts]
        value = {
            **self.fields,
            "format": "openmed-onnx",
            "format_version": 2,
            "name": self.name,
            "formats": list(dict.fromkeys(artifact.format for artifact in self.artifacts)),
            "artifacts": artifacts,
            "files": [_entry(companion, measured) for companion in self.companions],
        }
        return doc.Manifest.from_json(value, f"manifest of {self.name}")


def _check_files(manifest: doc.Manifest, measured: Mapping[str, Descriptor]) -> doc.Manifest:
    for entry in manifest.all_files():
        descriptor = _measured(entry.path, measured)
        if (descriptor.digest, descriptor.size) != (entry.digest, entry.size):
            raise IntegrityError(
                f"{entry.path} is not the file that {FILENAME} describes: its digest is {descriptor.digest.short}...",
                Advice("pull-again"),
            )
    return manifest


def _measured(path: str, measured: Mapping[str, Descriptor]) -> Descriptor:
    try:
        return measured[path]
    except KeyError as error:
        raise InputError(f"the draft names {path!r}, which is not one of its files") from error


def _entry(file: DraftFile, measured: Mapping[str, Descriptor]) -> dict[str, Any]:
    descriptor = _measured(file.path, measured)
    return {"role": file.role, "path": file.path, **_bytes(descriptor)}


def _bytes(descriptor: Descriptor) -> dict[str, Any]:
    """Digest, size, and pieces if there are any."""
    value: dict[str, Any] = {"digest": str(descriptor.digest), "size": descriptor.size}
    if descriptor.pieces is not None:
        value["pieces"] = {
            "size": descriptor.pieces.size,
            "digests": list(map(str, descriptor.pieces.digests)),
        }
    return value


def _artifact(draft: DraftArtifact, measured: Mapping[str, Descriptor], parent: str | None) -> dict[str, Any]:
    descriptor = _measured(draft.path, measured)
    value: dict[str, Any] = {
        **draft.fields,
        "format": draft.format,
        "path": draft.path,
        "precision": draft.precision,
        **_bytes(descriptor),
        "files": [_entry(sidecar, measured) for sidecar in draft.sidecars],
        "certification": _certification(draft.verdict, descriptor.digest, measured, parent),
    }
    if draft.parent is not None:
        value["parent"] = str(_measured(draft.parent, measured).digest)
    return value


def _certification(
    verdict: Verdict, artifact: Digest, measured: Mapping[str, Descriptor], parent: str | None
) -> dict[str, Any]:
    value: dict[str, Any] = {"state": verdict.state, "reasons": list(verdict.reasons)}
    if verdict.rule is not None:
        value["rule"] = verdict.rule
    if verdict.suite is not None:
        value["evidence"] = {"artifact": str(artifact), "suite": str(verdict.suite)}
        if parent is not None:
            value["evidence"]["parent"] = parent
        if verdict.synthetic is not None:
            value["evidence"]["synthetic"] = verdict.synthetic
        if verdict.report is not None:
            value["evidence"]["report"] = str(_measured(verdict.report, measured).digest)
    return value

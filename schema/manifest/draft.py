"""Drafts: files in a workspace and facts read from them, which a converter passes to a registry. No store digests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
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
        return doc.Manifest.from_json(
            {
                **self.fields,
                "format": "openmed-onnx",
                "format_version": 2,
                "name": self.name,
                "formats": list(dict.fromkeys(artifact.format for artifact in self.artifacts)),
                "artifacts": [self._artifact(artifact, measured) for artifact in self.artifacts],
                "files": [_entry(companion, measured) for companion in self.companions],
            },
            f"manifest of {self.name}",
        )

    def _artifact(self, draft: DraftArtifact, measured: Mapping[str, Descriptor]) -> dict[str, Any]:
        verdict, own_digest = draft.verdict, _measured(draft.path, measured).digest
        certification: dict[str, Any] = {"state": verdict.state, "reasons": list(verdict.reasons)}
        if verdict.rule is not None:
            certification["rule"] = verdict.rule
        if verdict.suite is not None:
            evidence = {
                "artifact": str(own_digest),
                "suite": str(verdict.suite),
                "parent": (self.fields.get("source") or {}).get("digest"),
                "synthetic": verdict.synthetic,
                "report": verdict.report and str(_measured(verdict.report, measured).digest),
            }
            certification["evidence"] = {key: item for key, item in evidence.items() if item is not None}
        return {
            **draft.fields,
            "format": draft.format,
            "precision": draft.precision,
            **_stored(draft.path, measured),
            "files": [_entry(sidecar, measured) for sidecar in draft.sidecars],
            "certification": certification,
            **({"parent": str(_measured(draft.parent, measured).digest)} if draft.parent else {}),
        }


def _check_files(manifest: doc.Manifest, measured: Mapping[str, Descriptor]) -> doc.Manifest:
    for entry in manifest.all_files():
        descriptor = _measured(entry.path, measured)
        if (descriptor.digest, descriptor.size) != (entry.digest, entry.size):
            raise IntegrityError(
                f"{entry.path} is not the file that {FILENAME} describes: its digest is {descriptor.digest.short}...",
                "pull the version again; to make a version of your own of these files use reg add",
            )
    return manifest


def _measured(path: str, measured: Mapping[str, Descriptor]) -> Descriptor:
    if path not in measured:
        raise InputError(f"the draft names {path!r}, which is not one of its files")
    return measured[path]


def _entry(file: DraftFile, measured: Mapping[str, Descriptor]) -> dict[str, Any]:
    return {"role": file.role, **_stored(file.path, measured)}


def _stored(path: str, measured: Mapping[str, Descriptor]) -> dict[str, Any]:
    """The keys of `manifest.StoredFile`."""
    descriptor = _measured(path, measured)
    value: dict[str, Any] = {"path": path, "digest": str(descriptor.digest), "size": descriptor.size}
    if descriptor.pieces is not None:
        digests = list(map(str, descriptor.pieces.digests))
        value["pieces"] = {"size": descriptor.pieces.size, "digests": digests}
    return value

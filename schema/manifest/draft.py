"""A `Draft`: the files that a converter made, with facts about them. `Registry.add` makes a version from a draft."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.files import FileState
from onnxreg.schema.manifest import manifest as doc
from onnxreg.schema.manifest.vocabulary import FILENAME, FORMAT, UNJUDGED


@dataclass(frozen=True)
class DraftFile:
    """A file of a draft. `path` is relative to the `root` of the draft."""

    role: str
    path: str


@dataclass(frozen=True)
class Verdict:
    """The verdict on an artifact of a draft. The digest of the artifact is not known yet."""

    state: str
    rule: str | None = None
    reasons: tuple[str, ...] = ()
    suite: Digest | None = None
    report: str | None = None  # the path of the report
    synthetic: bool | None = None  # as in `manifest.Evidence`


NOT_EVALUATED = Verdict("unknown", reasons=UNJUDGED)


@dataclass(frozen=True)
class DraftArtifact:
    """An artifact of a draft. `fields` has further keys of `manifest.Artifact` as JSON, such as `metadata`."""

    format: str
    precision: str
    path: str
    sidecars: tuple[DraftFile, ...] = ()
    parent: str | None = None  # the path of the artifact from which this one was made
    verdict: Verdict = NOT_EVALUATED
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Draft:
    """A version whose files have no digests yet.

    `fields` has further keys of the manifest, such as `task` and `source`, as JSON. `file_states` has the state of each
    symbolic link's target before the target was read, to notice a later change. `document` may be an existing manifest
    of these files, which is used unchanged.
    """

    name: str
    root: Path  # the directory of all files
    artifacts: tuple[DraftArtifact, ...]
    companions: tuple[DraftFile, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    file_states: Mapping[str, FileState] = field(default_factory=dict)
    document: bytes | None = None
    warnings: tuple[str, ...] = ()  # for the user

    def paths(self) -> list[str]:
        """Return the paths of all files, each once."""
        paths = (path for a in self.artifacts for path in (a.path, *(item.path for item in a.sidecars)))
        return list(dict.fromkeys([*paths, *(item.path for item in self.companions)]))

    def manifest(self, measured: Mapping[str, Descriptor]) -> doc.Manifest:
        """Make the manifest. `measured` has the digest and size of the file at each path.

        Raise InputError if a file is missing in `measured` or the manifest is not valid. Raise IntegrityError if a file
        does not have the digest in `document`.
        """

        def descriptor(path: str) -> Descriptor:
            if path not in measured:
                raise InputError(f"the draft names {path!r}, which is not one of its files")
            return measured[path]

        def entry(file: DraftFile) -> dict[str, Any]:
            return {"role": file.role, "path": file.path, **descriptor(file.path).to_json()}

        if self.document is not None:
            manifest = doc.Manifest.decode(self.document)
            for file in manifest.all_files():
                actual = descriptor(file.path)
                if (actual.digest, actual.size) != (file.digest, file.size):
                    raise IntegrityError(
                        f"{file.path} is not the file that {FILENAME} describes: its digest is {actual.digest.short}...",
                        "pull the version again; to make a version of your own of these files use reg add",
                    )
            return manifest
        artifacts = []
        for draft in self.artifacts:
            verdict, own = draft.verdict, descriptor(draft.path)
            certification: dict[str, Any] = {"state": verdict.state, "reasons": list(verdict.reasons)}
            if verdict.rule is not None:
                certification["rule"] = verdict.rule
            if verdict.suite is not None:
                evidence = {
                    "artifact": str(own.digest),
                    "suite": str(verdict.suite),
                    "parent": (self.fields.get("source") or {}).get("digest"),
                    "synthetic": verdict.synthetic,
                    "report": verdict.report and str(descriptor(verdict.report).digest),
                }
                certification["evidence"] = {key: item for key, item in evidence.items() if item is not None}
            artifacts.append(
                {
                    **draft.fields,
                    "format": draft.format,
                    "precision": draft.precision,
                    "path": draft.path,
                    **own.to_json(),
                    "files": list(map(entry, draft.sidecars)),
                    "certification": certification,
                    **({"parent": str(descriptor(draft.parent).digest)} if draft.parent else {}),
                }
            )
        keys = {
            "format": FORMAT,
            "format_version": 2,
            "name": self.name,
            "formats": list(dict.fromkeys(artifact.format for artifact in self.artifacts)),
            "artifacts": artifacts,
            "files": list(map(entry, self.companions)),
        }
        return doc.Manifest.from_json({**self.fields, **keys}, f"manifest of {self.name}")

"""Reading one registry: names, states, and which bytes a ref or a query means. Light: no pydantic on this path."""

from dataclasses import dataclass
from typing import Any

from onnxreg.registry.blobs import read_blob
from onnxreg.registry.storage import Remote
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.query import Choice, Query, Rejection, choose
from onnxreg.schema.ref import Ref
from onnxreg.schema.state import Entry, State, read_entries
from onnxreg.schema.summary import ArtifactSummary, FileSummary, VersionSummary
from onnxreg.schema.version import Version


@dataclass(frozen=True, slots=True)
class Found:
    """What a ref means here: one version and its entry."""

    name: str
    version: Version
    entry: Entry

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version))


def read_state(remote: Remote, name: str) -> State:
    """A model's state. NotFoundError, with the nearest names, where the model is unknown."""
    index = remote.read_index(name)
    if index is None:
        raise NotFoundError(f"there is no model {name} in {remote.url}", _near(name, remote))
    first, _, rest = index.data.partition(b"\n")
    try:
        state = State.decode(first)
    except InputError as error:
        raise IntegrityError(f"the index of {name} in {remote.url} is damaged: {error.message}") from error
    last = rest.removesuffix(b"\n").rpartition(b"\n")[2]
    if (state.name, state.registry) != (name, remote.registry_id) or (last and Digest.of(last) != state.head):
        raise IntegrityError(
            f"the index of {name} in {remote.url} does not fit its own history",
            "run reg verify to see the extent",
        )
    return state


def _near(name: str, remote: Remote) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(remote.names()), n=3)
    return f"did you mean {' or '.join(near)}?" if near else "`reg ls` shows what is there"


def find(remote: Remote, ref: Ref) -> Found:
    """The version that a ref means. NotFoundError where there is none, or where it is yanked and not named by digest."""
    state = read_state(remote, ref.name)
    if ref.digest is not None:
        return _by_digest(remote, state, ref, ref.digest)
    if ref.tag is None:
        version = state.newest_release()
        if version is None:
            raise NotFoundError(
                f"{ref.name} has no version that is neither yanked nor a pre-release",
                f"see `reg ls {ref.name}`",
            )
    elif Version.is_version(ref.tag):
        version = Version.parse(ref.tag)
    elif ref.tag in state.channels:
        version = state.channels[ref.tag].version
    else:
        raise NotFoundError(f"{ref.name} has no channel {ref.tag}", f"see `reg ls {ref.name}`")
    entry = state.versions.get(version) or all_versions(remote, state).get(version)
    if entry is None:
        raise NotFoundError(f"{ref.name} has no version {version}", f"see `reg ls {ref.name}`")
    if entry.yanked:
        raise NotFoundError(
            f"{ref.name}:{version} is yanked",
            f"it can still be had by its digest: {ref.name}@{entry.manifest}",
        )
    return Found(ref.name, version, entry)


def _by_digest(remote: Remote, state: State, ref: Ref, digest: Digest) -> Found:
    entries = all_versions(remote, state)
    found = [version for version, entry in entries.items() if entry.manifest == digest]
    if not found:
        raise NotFoundError(f"{ref.name} has no version with the manifest {digest}")
    if ref.tag is None:
        version = max(found)
    elif Version.is_version(ref.tag):
        version = Version.parse(ref.tag)
    elif ref.tag in state.channels:
        version = state.channels[ref.tag].version
    else:
        raise NotFoundError(f"{ref.name} has no channel {ref.tag}")
    if version not in found:
        raise IntegrityError(
            f"{ref.name}:{ref.tag} is not {digest.short}...",
            "the tag and the digest name different manifests",
        )
    return Found(ref.name, version, entries[version])


def all_versions(remote: Remote, state: State) -> dict[Version, Entry]:
    """Every version of a model, the sealed ones too (one more read where there are any)."""
    if state.catalog is None:
        return dict(state.versions)
    import json

    try:
        sealed = read_entries(json.loads(read_blob(remote, state.catalog)))
    except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
        raise IntegrityError(f"the catalog of {state.name} is damaged: {error}") from error
    return {**sealed, **state.versions}


def read_summary(remote: Remote, found: Found) -> VersionSummary:
    """The summary of a version: from the index where it holds one, else from the manifest."""
    held = read_state(remote, found.name).summary(found.version)
    if held is not None and held.manifest == found.entry.manifest:
        return held
    from onnxreg.schema.manifest import Manifest
    from onnxreg.schema.summary import summarize

    data = read_blob(remote, found.entry.manifest)
    manifest = Manifest.decode(data, f"manifest of {found.ref}")
    return VersionSummary.read(summarize(manifest, found.entry.manifest, len(data)))


@dataclass(frozen=True, slots=True)
class Resolution:
    """The artifact that answers a query, with every file it needs, and why the others do not."""

    found: Found
    artifact: ArtifactSummary
    files: tuple[tuple[FileSummary, str], ...]
    rejected: tuple[Rejection, ...]

    def to_json(self) -> dict[str, Any]:
        """The documented shape of `reg resolve --json`."""
        artifact = self.artifact
        return {
            "name": self.found.name,
            "version": str(self.found.version),
            "manifest": str(self.found.entry.manifest),
            "artifact": {
                "format": artifact.format,
                "precision": artifact.precision,
                "path": artifact.path,
                "digest": str(artifact.digest),
                "size": artifact.size,
                "state": artifact.state,
            },
            "files": [
                {
                    "role": file.role,
                    "path": file.path,
                    "digest": str(file.digest),
                    "size": file.size,
                    "url": url,
                }
                for file, url in self.files
            ],
            "rejected": [
                {"artifact": rejection.artifact, "code": rejection.code, "detail": rejection.detail}
                for rejection in self.rejected
            ],
        }


def resolve(remote: Remote, ref: Ref, query: Query) -> Resolution:
    """Pick one artifact with its companions. NotFoundError, saying why each was rejected, where none answers."""
    found = find(remote, ref)
    summary = read_summary(remote, found)
    choice: Choice = choose(summary.artifacts, query)
    if choice.artifact is None:
        reasons = "; ".join(f"{rejection.artifact} {rejection.detail}" for rejection in choice.rejected)
        raise NotFoundError(f"no artifact of {found.ref} answers the query", reasons)
    artifact = choice.artifact
    main = FileSummary("artifact", artifact.path, artifact.digest, artifact.size)
    files = tuple((file, remote.blob_url(file.digest)) for file in (main, *artifact.files, *summary.files))
    return Resolution(found, artifact, files, choice.rejected)

"""Reading one registry: names, states, and which bytes a ref or a query means. Light: no pydantic on this path."""

from dataclasses import dataclass
from typing import Any

from onnxreg.registry.blobs import MAX_BLOB, read_blob, steady
from onnxreg.registry.storage import IndexFile, Remote
from onnxreg.schema import canonical
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
    return state_of(remote, name, remote.read_index(name))


def state_of(remote: Remote, name: str, index: IndexFile | None) -> State:
    """The state in an index file that was read; see `read_state`."""
    if index is None:
        raise unknown(name, remote)
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


def unknown(name: str, remote: Remote) -> NotFoundError:
    """The error for a model that is not there; the hint has the nearest names that are."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(remote.names()), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`reg ls` shows what is there"
    return NotFoundError(f"there is no model {name} in {remote.url}", hint)


def find(remote: Remote, ref: Ref, yanked: bool = False, gone: bool = False) -> Found:
    """The version that a ref means.

    NotFoundError where there is none; where it is yanked and not named by digest (`yanked` allows it); where its files
    expired or were taken down (`gone` allows it). IntegrityError where tag and digest name different manifests.
    """
    return find_with_state(remote, ref, yanked, gone)[0]


def find_with_state(
    remote: Remote, ref: Ref, yanked: bool = False, gone: bool = False
) -> tuple[Found, State]:
    """As `find`, and the state that it was found in."""

    def read(index: IndexFile | None) -> tuple[Found, State]:
        state = state_of(remote, ref.name, index)
        return find_in(remote, state, ref, yanked, gone), state

    return steady(remote, ref.name, read)


def find_in(remote: Remote, state: State, ref: Ref, yanked: bool = False, gone: bool = False) -> Found:
    """As `find`, in a state that was read before."""
    if ref.digest is not None and ref.tag is None:
        found = _by_digest(remote, state, ref.digest)
    else:
        found = _by_tag(remote, state, ref, yanked)
    if found.entry.gone is not None and not gone:
        raise NotFoundError(
            f"{found.ref} is {found.entry.gone.how}: its files are no longer here",
            f"`reg log {found.name}` there says why; what expired can be brought back from a copy: --restore",
        )
    return found


def _by_tag(remote: Remote, state: State, ref: Ref, yanked: bool) -> Found:
    version = _version_of(state, ref.tag)
    entry = state.versions.get(version) or all_versions(remote, state).get(version)
    if entry is None or entry.dropped:
        raise NotFoundError(f"{state.name} has no version {version}", f"see `reg ls {state.name}`")
    if ref.digest not in (None, entry.manifest):
        raise IntegrityError(
            f"{state.name}:{ref.tag} is {entry.manifest.short}..., not {ref.digest.short if ref.digest else ''}...",
            "the tag and the digest name different manifests",
        )
    if entry.yanked and not yanked and ref.digest is None:
        raise NotFoundError(
            f"{state.name}:{version} is yanked",
            f"it can still be had by its digest: {state.name}@{entry.manifest}",
        )
    return Found(state.name, version, entry)


def _version_of(state: State, tag: str | None) -> Version:
    if tag is None:
        version = state.newest_release()
        if version is None:
            raise NotFoundError(
                f"{state.name} has no version that is neither yanked nor a pre-release",
                f"see `reg ls {state.name}`",
            )
        return version
    if Version.is_version(tag):
        return Version.parse(tag)
    if tag not in state.channels:
        raise NotFoundError(f"{state.name} has no channel {tag}", f"see `reg ls {state.name}`")
    return state.channels[tag].version


def _by_digest(remote: Remote, state: State, digest: Digest) -> Found:
    """The version with this manifest; the newest of several, one that is not yanked before one that is."""
    entries = all_versions(remote, state)
    found = [version for version, entry in entries.items() if entry.manifest == digest]
    if not found:
        raise NotFoundError(f"{state.name} has no version with the manifest {digest}")

    def rank(version: Version) -> tuple[Any, ...]:
        entry = entries[version]
        return entry.usable, entry.gone is None, version.precedence

    version = max(found, key=rank)
    return Found(state.name, version, entries[version])


def read_versions(remote: Remote, name: str) -> tuple[State, dict[Version, Entry]]:
    """A model's state and every version of it. NotFoundError where the model is unknown."""

    def read(index: IndexFile | None) -> tuple[State, dict[Version, Entry]]:
        state = state_of(remote, name, index)
        return state, all_versions(remote, state)

    return steady(remote, name, read)


def all_versions(remote: Remote, state: State) -> dict[Version, Entry]:
    """Every version of a model, the sealed ones too (one more read where there are any)."""
    sealed = {} if state.catalog is None else read_catalog(read_blob(remote, state.catalog), state.name)
    entries = {**sealed, **state.versions}
    return {version: entry for version, entry in entries.items() if not entry.dropped}


def read_catalog(data: bytes, name: str) -> dict[Version, Entry]:
    """The sealed version table of a model. IntegrityError where it is malformed."""
    try:
        return read_entries(canonical.decode(data, "catalog", max_bytes=MAX_BLOB))
    except InputError as error:
        raise IntegrityError(f"the catalog of {name} is damaged: {error.message}") from error


def read_summary(remote: Remote, state: State, found: Found) -> VersionSummary:
    """The summary of a version: from the index where it holds one, else from the manifest."""
    held = held_summary(state, found.version)
    if held is not None and held.manifest == found.entry.manifest:
        return held
    from onnxreg.registry.manifests import read_manifest
    from onnxreg.schema.summary import summarize

    data = read_blob(remote, found.entry.manifest)
    manifest = read_manifest(data, found.entry.manifest, found.name)
    return VersionSummary.read(summarize(manifest, found.entry.manifest, len(data)))


def held_summary(state: State, version: Version) -> VersionSummary | None:
    """The summary that the index holds of a version, if any. IntegrityError where it is malformed."""
    try:
        return state.summary(version)
    except InputError as error:
        raise IntegrityError(f"the index of {state.name} has a damaged summary: {error.message}") from error


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

    def read(index: IndexFile | None) -> Resolution:
        return resolve_in(remote, state_of(remote, ref.name, index), ref, query)

    return steady(remote, ref.name, read)


def resolve_in(remote: Remote, state: State, ref: Ref, query: Query) -> Resolution:
    """As `resolve`, in a state that was read before."""
    found = find_in(remote, state, ref)
    summary = read_summary(remote, state, found)
    choice: Choice = choose(summary.artifacts, query)
    if choice.artifact is None:
        reasons = "; ".join(f"{rejection.artifact} {rejection.detail}" for rejection in choice.rejected)
        raise NotFoundError(f"no artifact of {found.ref} answers the query", reasons)
    artifact = choice.artifact
    main = FileSummary("artifact", artifact.path, artifact.digest, artifact.size)
    files = tuple((file, remote.blob_url(file.digest)) for file in (main, *artifact.files, *summary.files))
    return Resolution(found, artifact, files, choice.rejected)

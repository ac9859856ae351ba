"""Reading one registry: names, states, which bytes a ref or a query means, and small blobs whole.

Blobs (manifests, segments, catalogs, operator sets) are always checked: the bytes of a manifest, not its content. Light:
pydantic is imported only to validate a manifest.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from onnxreg.registry.store.layout import other_registry
from onnxreg.registry.store.protocol import (
    BlobReader,
    IndexFile,
    LocalStore,
    MissingBlobError,
    RegistryReader,
    UnlistedError,
)
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    Advice,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
    suggest,
)
from onnxreg.schema.core.ref import Ref, Version, check_name
from onnxreg.schema.log.state import (
    Channel,
    Rollout,
    State,
    VersionEntry,
    no_version,
    read_entries,
    version_of,
)
from onnxreg.schema.log.summary import VersionSummary, completed, summarize

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Manifest

EMPTY = Advice("fill-registry")
MAX_LISTED_MODELS = 5
"""The most models that a hint names."""

FINISH = Advice("finish-mirror")
PATTERN = frozenset("*?[")
"""The characters that make a name a pattern."""
Value = TypeVar("Value")

MAX_BLOB_BYTES = 64 * 2**20
"""No catalog, segment or manifest has more bytes."""


class LocatedVersion(NamedTuple):
    """The meaning of a ref: one version, its entry, and the channel that led to it, if any."""

    name: str
    version: Version
    entry: VersionEntry
    channel: Channel | None = None

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version))


class MismatchError(IntegrityError):
    """A ref whose tag and digest name different manifests."""


def read_state(remote: RegistryReader, name: str) -> State:
    """A model's state. NotFoundError, with the nearest names, if the model is unknown."""
    return state_of(remote, name, remote.read_index(name))


def state_of(remote: RegistryReader, name: str, index: IndexFile | None) -> State:
    """The state in an index file that was read; see `read_state`."""
    if index is None:
        raise unknown_model(name, remote)
    first, _, lines = index.data.partition(b"\n")
    try:
        state = _decode(first)
    except InputError as error:
        raise IntegrityError(f"the index of {name} in {remote.url} is damaged: {error.message}") from error
    if state.registry != remote.registry_id:
        raise other_registry(remote.url, state.registry, remote.registry_id)
    last = lines.removesuffix(b"\n").rpartition(b"\n")[2]
    if state.name != name or (last and Digest.of(last) != state.head):
        raise IntegrityError(
            f"the index of {name} in {remote.url} does not fit its own history",
            VERIFY_ADVICE,
        )
    return state


_decode = lru_cache(2)(State.decode)
"""A state line that is asked again is not parsed again, nor are its summaries."""


def unknown_model(name: str, remote: RegistryReader) -> NotFoundError:
    """The error for a model that is not there; the hint has the nearest names that are.

    A copy may just be unfinished.
    """
    is_copy = remote.is_mirror  # NotFoundError if the registry is gone
    if Version.is_version(name):
        return NotFoundError(
            f"there is no model {name} in {remote.url}", f"a version follows its model: NAME:{name}"
        )
    location = f"{remote.url}, {named_copy(remote)}" if is_copy else remote.url
    try:
        names = list(remote.names())
    except UnlistedError:
        hint: str | Advice = "check the name: that place does not list its models"
    else:
        hint = suggest(name, names, FINISH if is_copy else _few(names))
    return NotFoundError(f"there is no model {name} in {location}", hint)


def _few(names: Sequence[str]) -> str | Advice:
    more = f" and {len(names) - MAX_LISTED_MODELS} more" if len(names) > MAX_LISTED_MODELS else ""
    return f"it holds {', '.join(names[:MAX_LISTED_MODELS])}{more}" if names else EMPTY


def named_copy(copy: RegistryReader) -> str:
    """The words for a mirror, an archive or a tracking copy in an error about a missing model."""
    return f"a copy of registry {copy.registry_id[:12]}... that may be incomplete"


def matching(remote: RegistryReader, patterns: Collection[str]) -> list[str]:
    """The models that these names and patterns mean, sorted; in a pattern `*` also matches a `/`.

    NotFoundError, with the nearest names, if a pattern means none. A name may be that of no model.
    """
    exact = {check_name(pattern) for pattern in patterns if not PATTERN & set(pattern)}
    chosen = set(exact)
    all_names = list(remote.names()) if len(exact) < len(patterns) else []
    for pattern in set(patterns) - exact:
        names = {name for name in all_names if fnmatchcase(name, pattern)}
        if not names:
            plain = "".join(char for char in pattern if char not in PATTERN)
            raise NotFoundError(
                f"no model matches {pattern} in {remote.url}", suggest(plain, all_names, _few(all_names), 0.4)
            )
        chosen |= names
    return sorted(chosen)


def find(remote: RegistryReader, ref: Ref, yanked: bool = False, gone: bool = False) -> LocatedVersion:
    """The version that a ref means.

    Raise NotFoundError if there is none; if it is yanked and not named by digest (`yanked` allows it);
    if its files expired or were taken down (`gone` allows it). Raise MismatchError if tag and digest
    name different manifests.
    """
    return find_with_state(remote, ref, yanked, gone)[0]


def rollout_of(remote: RegistryReader, ref: Ref) -> Rollout | None:
    """The rollout of the channel that a ref names, if any. Without a tag nothing is read."""
    return None if ref.tag is None else read_state(remote, ref.name).rollouts.get(ref.tag)


def find_with_state(
    remote: RegistryReader, ref: Ref, yanked: bool = False, gone: bool = False
) -> tuple[LocatedVersion, State]:
    """Return the version that a ref means, and the state that has it; errors as of `find`."""

    def read(index: IndexFile | None) -> tuple[LocatedVersion, State]:
        state = state_of(remote, ref.name, index)
        return find_in(remote, state, ref, yanked, gone), state

    return read_consistently(remote, ref.name, read)


def find_in(
    remote: RegistryReader, state: State, ref: Ref, yanked: bool = False, gone: bool = False
) -> LocatedVersion:
    """Return the version that a ref means in a state that was read before; errors as of `find`."""
    if ref.digest is not None and ref.tag is None:
        target = _by_digest(remote, state, ref.digest)
    else:
        target = _by_tag(remote, state, ref, yanked)
    if target.entry.gone is not None and not gone:
        raise NotFoundError(
            f"{target.ref} is {target.entry.gone.how}: its files are no longer here",
            Advice("restore-expired", name=target.name),
        )
    return target


def _by_tag(remote: RegistryReader, state: State, ref: Ref, yanked: bool) -> LocatedVersion:
    version = _version_of(state, ref.tag)
    entry = state.versions.get(version) or all_versions(remote, state).get(version)
    if entry is None or entry.dropped:
        raise no_version(state.name, f"version {version} in {remote.url}", state.versions)
    if ref.digest not in (None, entry.manifest):
        raise MismatchError(
            f"{state.name}:{ref.tag} is {entry.manifest.short}..., not {ref.digest.short if ref.digest else ''}...",
            "the tag and the digest name different manifests",
        )
    if entry.yanked and not yanked and ref.digest is None:
        raise NotFoundError(
            f"{state.name}:{version} is yanked",
            f"its digest still gets it: {state.name}@{entry.manifest}",
        )
    return LocatedVersion(state.name, version, entry, state.channels.get(ref.tag or ""))


def _version_of(state: State, tag: str | None) -> Version:
    if tag is None:
        version = state.newest_release()
        if version is None:
            raise no_version(
                state.name, "usable release: each version is yanked or a pre-release", state.versions
            )
        return version
    return version_of(state, tag)


def _by_digest(remote: RegistryReader, state: State, digest: Digest) -> LocatedVersion:
    """The version with this manifest; the newest of several, one that is not yanked before one that is."""
    entries = all_versions(remote, state)
    versions = [version for version, entry in entries.items() if entry.manifest == digest]
    if not versions:
        raise no_version(state.name, f"version with the manifest {digest}", entries)

    def rank(version: Version) -> tuple[Any, ...]:
        entry = entries[version]
        return entry.usable, entry.gone is None, version.precedence

    version = max(versions, key=rank)
    return LocatedVersion(state.name, version, entries[version])


def read_versions(remote: RegistryReader, name: str) -> tuple[State, dict[Version, VersionEntry]]:
    """A model's state and every version of it. Raise NotFoundError if the model is unknown."""

    def read(index: IndexFile | None) -> tuple[State, dict[Version, VersionEntry]]:
        state = state_of(remote, name, index)
        return state, all_versions(remote, state)

    return read_consistently(remote, name, read)


def all_versions(remote: RegistryReader, state: State) -> dict[Version, VersionEntry]:
    """Every version of a model, the sealed ones too (one more read if there are any)."""
    sealed = {} if state.catalog is None else read_catalog(read_blob(remote, state.catalog), state.name)
    entries = {**sealed, **state.versions}
    return {version: entry for version, entry in entries.items() if not entry.dropped}


def read_catalog(data: bytes, name: str) -> dict[Version, VersionEntry]:
    """The sealed version table of a model. Raise IntegrityError if it is malformed."""
    try:
        return read_entries(canonical.decode(data, "catalog", max_bytes=MAX_BLOB_BYTES))
    except InputError as error:
        raise IntegrityError(f"the catalog of {name} is damaged: {error.message}") from error


def read_summary(
    remote: RegistryReader,
    state: State,
    target: LocatedVersion,
    fields: Collection[str] = (),
    member: str | None = None,
) -> VersionSummary:
    """The summary of a version, from the index if it has one, else from the manifest, with later refusals.

    Args:
        fields: the fields of an expression that must be known, even if only the manifest has them.
        member: with the artifacts of this member. The index names the stages of a pipeline, but only the
            manifest names the members of another family.
    """
    summary = held_summary(state, target.version)
    if summary is not None and summary.manifest != target.entry.manifest:
        summary = None
    of_family = member is not None and (summary is None or not summary.members)
    if summary is not None and not summary.lacks(fields) and not of_family:
        return summary.after(state.verdicts(target.entry))
    data = read_blob(remote, target.entry.manifest)
    manifest = read_manifest(data, target.entry.manifest, target.name)
    summary = VersionSummary.read(summarize(manifest, target.entry.manifest, len(data), member=member))
    summary = replace(summary, profile=None if manifest.recipe is None else manifest.recipe.profile)
    return summary.after(state.verdicts(target.entry))


def held_summary(state: State, version: Version) -> VersionSummary | None:
    """The summary that the index holds of a version, if any, with effective states.

    Raise IntegrityError if it is malformed.
    """
    try:
        return state.effective_summary(version)
    except InputError as error:
        raise IntegrityError(f"the index of {state.name} has a damaged summary: {error.message}") from error


def read_blob(source: BlobReader, digest: Digest, max_bytes: int = MAX_BLOB_BYTES) -> bytes:
    """Read a blob. NotFoundError if it is absent, IntegrityError if its digest differs."""
    with host_errors(f"reading blob {digest}"), source.open_blob(digest) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise IntegrityError(f"blob {digest} is larger than {max_bytes} bytes, which no document is")
    if Digest.of(data) != digest:
        raise IntegrityError(f"blob {digest} is damaged: its bytes have another digest", VERIFY_ADVICE)
    return data


def read_consistently(
    remote: RegistryReader,
    name: str,
    read: Callable[[IndexFile | None], Value],
    first: IndexFile | None = None,
) -> Value:
    """Read a model's index file and blobs that it names; start again if one is missing and the index has
    changed.

    A collector may free what a newer index file no longer refers to (a catalog that a sealing replaced, the
    manifest of a dropped version) while somebody still reads by the one before. `first` is an index file that
    was read already.
    """
    index = first or remote.read_index(name)
    while True:
        try:
            return read(index)
        except MissingBlobError:
            index, before = remote.read_index(name), index
            if index == before:
                raise


def fetcher(*sources: BlobReader) -> Callable[[Digest], bytes]:
    """Make a function that reads a blob from the first reader that has a good one, local ones first, and
    caches it."""
    sources = tuple(sorted(sources, key=lambda source: not isinstance(source, LocalStore)))
    cache: dict[Digest, bytes] = {}

    def fetch(digest: Digest) -> bytes:
        if digest not in cache:
            cache[digest] = _first(digest)
        return cache[digest]

    def _first(digest: Digest) -> bytes:
        failed: list[RegError] = []
        for source in sources:
            try:
                return read_blob(source, digest)
            except (IntegrityError, NotFoundError) as error:
                failed.append(error)
        raise next((error for error in failed if isinstance(error, IntegrityError)), failed[-1])

    return fetch


def sealed_lines(fetch: Callable[[Digest], bytes], segments: Sequence[Digest], number: int) -> list[bytes]:
    """Read one sealed part of a log: its lines."""
    return fetch(segments[number]).removesuffix(b"\n").split(b"\n")


def read_manifest(data: bytes, digest: Digest, name: str) -> "Manifest":
    """Decode the manifest of a model. IntegrityError if it is not a manifest, of another model, or of an unknown version."""
    from onnxreg.schema.manifest.manifest import Manifest
    from onnxreg.schema.manifest.manifest import read_manifest as read_any_manifest

    label = f"manifest {digest.short}... of {name}"
    try:
        manifest = read_any_manifest(data, label)
    except InputError as error:
        raise IntegrityError(error.message, error.advice) from error
    if not isinstance(manifest, Manifest) or manifest.name != name:
        actual_name = manifest.name if isinstance(manifest, Manifest) else "no model: it has format version 1"
        raise IntegrityError(
            f"{label} is the manifest of {actual_name}", "the registry was tampered with or damaged"
        )
    return manifest


def check_summary(summary: Any, data: bytes, digest: Digest, name: str) -> None:
    """Compare the summary in an index file with the manifest's bytes. IntegrityError if they differ.

    Keys of the summary that this build does not know are not compared, nor those that an older build did not write.
    """
    derived = summarize(read_manifest(data, digest, name), digest, len(data))
    try:
        is_same = completed(summary, derived) == derived
    except InputError:
        is_same = False
    if not is_same:
        raise IntegrityError(
            f"the index of {name} says other things of manifest {digest.short}... than the manifest itself",
            Advice("verify-index"),
        )

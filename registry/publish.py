"""Publish a draft on this machine: hash and store its files, then append an event to the model's log."""

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from onnxreg.registry.log.commit import Bring, commit
from onnxreg.registry.log.contents import Release
from onnxreg.registry.log.log import LocatedVersion, Log, consult, fetcher, read_blob
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import Push
from onnxreg.registry.store.streams import measure, piece_hasher
from onnxreg.registry.system import run_parallel, stamp
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.errors import ConflictError, InputError, NotFoundError
from onnxreg.schema.core.files import FileState
from onnxreg.schema.core.ref import Version, check_name
from onnxreg.schema.log.events import Hold, Publish
from onnxreg.schema.log.state import VersionEntry, operator_set
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

FIRST_VERSION = Version(0, 1, 0)


class Publisher(Struct, frozen=True):
    """Publishes drafts as `version`. The methods raise IntegrityError or ForkError if the log lost lines.

    Without `version`, a draft gets the next patch version. The first version is 0.1.0. If a version with files already
    has the same manifest, nothing is published, and the methods return this version.
    """

    store: DirectoryRegistry
    known_heads: KnownHeads
    actor: str | None = None
    version: Version | None = None
    reason: str | None = None

    def add(self, draft: Draft) -> Release:
        self.known_heads.check_own(self.store, check_name(draft.name))

        def put(path: str) -> Descriptor:
            file, recorded_state = draft.root / path, draft.file_states.get(path)
            hasher = piece_hasher(file.stat().st_size)
            digest, size = push.put_file(file, hasher)
            if recorded_state and FileState.of(os.stat(file)) != recorded_state:  # noqa: PTH116 -- links are followed
                hint = "run the command again when nobody writes to it"
                raise InputError(f"{path} changed while it was read", hint)
            return Descriptor(digest, size, hasher.pieces() if hasher else None)

        paths = draft.paths()
        with self.store.push() as push:
            manifest = draft.manifest(dict(zip(paths, run_parallel(put, paths), strict=True)))
            data = manifest.encode()
            canonical.check_size(data, f"the manifest of {draft.name}")
            return self._publish(push, manifest, data)

    def preview(self, draft: Draft) -> Release:
        """Return the release that `add` would make, but store nothing. Raises ConflictError if `add` would raise it."""
        manifest = draft.manifest(measure(draft.root, draft.paths()))
        log = Log("0" * 32, check_name(draft.name), fetcher())
        with suppress(NotFoundError):  # no registry yet
            log = consult(self.store, draft.name, Log.check, new=True)
        version, is_new, _ = self._append(log, manifest, manifest.encode())
        return _release(log, version, is_new)

    def add_again(self, digest: Digest) -> Release | None:
        """Publish a manifest that is stored already. Return None if the manifest or one of its files is missing."""
        try:
            return self.add_fetched(read_blob(self.store, digest))
        except NotFoundError:
            return None

    def add_fetched(
        self, data: bytes, fetch: Callable[[Push, Manifest, Collection[Digest]], None] | None = None
    ) -> Release:
        """Publish a manifest. `fetch` adds missing files to the push. Without `fetch`, missing files are an error."""
        manifest = Manifest.decode(data)
        self.known_heads.check_own(self.store, check_name(manifest.name))
        with self.store.push() as push:
            if fetch is None:
                return self._publish(push, manifest, data)
            bring = partial(fetch, push, manifest)
            files = {file.digest for file in manifest.all_files()}
            bring(files - push.has(files))
            return self._publish(push, manifest, data, bring)

    def _publish(self, push: Push, manifest: Manifest, data: bytes, bring: Bring | None = None) -> Release:
        name, version, is_new = manifest.name, FIRST_VERSION, False  # decided below, by the log

        def change(log: Log) -> Collection[Digest] | None:
            nonlocal version, is_new
            version, is_new, is_change = self._append(log, manifest, data)
            return {file.digest for file in manifest.all_files()} if is_change else None

        log = commit(self.store, push, name, change, bring=bring)
        self.known_heads.remember(self.store, name, log.index)
        return _release(log, version, is_new)

    def _append(self, log: Log, manifest: Manifest, data: bytes) -> tuple[Version, bool, bool]:
        """Append an event if needed. Return the version, True if it is new, and True if an event was appended."""
        for document in (data, *filter(None, map(operator_set, manifest.artifacts))):
            log.attach(document)
        digest, about = Digest.of(data), stamp(log.name, self.actor, self.reason)
        version, is_new = _choose_version(log, self.version, digest, manifest.task)
        is_partial = not is_new and log.versions[version].held is not None
        if is_new:
            log.append(Publish(**about, version=version, manifest=digest, size=len(data)))
        elif is_partial:
            log.append(Hold(**about, version=version, manifest=digest))
        return version, is_new, is_new or is_partial


def _release(log: Log, version: Version, is_new: bool) -> Release:
    latest = _newest(log.versions)
    release = Release.of(log, LocatedVersion(log.name, version, log.versions[version]))
    newer = None if latest == version else latest
    return replace(release, new=is_new, held=None, newer=newer)


def _choose_version(
    log: Log, requested: Version | None, digest: Digest, task: str | None
) -> tuple[Version, bool]:
    """Return the version for a manifest, and True if the version is new. Raises ConflictError if `requested` has this
    manifest but no files, or if the latest version with the same major number is for another task.
    """
    twins = {version: entry for version, entry in log.versions.items() if entry.manifest == digest}
    if requested in twins:
        if (gone := twins[requested].gone) is not None:
            hint = "publish under another version; a copy elsewhere brings an expired one back: reg pull --restore"
            raise ConflictError(f"{log.name}:{requested} is {gone.how}", hint)
        return requested, False
    existing = _newest({version: entry for version, entry in twins.items() if entry.gone is None})
    if requested is None and existing is not None:
        return existing, False
    newest = _newest(log.versions) or FIRST_VERSION
    major = newest.major if requested is None else requested.major
    latest = _newest({version: entry for version, entry in log.versions.items() if version.major == major})
    before = None if latest is None else log.summaries.get(latest)
    if before is not None and task and before.task not in (None, task):
        hint = f"give it another name, or a new major version: --version {newest.major + 1}.0.0"
        raise ConflictError(f"{log.name}:{latest} is a model for {before.task}, this one is for {task}", hint)
    return requested or (FIRST_VERSION if latest is None else latest.next_patch()), True


def _newest(entries: Mapping[Version, VersionEntry]) -> Version | None:
    """Return the version with the highest precedence. If several are equal, return the last published one."""
    return max(entries, key=lambda version: (version.precedence, entries[version].seq), default=None)

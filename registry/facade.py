"""`Registry`: everything but conversion, in Python."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from onnxreg.registry import copying, lookup, pushed
from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.blobs import read_blob
from onnxreg.registry.collect import PATIENCE, Collected, collect, survey
from onnxreg.registry.commit import commit, load
from onnxreg.registry.copying import Progress, Transferred, copy
from onnxreg.registry.decisions import Decisions
from onnxreg.registry.disk import MACHINE, host_errors
from onnxreg.registry.home import default_root
from onnxreg.registry.ledger import Ledger, mirror_error
from onnxreg.registry.manifests import read_manifest
from onnxreg.registry.materialize import check_target, materialize
from onnxreg.registry.references import refers_to
from onnxreg.registry.remotes import Remotes
from onnxreg.registry.repair import Repaired, gone_models, repair
from onnxreg.registry.retention import Policy
from onnxreg.registry.stamp import stamp
from onnxreg.registry.storage import IndexFile, Push, Remote
from onnxreg.registry.verify import Report, verify, verify_model
from onnxreg.schema import canonical
from onnxreg.schema.device import Device
from onnxreg.schema.diff import ManifestDiff, diff
from onnxreg.schema.digest import Descriptor, Digest
from onnxreg.schema.draft import Draft
from onnxreg.schema.errors import ConflictError, NotFoundError
from onnxreg.schema.events import Expire, LogLine, Publish
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.query import Query
from onnxreg.schema.ref import Ref, check_name
from onnxreg.schema.state import State
from onnxreg.schema.summary import operator_set
from onnxreg.schema.version import Version

FIRST = Version(0, 1, 0)


@dataclass(frozen=True)
class Published:
    """A version in the registry: its document, the document's exact bytes, and whether this call made it."""

    name: str
    version: Version
    digest: Digest
    manifest: Manifest
    data: bytes
    new: bool = False

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version))


@dataclass(frozen=True)
class Purged:
    """What a takedown did: versions, the blobs that may not come back, what was deleted at once, and which other
    versions keep files that they share with the one taken down."""

    versions: list[Ref]
    blobs: set[Digest]
    collected: Collected
    sharing: set[Ref]


class Registry:
    """A registry on this machine, and what moves between it and others.

    Args:
        root: its directory; default: `REG_HOME`, else the user's data directory.
        create: make an empty registry where there is none (else NotFoundError).
        actor: who signs for events, as claimed; default: `REG_ACTOR`, else nobody.
    """

    def __init__(self, root: Path | str | None = None, create: bool = True, actor: str | None = None) -> None:
        path = default_root() if root is None else Path(root)
        self.store = LocalRemote.create(path) if create else LocalRemote.open(path)
        self.actor = actor or os.environ.get("REG_ACTOR") or None
        self._decisions = Decisions(self.store, self.actor)

    @property
    def id(self) -> str:
        return self.store.registry_id

    @property
    def remotes(self) -> Remotes:
        return Remotes.load(self.store)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory for a converter on the registry's own disk; gone at the end, or after a kill swept."""
        if self.store.is_mirror:
            raise mirror_error(self.id)
        with host_errors(f"writing to {self.store.root}", MACHINE), self.store.staging() as directory:
            yield directory

    def add(self, draft: Draft, version: Version | str | None = None, reason: str | None = None) -> Published:
        """Publish a draft. The files of its workspace are given away.

        Without a version: the next patch after the newest, or 0.1.0; where the newest version already is this very
        manifest, nothing is published. ConflictError where the version exists with another manifest.
        """
        check_name(draft.name)
        asked = Version.parse(version) if isinstance(version, str) else version
        with self.store.push() as push:
            manifest = draft.manifest(_store_files(push, draft))
            data = manifest.encode()
            digest, _ = push.put(BytesIO(data))
            for artifact in manifest.artifacts:
                operators = operator_set(artifact)
                if operators is not None:
                    push.put(BytesIO(operators))
            made = self._publish(push, manifest, asked, digest, data, reason)
        return Published(draft.name, made[0], digest, manifest, data, made[1])

    def _publish(
        self,
        push: Push,
        manifest: Manifest,
        asked: Version | None,
        digest: Digest,
        data: bytes,
        reason: str | None,
    ) -> tuple[Version, bool]:
        name, size = manifest.name, len(data)
        version, new = asked or FIRST, False

        blobs = {digest, *refers_to(manifest)}

        def change(ledger: Ledger) -> Collection[Digest] | None:
            nonlocal version, new
            version, new = _choose_version(ledger, asked, digest)
            if new:
                about = stamp(name, self.actor, reason)
                ledger.append(Publish(**about, version=version, manifest=digest, size=size))
            return blobs if new else None

        commit(self.store, push, name, change, _Held({digest: data}))
        return version, new

    def tag(self, ref: Ref | str, tag: str, reason: str | None = None) -> lookup.Found:
        """Move a channel to a version; nothing happens where it is there. ConflictError where another move came first."""
        return self._decisions.tag(_ref(ref), tag, reason)

    def untag(self, name: str, tag: str, reason: str | None = None) -> Version:
        """Take a channel away; returns the version it held."""
        return self._decisions.untag(check_name(name), tag, reason)

    def yank(self, ref: Ref | str, reason: str | None = None, undo: bool = False) -> lookup.Found:
        """Stop a version from being resolved; its digest still gets it."""
        return self._decisions.yank(_ref(ref), reason, undo)

    def pin(self, ref: Ref | str, reason: str | None = None, undo: bool = False) -> lookup.Found:
        """No retention policy expires this version."""
        return self._decisions.pin(_ref(ref), reason, undo)

    def drop(self, ref: Ref | str, reason: str | None = None) -> lookup.Found:
        """Take back a version that was never pushed; its number is free again. `gc` frees its bytes."""
        return self._decisions.drop(_ref(ref), lambda found: pushed.was_pushed(self.store, found), reason)

    def gc(
        self, policy: Policy | None = None, dry_run: bool = False, patience: float = PATIENCE
    ) -> tuple[list[Ref], Collected]:
        """Expire the versions that a policy does not keep, then delete every blob that nothing refers to.

        Returns the versions that expired and what was deleted; with `dry_run` what would be.
        """
        if not dry_run:
            expired = self._decisions.expire(policy) if policy else []
            return expired, collect(self.store, patience=patience)
        would: list[Ref] = []

        def assume(ledger: Ledger) -> None:
            for event in self._decisions.expiry(policy or Policy())(ledger):
                ledger.append(event)
                would.extend([Ref(ledger.name, str(event.version))] if isinstance(event, Expire) else [])

        return would, survey(self.store, assume)

    def purge(
        self, ref: Ref | str, reason: str, paths: Collection[str] = (), everywhere: bool = False
    ) -> Purged:
        """Take a version down and delete its bytes now; see `Decisions.purge`."""
        taken, blobs, sharing = self._decisions.purge(_ref(ref), reason, paths, everywhere)
        return Purged([found.ref for found in taken], blobs, collect(self.store, only=blobs), sharing)

    def names(self) -> list[str]:
        return list(self.store.names())

    def state(self, name: str) -> State:
        return lookup.read_state(self.store, check_name(name))

    def find(self, ref: Ref | str, remote: Remote | None = None) -> lookup.Found:
        return lookup.find(remote or self.store, _ref(ref))

    def get(self, ref: Ref | str, remote: Remote | None = None) -> Published:
        """A version's manifest, verified; of one that expired too. NotFoundError, IntegrityError."""
        place = remote or self.store
        found = lookup.find(place, _ref(ref), gone=True)
        data = read_blob(place, found.entry.manifest)
        manifest = read_manifest(data, found.entry.manifest, found.name)
        return Published(found.name, found.version, found.entry.manifest, manifest, data)

    def resolve(
        self,
        ref: Ref | str,
        query: Query | None = None,
        remote: Remote | None = None,
        device: Device | None = None,
    ) -> lookup.Resolution:
        """Pick the artifact that answers a query and runs on a device. NoAnswerError with the reasons where none does."""
        return lookup.resolve(remote or self.store, _ref(ref), query or Query(), device)

    def diff(self, old: Ref | str, new: Ref | str) -> ManifestDiff:
        """What changed from one version to another."""
        return diff(self.get(old).manifest, self.get(new).manifest)

    def log(self, name: str) -> list[LogLine]:
        """The model's whole log, its chain verified."""
        ledger, index = load(self.store, check_name(name))
        if index is None:
            raise lookup.unknown(name, self.store)
        return list(ledger.lines())

    def verify(self, ref: Ref | str | None = None, progress: Progress | None = None) -> Report:
        """Read everything again (or one model, or one version of it) and name every damage."""
        if ref is None:
            return verify(self.store, progress)
        parsed = _ref(ref)
        if self.store.read_index(parsed.name) is None:
            raise lookup.unknown(parsed.name, self.store)
        exact = parsed.tag is not None or parsed.digest is not None
        found = lookup.find(self.store, parsed, yanked=True) if exact else None
        return verify_model(self.store, parsed.name, found.version if found else None, progress)

    def repair(
        self, ref: Ref | str | None = None, source: str | None = None, progress: Progress | None = None
    ) -> Repaired:
        """Verify, fetch good copies of what is damaged from a remote, and verify again; see `repair.repair`.

        Without `source`: the sole remote, or the one called origin; without any, what can be repaired from here alone.
        """
        known = self.remotes
        named = source is not None or "origin" in known.urls or len(known.urls) == 1
        place = known.open(source) if named else None
        if place is not None:
            self._not_self(place)

        def check() -> Report:
            report = self.verify(ref, progress)
            report.damages += gone_models(self.store, place) if ref is None else []
            return report

        def keep(name: str, index: IndexFile) -> str:
            path = f"local/damaged/{name}.{Digest.of(index.data).short}.jsonl"
            self.store.write_file(path, index.data)
            return path

        return repair(self.store, place, check, progress, keep)

    def push(
        self,
        ref: Ref | str,
        to: str | None = None,
        progress: Progress | None = None,
        restore: bool = False,
    ) -> Transferred:
        """Copy a version to a remote (a name, URL or path; made there if need be). A second push moves nothing.

        A yanked version that is named exactly travels too, with its yank. `restore` brings back one that expired there.
        """
        parsed = _ref(ref)
        found = lookup.find(self.store, parsed, yanked=Version.is_version(parsed.tag or ""))
        remote = self.remotes.open(to, create=True)
        self._not_self(remote)
        pushed.record(self.store, found, remote.registry_id)
        return self._copy(self.store, remote, found, progress, restore)

    def pull(
        self,
        ref: Ref | str,
        source: str | None = None,
        progress: Progress | None = None,
        restore: bool = False,
    ) -> Transferred:
        """Copy a version from a remote, every byte verified. `restore` brings back one that expired here."""
        remote = self.remotes.open(source)
        self._not_self(remote)
        done = self._copy(remote, self.store, self.find(ref, remote), progress, restore)
        self._track(remote, done.source)
        return done

    def _copy(
        self,
        source: Remote,
        destination: Remote,
        found: lookup.Found,
        progress: Progress | None,
        restore: bool,
    ) -> Transferred:
        bring_back = self._decisions.restore if restore else None
        return copy(source, destination, found.name, [found.version], progress, bring_back)

    def _not_self(self, remote: Remote) -> None:
        if isinstance(remote, LocalRemote) and remote.root.resolve() == self.store.root.resolve():
            raise ConflictError("that remote is this registry itself", "name another place")

    def _track(self, remote: Remote, ledger: Ledger) -> None:
        """Keep the source's state and whole log beside ours: the proof behind `via`, and an index for offline use."""
        state = canonical.encode(ledger.state().to_json())
        data = b"".join(line + b"\n" for line in (state, *(line.raw for line in ledger.skim())))
        self.store.write_file(f"local/tracking/{remote.registry_id}/{ledger.name}.jsonl", data)

    def write_out(self, ref: Ref | str, output: Path, progress: Progress | None = None) -> Published:
        """Write a version's files into a directory; an earlier export there is replaced as a whole."""
        check_target(output, self.store.root)
        published = self.get(ref)
        materialize(self.store, published.manifest, published.data, output, progress)
        return published


class _Held:
    """A few blobs in memory that no store has yet."""

    def __init__(self, blobs: dict[Digest, bytes]) -> None:
        self._blobs = blobs

    def has(self, digests: Any) -> set[Digest]:
        return {digest for digest in digests if digest in self._blobs}

    def open_blob(self, digest: Digest) -> BytesIO:
        if digest not in self._blobs:
            raise NotFoundError(f"blob {digest} is missing", "run reg verify to see what else is")
        return BytesIO(self._blobs[digest])


def _ref(ref: Ref | str) -> Ref:
    return Ref.parse(ref) if isinstance(ref, str) else ref


def _store_files(push: Push, draft: Draft) -> dict[str, Descriptor]:
    """Move the draft's files into the push, several at a time; the descriptor of each path."""
    import threading

    def store(path: str) -> Descriptor:
        digest, size = push.put_file(draft.root / path)
        return Descriptor("application/octet-stream", digest, size)

    paths = draft.paths()
    return dict(zip(paths, copying.run_parallel(store, paths, threading.Event()), strict=True))


def _choose_version(ledger: Ledger, asked: Version | None, digest: Digest) -> tuple[Version, bool]:
    """The version to publish, and whether it is not there yet."""
    if asked is not None:
        held = ledger.entries.get(asked)
        if held is not None and held.manifest == digest and held.gone is not None:
            raise ConflictError(
                f"{ledger.name}:{asked} is {held.gone.how}",
                "publish under another version; a copy elsewhere brings an expired one back: reg pull --restore",
            )
        return asked, held is None or held.manifest != digest
    if not ledger.entries:
        return FIRST, True
    newest = max(ledger.entries, key=lambda version: (version.precedence, ledger.entries[version].seq))
    same = ledger.entries[newest].manifest == digest and ledger.entries[newest].usable
    return (newest, False) if same else (newest.next_patch(), True)

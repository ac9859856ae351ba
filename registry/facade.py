"""`Registry`: everything but conversion, in Python."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from onnxreg.registry import copying, lookup
from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.blobs import read_blob
from onnxreg.registry.commit import commit, load
from onnxreg.registry.copying import Progress, Transferred, copy
from onnxreg.registry.disk import MACHINE, host_errors
from onnxreg.registry.home import default_root
from onnxreg.registry.ledger import Ledger
from onnxreg.registry.manifests import read_manifest
from onnxreg.registry.materialize import check_target, materialize
from onnxreg.registry.remotes import Remotes
from onnxreg.registry.storage import Push, Remote
from onnxreg.registry.verify import Report, verify
from onnxreg.schema import canonical
from onnxreg.schema.diff import ManifestDiff, diff
from onnxreg.schema.digest import Descriptor, Digest
from onnxreg.schema.draft import Draft
from onnxreg.schema.errors import ConflictError, InputError, NotFoundError
from onnxreg.schema.events import LogLine, Publish, Tag, Unyank, Yank, check_channel
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

    @property
    def id(self) -> str:
        return self.store.registry_id

    @property
    def remotes(self) -> Remotes:
        return Remotes.load(self.store)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory for a converter on the registry's own disk; gone at the end, or after a kill swept."""
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
            digest, size = push.put(BytesIO(data))
            for artifact in manifest.artifacts:
                operators = operator_set(artifact)
                if operators is not None:
                    push.put(BytesIO(operators))
            made = self._publish(push, draft.name, asked, digest, size, data, reason)
        return Published(draft.name, made[0], digest, manifest, data, made[1])

    def _publish(
        self,
        push: Push,
        name: str,
        asked: Version | None,
        digest: Digest,
        size: int,
        data: bytes,
        reason: str | None,
    ) -> tuple[Version, bool]:
        version, new = asked or FIRST, False

        def change(ledger: Ledger) -> bool:
            nonlocal version, new
            version, new = _choose_version(ledger, asked, digest)
            if new:
                ledger.append(
                    Publish(**self._event(name, reason), version=version, manifest=digest, size=size)
                )
            return new

        commit(self.store, push, name, change, _Held({digest: data}))
        return version, new

    def _event(self, name: str, reason: str | None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "name": name,
            "time": now,
            "nonce": secrets.token_hex(16),
            "actor": self.actor,
            "reason": reason,
        }

    def tag(self, ref: Ref | str, tag: str, reason: str | None = None) -> None:
        """Move a channel to a version; nothing happens where it is there. ConflictError where another move came first."""
        parsed = _ref(ref)
        state = self.state(parsed.name)
        found = lookup.find_in(self.store, state, parsed)
        held = state.channels.get(check_channel(tag))
        if held is not None and (held.version, held.manifest) == (found.version, found.entry.manifest):
            return
        about: dict[str, Any] = {"version": found.version, "manifest": found.entry.manifest}
        event = Tag(
            **self._event(found.name, reason), tag=tag, expects=held.manifest if held else None, **about
        )
        self._append(event)

    def yank(self, ref: Ref | str, reason: str | None = None, undo: bool = False) -> lookup.Found:
        """Stop a version from being resolved; its digest still gets it. `undo` takes back the yanks it has.

        InputError where the ref does not say which version: the newest is never yanked by accident.
        """
        parsed = _ref(ref)
        if parsed.tag is None and parsed.digest is None:
            raise InputError(f"{parsed} does not say which version", f"write {parsed.name}:VERSION")
        found = lookup.find(self.store, parsed, yanked=True)
        about: dict[str, Any] = {"version": found.version, "manifest": found.entry.manifest}
        if undo:
            yanks = sorted(found.entry.yanks)
            self._append(*(Unyank(**self._event(found.name, reason), **about, yank=yank) for yank in yanks))
        elif not found.entry.yanked:
            self._append(Yank(**self._event(found.name, reason), **about))
        return found

    def _append(self, *events: Tag | Yank | Unyank) -> None:
        def change(ledger: Ledger) -> bool:
            for event in events:
                ledger.append(event)
            return True

        if events:
            with self.store.push() as push:
                commit(self.store, push, events[0].name, change)

    def names(self) -> list[str]:
        return list(self.store.names())

    def state(self, name: str) -> State:
        return lookup.read_state(self.store, check_name(name))

    def find(self, ref: Ref | str, remote: Remote | None = None) -> lookup.Found:
        return lookup.find(remote or self.store, _ref(ref))

    def get(self, ref: Ref | str, remote: Remote | None = None) -> Published:
        """A version's manifest, verified. NotFoundError, IntegrityError."""
        place = remote or self.store
        found = self.find(ref, place)
        data = read_blob(place, found.entry.manifest)
        manifest = read_manifest(data, found.entry.manifest, found.name)
        return Published(found.name, found.version, found.entry.manifest, manifest, data)

    def resolve(
        self, ref: Ref | str, query: Query | None = None, remote: Remote | None = None
    ) -> lookup.Resolution:
        """Pick the artifact of a version that answers a query. NotFoundError with the reasons where none does."""
        return lookup.resolve(remote or self.store, _ref(ref), query or Query())

    def diff(self, old: Ref | str, new: Ref | str) -> ManifestDiff:
        """What changed from one version to another."""
        return diff(self.get(old).manifest, self.get(new).manifest)

    def log(self, name: str) -> list[LogLine]:
        """The model's whole log, its chain verified."""
        ledger, index = load(self.store, check_name(name))
        if index is None:
            raise NotFoundError(
                f"there is no model {name} in {self.store.url}", lookup.near(name, self.store)
            )
        return list(ledger.lines())

    def verify(self, ref: Ref | str | None = None, progress: Progress | None = None) -> Report:
        """Read everything again (or one model, or one version of it) and name every damage."""
        if ref is None:
            return verify(self.store, self.names(), progress=progress)
        parsed = _ref(ref)
        state = self.state(parsed.name)
        exact = parsed.tag is not None or parsed.digest is not None
        only = lookup.find_in(self.store, state, parsed, yanked=True).version if exact else None
        return verify(self.store, [parsed.name], only, progress)

    def push(self, ref: Ref | str, to: str | None = None, progress: Progress | None = None) -> Transferred:
        """Copy a version to a remote (a name, URL or path; made there if need be). A second push moves nothing.

        A yanked version that is named exactly travels too, with its yank.
        """
        parsed = _ref(ref)
        found = lookup.find(self.store, parsed, yanked=Version.is_version(parsed.tag or ""))
        remote = self.remotes.open(to, create=True)
        self._not_self(remote)
        return copy(self.store, remote, found.name, [found.version], progress)

    def pull(
        self, ref: Ref | str, source: str | None = None, progress: Progress | None = None
    ) -> Transferred:
        """Copy a version from a remote, every byte verified."""
        remote = self.remotes.open(source)
        self._not_self(remote)
        found = self.find(ref, remote)
        done = copy(remote, self.store, found.name, [found.version], progress)
        self._track(remote, done.source)
        return done

    def _not_self(self, remote: Remote) -> None:
        if isinstance(remote, LocalRemote) and remote.root.resolve() == self.store.root.resolve():
            raise ConflictError("that remote is this registry itself", "name another place")

    def _track(self, remote: Remote, ledger: Ledger) -> None:
        """Keep the source's state and whole log beside ours: the proof behind `via`, and an index for offline use."""
        state = canonical.encode(ledger.state().to_json())
        data = b"".join(line + b"\n" for line in (state, *(line.raw for line in ledger.lines())))
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
        return asked, held is None or held.manifest != digest
    if not ledger.entries:
        return FIRST, True
    newest = max(ledger.entries, key=lambda version: (version.precedence, ledger.entries[version].seq))
    same = ledger.entries[newest].manifest == digest and not ledger.entries[newest].yanked
    return (newest, False) if same else (newest.next_patch(), True)

"""Decisions about versions, such as `tag`, `yank` and `purge`, and records of deltas. Each one appends an event."""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from onnxreg.registry.log.commit import PUSH_WAIT_SECONDS, CollectResult, collect, commit, load_own, survey
from onnxreg.registry.log.contents import files, present_versions
from onnxreg.registry.log.log import LocatedVersion, Log, load, read_deltas, unknown_model
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import Push, RegistryReader, RegistryStore
from onnxreg.registry.system import stamp
from onnxreg.schema.core.bounds import MAX_DELTAS
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.errors import ConflictError, InputError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.delta.delta_format import Delta, encode_table
from onnxreg.schema.log import events
from onnxreg.schema.log.events import BENCHMARK, Deltas, Event, check_channel
from onnxreg.schema.log.state import Channel, newest_of

EventType = TypeVar("EventType", bound=Event)
MAX_BLOBS_PER_PURGE = 500
"""Maximum number of blobs in one purge event, because the length of a log line is limited."""


class DecisionResult(NamedTuple):
    target: LocatedVersion
    is_logged: bool  # an event was appended
    others: tuple[Version, ...] = ()  # versions that the decision affects too
    before: Version | None = None  # the version that the channel had
    channels: dict[str, Channel] = {}  # channels that hold affected versions; only `yank` sets them
    halted: tuple[str, ...] = ()  # channels whose rollout of an affected version `yank` ended


class Decisions(Struct, frozen=True):
    """Appends decisions of `actor` to the logs of one registry. After each decision, `remember` is called."""

    store: RegistryStore
    actor: str | None = None
    remember: Callable[..., None] = lambda *_: None
    reader: RegistryReader | None = None  # reads the logs before decisions; None: `store`

    def tag(self, ref: Ref, channel: str, reason: str | None = None) -> DecisionResult:
        """Move a channel to a version. Raise ConflictError if another move came first, or the version is yanked."""
        log = self._open(ref.name)
        target, current = log.find(ref), log.channels.get(check_channel(channel))
        log.check_unyanked(target.version)
        if current and (current.version, current.manifest) == (target.version, target.entry.manifest):
            return DecisionResult(target, False)
        before, expects = (current.version, current.manifest) if current else (None, None)
        event = self._about(events.Tag, target, reason, tag=channel, expects=expects)
        return DecisionResult(target, self._append(log, [event]), before=before)

    def untag(self, name: str, channel: str, reason: str | None = None) -> Version:
        """Remove a channel and return its version. Raise NotFoundError if the channel does not exist."""
        log = self._open(name)
        current = log.channel(channel)
        event = events.Untag(**stamp(name, self.actor, reason), tag=channel, expects=current.manifest)
        self._append(log, [event])
        return current.version

    def yank(self, ref: Ref, reason: str | None = None, undo: bool = False) -> DecisionResult:
        """Yank a version and all versions with the same manifest, so that only refs with a digest find them."""
        log, target = self._locate(ref)
        manifest, yanks = target.entry.manifest, target.entry.yanks
        record: list[Event] = [] if yanks else [self._about(events.Yank, target, reason)]
        if undo:
            record = [self._about(events.Unyank, target, reason, yank=yank) for yank in yanks]
        same = {version for version, other in present_versions(log) if other.manifest == manifest}
        others = tuple(sorted(same - {target.version}))
        channels = {name: item for name, item in log.channels.items() if item.version in same}
        halted = tuple(name for name, rollout in log.rollouts.items() if rollout.to in same)
        return DecisionResult(target, self._append(log, record), others, channels=channels, halted=halted)

    def pin(self, ref: Ref, reason: str | None = None, undo: bool = False) -> DecisionResult:
        """Pin a version, so that `expire` keeps its files. If `undo` is set, take the pin back."""
        log, target = self._locate(ref)
        event = self._about(events.Unpin if undo else events.Pin, target, reason)
        return DecisionResult(target, self._append(log, [event] if target.entry.pinned == undo else []))

    def drop(
        self, ref: Ref, has_left: Callable[[LocatedVersion], bool], reason: str | None = None
    ) -> DecisionResult:
        """Remove a version that never left this registry, so that its number can be used again.

        `has_left` is true for a version that was copied elsewhere. Raises ConflictError if the version was copied from
        or to another registry, was promoted, is in a channel, or is pinned, yanked or evaluated.
        """
        log, target = self._locate(ref)
        line, moves = next(log.lines(target.entry.seq - 1)), log.events(events.Tag)
        why = "is known to other registries or archives" if line.via or has_left(target) else ""
        if any(move.evidence and move.manifest == target.entry.manifest for _, move in moves):
            why = "was promoted, and later versions are compared with it"
        if why:
            raise ConflictError(f"{target.ref} {why}", "`reg yank` takes it out of use, with its number")
        return DecisionResult(target, self._append(log, [self._about(events.Drop, target, reason)]))

    def attest(
        self,
        ref: Ref,
        statement: bytes,
        media_type: str,
        reason: str | None = None,
        verdict: tuple[Digest, str] | None = None,
    ) -> DecisionResult:
        """Record a statement about a version as a blob and an event. A repeated call changes nothing.

        An evaluation needs a `verdict`: the artifact's digest, and the state that the evaluation gives the artifact. A
        benchmark gets a second event with speeds.
        """
        log, target = self._locate(ref)
        artifact, state = verdict or (None, None)
        manifest, digest = target.entry.manifest, Digest.of(statement)
        attest = events.Attest(
            **stamp(target.name, self.actor, reason),
            manifest=manifest,
            statement=digest,
            media_type=media_type,
            artifact=artifact,
            state=state,
        )
        record: list[Event] = [attest]
        if media_type == BENCHMARK:
            from onnxreg.schema.gates.statements import BenchmarkDocument

            if speeds := BenchmarkDocument.decode(statement, "the benchmark").speeds:
                about, blob = stamp(target.name, self.actor, reason), Descriptor(digest, len(statement))
                record.append(events.Timing(**about, manifest=manifest, blobs=(blob,), speeds=speeds))

        def decide(log: Log) -> list[Event]:
            log.attach(statement)
            keys = {("attest", item.manifest, item.statement) for _, item in log.statements()}
            timings = (item for _, item in log.events(events.Timing))
            keys |= {("timing", item.manifest, item.blobs[0].digest) for item in timings}
            return [event for event in record if (event.kind, manifest, digest) not in keys]

        return DecisionResult(target, bool(self._decide(log, decide)))

    def expiry(self, log: Log, keep: int) -> list[events.Expire]:
        """Return the events that expire a model's old versions, in order of publication.

        These versions stay: the `keep` newest releases, at most `keep` pre-releases that are newer than these releases,
        pinned versions, and the versions of channels and rollouts. Yanked versions among the newest stay too, and are
        not counted. Raises InputError if `keep` < 1.
        """
        if keep < 1:
            hint = "untag and drop or purge what must go"
            raise InputError("the number of versions to keep must be at least 1", hint)
        unyanked = {version: entry.replace(yanks=()) for version, entry in log.versions.items()}
        keeping = {*newest_of(log.versions, keep), *newest_of(unyanked, keep)}
        keeping |= {channel.version for channel in log.channels.values()}
        keeping |= {rollout.to for rollout in log.rollouts.values()}
        present = sorted(present_versions(log), key=lambda item: item[1].seq)
        old = [item for item in present if item[0] not in keeping and not item[1].pinned]
        targets = (LocatedVersion(log.name, *item) for item in old)
        return [self._about(events.Expire, target, f"--keep-versions {keep}") for target in targets]

    def expire(self, keep: int) -> list[Ref]:
        """Expire old versions of every model (see `expiry`), and return them."""
        decide = partial(self.expiry, keep=keep)
        record = [event for name in list(self.store.names()) for event in self._decide(name, decide)]
        return [Ref(event.name, str(event.version)) for event in record]

    def gc(
        self, keep: int | None = None, dry_run: bool = False, patience: float = PUSH_WAIT_SECONDS
    ) -> tuple[list[Ref], CollectResult]:
        """If `keep` is not None, expire old versions as `expire` does. Then delete the blobs that no log refers to.

        Return the expired versions and the deleted blobs. If `dry_run` is set, return the same, but change nothing. The
        caller must first check that no log lost lines, because the blobs of lost lines would be deleted.
        """
        store, expired = self.store, list[Ref]()
        if not dry_run:
            if isinstance(store, DirectoryRegistry):
                store.clear_partial()
            return [] if keep is None else self.expire(keep), collect(store, patience=patience)
        if keep is None:
            return [], survey(store)

        def assume(log: Log) -> None:
            log.mirrored = store.is_mirror
            for event in (record := self.expiry(log, keep)):
                log.append(event)
            if gone := [event.version for event in record]:
                withdraw_deltas(log, gone)
            expired.extend(Ref(log.name, str(version)) for version in gone)

        return expired, survey(store, assume)

    def purge(self, refs: Collection[Ref], reason: str) -> tuple[list[LocatedVersion], set[Digest], set[Ref]]:
        """Take versions down. Blobs that only these versions use can never come back.

        Return the versions in `refs`, the blobs taken down, and the other versions that share files with these
        versions. Shared files stay. Raise ConflictError if a version is purged already.
        """
        logs = {name: self._open(name) for name in sorted({ref.name for ref in refs})}
        targets: dict[Ref, LocatedVersion] = {}
        for target in (_find_exact(logs[ref.name], ref, gone=True) for ref in refs):
            if target.entry.gone is not None and target.entry.gone.how == "purged":
                raise ConflictError(f"{target.ref} is purged already", f"`reg log {target.name}` says why")
            targets[target.ref] = target
        outside: dict[Digest, set[Ref]] = {}
        for log in (load(self.store, name) for name in list(self.store.names())):
            for version, entry in present_versions(log):
                user = Ref(log.name, str(version))
                for file in files(log, version, entry) if user not in targets else ():
                    outside.setdefault(file.digest, set()).add(user)
        record: list[events.Purge] = []
        users: set[Ref] = set()
        for target in targets.values():
            log = logs[target.name]
            named = {file.digest for file in log.manifest(target.version).all_files()}
            users.update(*(outside[digest] for digest in named & outside.keys()))
            blobs = sorted(named - outside.keys() | delta_blobs(log, [target.version]))
            for start in range(0, max(len(blobs), 1), MAX_BLOBS_PER_PURGE):
                part = tuple(blobs[start : start + MAX_BLOBS_PER_PURGE])
                record.append(self._about(events.Purge, target, reason, blobs=part))
        for event in record:
            logs[event.name].append(event)  # raises before any log is changed
        for event in record:
            self._append(event.name, [event])
        return list(targets.values()), {digest for event in record for digest in event.blobs}, users

    def _open(self, name: str) -> Log:
        log = load_own(self.reader or self.store, name)
        if log.index is None:
            raise unknown_model(name, self.store)
        return log

    def _locate(self, ref: Ref) -> tuple[Log, LocatedVersion]:
        log = self._open(ref.name)
        return log, _find_exact(log, ref)

    def _about(
        self, kind: Callable[..., EventType], target: LocatedVersion, reason: str | None, **more: Any
    ) -> EventType:
        about = stamp(target.name, self.actor, reason)
        return kind(**about, version=target.version, manifest=target.entry.manifest, **more)

    def _append(self, log: Log | str, record: Collection[Event]) -> bool:
        return bool(self._decide(log, lambda _: record))

    def _decide(self, log: Log | str, decide: Callable[[Log], Collection[EventType]]) -> list[EventType]:
        """Append and return the events that `decide` returns. `log` is a log that was just read, or a model's name."""
        record: list[EventType] = []

        def change(log: Log) -> Collection[Digest] | None:
            record[:] = decide(log)
            for event in record:
                log.append(event)
            gone = [event.version for event in record if isinstance(event, events.GiveUp)]
            return withdraw_deltas(log, gone, self.actor) if gone else () if record else None

        name, first = (log, None) if isinstance(log, str) else (log.name, log)
        with self.store.push() as push:
            self.remember(self.store, name, commit(self.store, push, name, change, first=first).index)
        return record


def _find_exact(log: Log, ref: Ref, gone: bool = False) -> LocatedVersion:
    if ref.is_bare:
        raise InputError(f"{ref} does not say which version", f"write {ref.name}:VERSION")
    return log.find(ref, yanked=True, gone=gone)


def delta_bases(ledger: Log, version: Version, since: Collection[Version]) -> list[Version]:
    """Return the versions from which deltas to `version` are made: all in the collection `since` except `version`.

    If `since` is empty, return the previous release and the versions of channels. Raises NotFoundError if a version in
    `since` has no files here.
    """
    entries = ledger.versions
    for old in since:
        if old not in entries or entries[old].gone is not None:
            raise NotFoundError(f"{ledger.name} has no files of {old}", "name a version that `reg ls` shows")
    if since:
        return [old for old in since if old != version]
    earlier = [
        old
        for old, entry in entries.items()
        if entry.usable and not old.is_prerelease and entry.seq < entries[version].seq
    ]
    newest = sorted(earlier, key=lambda old: old.precedence)[-1:]
    holders = {channel.version for channel in ledger.channels.values() if entries[channel.version].usable}
    return sorted({*newest, *holders} - {version}, reverse=True)


def publish_deltas(
    store: RegistryStore,
    push: Push,
    name: str,
    version: Version,
    deltas: Collection[Delta],
    actor: str | None,
) -> list[Delta]:
    """Add deltas to a version. The caller has put their blobs into `push`.

    The version keeps only the `MAX_DELTAS` smallest of its old and new deltas. Return these, sorted by size.
    """
    table: list[Delta] = []

    def change(log: Log) -> Collection[Digest] | None:
        if version not in log.versions:
            raise NotFoundError(f"{name} has no version {version}")
        before = read_deltas(log.fetch, log.versions[version].deltas)
        unique = {(delta.new, delta.old): delta for delta in [*before, *deltas]}
        table[:] = sorted(unique.values(), key=lambda delta: (delta.size, delta.digest))[:MAX_DELTAS]
        return None if table == before else _offer(log, version, table, actor)

    commit(store, push, name, change)
    return table


def withdraw_deltas(log: Log, gone: Collection[Version], actor: str | None = None) -> list[Digest]:
    """Append events that withdraw the deltas which lead from or to a version in `gone`.

    Each event replaces the deltas of one version by the remaining ones. Return the digests of the remaining deltas.
    """
    blobs: list[Digest] = []
    for version, event in sorted(_current(log).items()):
        remaining = _remaining(log, event, gone)
        if not remaining or Digest.of(encode_table(remaining)) != event.table:
            blobs += _offer(log, version, remaining, actor)
    return blobs


def delta_blobs(log: Log, versions: Collection[Version]) -> set[Digest]:
    """Return the deltas and delta tables in a log from which somebody could rebuild files of these versions.

    If a table cannot be read, all blobs of the table's event are included. Deltas that other versions still use are
    left out.
    """
    blobs: set[Digest] = set()
    for _, event in log.events(Deltas):
        deltas = read_deltas(log.fetch, event.table)
        if event.table is not None and (event.version in versions or not deltas):
            blobs.update(blob.digest for blob in event.blobs)
        elif event.table is not None and any(delta.since in versions for delta in deltas):
            blobs |= {event.table, *(delta.digest for delta in deltas if delta.since in versions)}
    others = (delta for event in _current(log).values() for delta in _remaining(log, event, versions))
    return blobs - {delta.digest for delta in others}


def _current(log: Log) -> dict[Version, Deltas]:
    latest = {event.version: event for _, event in log.events(Deltas)}
    return {version: event for version, event in latest.items() if event.table is not None}


def _remaining(log: Log, event: Deltas, gone: Collection[Version]) -> list[Delta]:
    deltas = () if event.version in gone else read_deltas(log.fetch, event.table)
    return [delta for delta in deltas if delta.since not in gone]  # such a delta reveals the old file


def _offer(log: Log, version: Version, deltas: Iterable[Delta], actor: str | None) -> list[Digest]:
    """Append an event that replaces a version's deltas by `deltas`, and return the digests of `deltas`."""
    sizes = {delta.digest: delta.size for delta in deltas}
    data, named, earlier = encode_table(deltas), list(sizes), _current(log).get(version)
    table = log.attach(data) if named else None
    about = log.versions.get(version) or earlier
    assert about is not None
    sizes |= {} if table is None else {table: len(data)}
    event = Deltas(
        **stamp(log.name, actor),
        version=version,
        manifest=about.manifest,
        table=table,
        blobs=tuple(Descriptor(blob, sizes[blob]) for blob in sorted(sizes)),
        supersedes=() if earlier is None else (earlier.id,),
    )
    log.append(event)
    return named

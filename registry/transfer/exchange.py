"""An exchange copies versions of a model, with their events, to another registry, in one swap of the index file.

`merge` finds the missing lines and blobs. If both registries have the same id, one log must be a prefix of the other,
and lines are copied unchanged. If the ids differ, the events of the chosen versions become new lines of the
destination's log, each with its origin in `via`. If the destination's log changes meanwhile, the merge is repeated.

Blobs move first, several at a time, and are verified on the way. Then the index file is swapped. Thus no event is
visible at the destination before its blobs have arrived. A blob may arrive as a delta, the difference from a file that
the destination has (docs/delta.md). If a delta fails, the whole file is fetched.
"""

import importlib.util
import io
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from onnxreg.registry.log.commit import check_tombstones, commit, load_own
from onnxreg.registry.log.contents import (
    EVERYTHING,
    ArtifactPaths,
    Reference,
    Selection,
    check_held,
    documents,
    event_blobs,
    files,
    join,
    present_paths,
    set_pushed,
)
from onnxreg.registry.log.log import LocatedVersion, Log, load, read_deltas
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobReader, OpenAt, RegistryReader, RegistryStore, Sink, innermost
from onnxreg.registry.store.streams import BlockStream, metered
from onnxreg.registry.system import TIME_FORMAT, run_parallel, stamp
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    ForkError,
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
    RemoteError,
)
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.delta import delta_format
from onnxreg.schema.log.events import Attest, Hold, LogLine, Publish, Restore, Tag, Timing, Unyank, Via, Yank
from onnxreg.schema.log.state import Channel


class ExchangeRequest(Struct, frozen=True):
    """A request to copy versions and channels of a model to a destination."""

    name: str
    versions: Collection[Version]
    selection: Selection = EVERYTHING  # the artifacts to copy; the destination keeps its other artifacts
    channels: Collection[str] = ()  # to move at the destination to the versions that they have at the source
    restore: bool = False  # bring back versions that expired at the destination, with their files
    heal: bool = True  # also copy blobs that the destination lost, even if its log lacks no lines
    actor: str | None = None  # the claimed author of new events at the destination
    deltas: bool = False  # files may be sent as deltas


class Merge(Struct, frozen=True):
    """The changes that fulfil a request at the destination, as long as the destination's log ends at `head`."""

    request: ExchangeRequest
    source: Log
    head: Digest
    lines: list[LogLine]  # to add
    returning: list[Version]  # expired versions to bring back
    artifacts: Mapping[Version, ArtifactPaths]  # of each version at the destination afterwards
    moves: list[Tag]  # the events that move channels
    blobs: Mapping[Digest, Reference]  # all that are needed
    is_change: bool  # these changes add a line to the destination's log

    def apply(self, destination: Log) -> int:
        """Append the changes to `destination`, whose last line must be `head`. Return the number of new lines."""
        before, now = destination.seq, datetime.now(UTC).strftime(TIME_FORMAT)
        destination.fetched |= self.source.fetched
        is_copy = self.source.registry == destination.registry
        for line in self.lines:
            if is_copy:
                destination.append_line(line)
            else:
                destination.append(line.event, Via(self.source.registry, line.seq, line.digest, now))
        for version in self.returning:
            entry, about = destination.versions[version], stamp(destination.name, self.request.actor)
            if entry.gone is not None:
                back = Restore(**about, version=version, manifest=entry.manifest, expire=entry.gone.event)
                destination.append(back)
        _check_arrived(self.source, destination, self.request.versions)
        for event in (*hold_events(destination, self.artifacts, self.request.actor), *self.moves):
            destination.append(event)
        if is_copy and self.source.head == destination.head:
            self.source.check_keys()
        return destination.seq - before


def merge(
    request: ExchangeRequest,
    source: Log,
    destination: Log,
    channels_before: Mapping[str, Channel] | None = None,
) -> Merge:
    """Return the changes that fulfil a request.

    `channels_before` are the destination's channels when the request was made. `Merge.apply` fails if one of the
    request's channels has moved since.

    Raises the errors of `missing_lines`. Raises ConflictError if needed files were taken down at the destination,
    IntegrityError if documents of the source contradict each other, and InputError if too many artifacts are selected.
    """
    versions, is_copy = request.versions, source.registry == destination.registry
    lines = missing_lines(request, source, destination)
    selected = {} if is_copy else selected_paths(source, versions, request.selection)
    artifacts = paths_after(source, destination, selected)
    gone = {version for version, entry in destination.versions.items() if entry.gone is not None}
    returning = [] if not request.restore else [version for version in versions if version in gone]
    moves, before = [], destination.channels if channels_before is None else channels_before
    for tag in request.channels:
        channel, current = source.channel(tag), destination.channels.get(tag)
        if current is None or (current.version, current.manifest) != (channel.version, channel.manifest):
            expects = before[tag].manifest if tag in before else None
            about = stamp(source.name, request.actor)
            version, manifest = channel.version, channel.manifest
            moves.append(Tag(**about, version=version, manifest=manifest, tag=tag, expects=expects))
    is_behind = bool(lines or returning or [*hold_events(destination, artifacts, request.actor)])
    blobs: Mapping[Digest, Reference] = {}
    if is_behind or request.heal:
        for version in versions:  # apps rely on the summary
            source.check_summary(LocatedVersion(source.name, version, source.versions[version]))
        blobs = blobs_of(source, lines, versions, selected)
        check_tombstones(destination, blobs)
    if not lines:
        _check_arrived(source, destination, versions)
    is_change = is_behind or bool(moves)
    return Merge(request, source, destination.head, lines, returning, artifacts, moves, blobs, is_change)


def missing_lines(request: ExchangeRequest, source: Log, destination: Log) -> list[LogLine]:
    """Return the source's lines that the destination lacks.

    If both registries have the same id, these are the lines after the last common line. Raises ConflictError if
    artifacts are selected, and ForkError if the copies have different histories.

    If the ids differ, these are the publications of the requested versions, then in the source's order:

    * statements about the requested versions,
    * all refusals of artifacts, and other verdicts on versions that the destination has,
    * yanks of the requested versions, and of versions that the destination has.

    Raises the errors of `check_versions`.
    """
    if source.registry == destination.registry:
        _check_present(source, request.versions)
        if request.selection:
            raise ConflictError(
                "these are two copies of one registry, and a copy holds whatever the original holds",
                "leave --format and --precision away, or pull into a registry of its own",
            )
        common = min(source.seq, destination.seq)
        if source.digest_at(common) != destination.digest_at(common):
            raise ForkError(
                f"two copies of registry {source.registry} have different histories of {source.name}: "
                f"heads {source.head.short}... and {destination.head.short}...",
                "one of them was rewritten; nothing was changed",
            )
        return list(source.lines(common))
    destination.check_own()
    check_versions(request, source, destination)
    chosen = {version: source.versions[version].manifest for version in request.versions}
    manifests = {entry.manifest for entry in destination.versions.values()}
    events = [line.event for line in destination.lines()]
    present = {event.id for event in events}
    stated = {_statement_key(event) for event in events if isinstance(event, Timing)}
    stated |= {_statement_key(event) for _, event in destination.statements()}
    missing = []
    for line in source.lines():
        match line.event:
            case Publish(version=version, manifest=manifest):
                travels = chosen.get(version) == manifest and version not in destination.versions
            case Attest(manifest=manifest, state=state) as event:
                is_about = manifest in chosen.values() or (state is not None and manifest in manifests)
                is_about = is_about and source.is_on_record(line.seq, event)
                travels = (state == "refused" or is_about) and _statement_key(event) not in stated
            case Timing(manifest=manifest) as event:
                travels = manifest in chosen.values() and _statement_key(event) not in stated
                if travels:
                    from onnxreg.registry.trust.signatures import check_timing

                    check_timing(source, event)
            case Yank(manifest=manifest) | Unyank(manifest=manifest):
                travels = manifest in manifests or manifest in chosen.values()
            case _:
                travels = False
        if travels and (isinstance(line.event, Publish) or line.event.id not in present):
            missing.append(line)
    return sorted(missing, key=lambda line: isinstance(line.event, Attest | Timing | Yank | Unyank))


def _statement_key(event: Attest | Timing) -> tuple[object, ...]:
    """Return a key for the statement of an event. Events in two registries with the same statement have equal keys."""
    if isinstance(event, Timing):
        return event.manifest, event.blobs
    return event.manifest, event.statement, event.artifact, event.state


def check_versions(request: ExchangeRequest, source: Log, destination: Log) -> None:
    """Check that the requested versions can be copied between registries with different ids.

    Raises ConflictError if a version has another manifest at the destination, or if its files were removed there. An
    expired version is allowed if the request restores it. Raises NotFoundError if the source lacks a version or a
    requested artifact.
    """
    _check_present(source, request.versions)
    for version in request.versions:
        entry, present = source.versions[version], destination.versions.get(version)
        if present is not None and present.manifest != entry.manifest:
            raise ConflictError(
                f"{source.name}:{version} has manifest {entry.manifest.short}... where it comes from, "
                f"and {present.manifest.short}... where it would go",
                "a version never changes: publish one of them under another version",
            )
        gone = present.gone if present is not None else None
        if gone is not None and not (request.restore and gone.how == "expired"):
            way_back = "; --restore brings it back" if gone.how == "expired" else ""
            hint = f"`reg log` there says why{way_back}"
            raise ConflictError(f"{source.name}:{version} is {gone.how} there", hint)
        check_held(source, destination, version, request.selection)


def _check_present(source: Log, versions: Collection[Version]) -> None:
    for version in versions:
        entry = source.versions.get(version)
        if entry is None or entry.gone is not None:
            how = f"{source.name}:{version} is {entry.gone.how}" if entry and entry.gone else None
            raise NotFoundError(how or f"{source.name} has no version {version}")


def _check_arrived(source: Log, destination: Log, versions: Collection[Version]) -> None:
    """Raise IntegrityError if a copied version has another manifest, or equal logs have different versions."""
    if source.head == destination.head and source.versions != destination.versions:
        problem = f"two copies of one log of {source.name} say different things of its versions"
        raise IntegrityError(problem, "the state line of one of them is wrong: run `reg verify` in both")
    for version in versions if source.registry != destination.registry else ():
        arrived, published = destination.versions.get(version), source.versions.get(version)
        if arrived is None or published is None or arrived.manifest != published.manifest:
            problem = f"the log of {source.name} does not publish {version} as its state line says"
            raise IntegrityError(problem, "run `reg verify` in the registry that it comes from")


def blobs_of(
    source: Log,
    lines: Collection[LogLine],
    versions: Collection[Version],
    selected: Mapping[Version, ArtifactPaths],
) -> dict[Digest, Reference]:
    """Return the source's blobs that these lines and versions need. `selected` limits the artifacts of a version."""
    stored = {reference.digest: reference for reference in documents(source)}
    events = [line.event for line in lines]
    named = {blob.digest for event in events for blob in event_blobs(event)}
    published = {event.version for event in events if isinstance(event, Publish | Restore | Hold)}
    needed = {digest: stored[digest] for digest in sorted(named & stored.keys())}
    for digest, blob in needed.items():
        if blob.size is None:
            size, label = len(source.fetch(digest)), f"{source.name} statement"
            needed[digest] = blob._replace(size=size, label=label)
    for version in sorted(source.versions.keys() & published.union(versions)):
        entry = source.versions[version]
        if entry.manifest in stored:
            needed[entry.manifest] = stored[entry.manifest]
            if len(source.fetch(entry.manifest)) != entry.size:
                raise IntegrityError(f"{source.name}:{version} was published with another manifest size")
        if entry.gone is None:
            entry = entry.replace(held=selected.get(version, entry.held))
            needed |= {file.digest: file for file in files(source, version, entry)}
    return needed


def selected_paths(
    source: Log, versions: Iterable[Version], selection: Selection
) -> dict[Version, ArtifactPaths]:
    """Return the paths of the artifacts to move, by version. None means all artifacts: the selection is empty.

    Raises NotFoundError if a version has no artifact that matches the selection.
    """
    if not selection:
        return dict.fromkeys(versions)
    return {
        version: selection.of(source.manifest(version), f"{source.name}:{version}") for version in versions
    }


def paths_after(
    source: Log, destination: Log, selected: Mapping[Version, ArtifactPaths]
) -> dict[Version, ArtifactPaths]:
    """Return the paths of the artifacts that the destination will have after the transfer, by version.

    Raises InputError if the paths of a version's artifacts do not fit into one event.
    """
    after: dict[Version, ArtifactPaths] = dict.fromkeys(selected)
    for version, paths in selected.items():
        present = present_paths(destination, version)
        if paths is not None and present is not None:
            after[version] = join(source.manifest(version), paths, present)
            _hold(source, version, after[version], None).check_fits()
    return after


def hold_events(
    destination: Log, wanted: Mapping[Version, ArtifactPaths], actor: str | None
) -> Iterator[Hold]:
    """Yield an event for each version whose artifacts in the destination's log differ from `wanted`."""
    for version, paths in wanted.items():
        if version in destination.versions and destination.versions[version].held != paths:
            yield _hold(destination, version, paths, actor)


def _hold(log: Log, version: Version, paths: ArtifactPaths, actor: str | None) -> Hold:
    manifest = log.versions[version].manifest
    return Hold(**stamp(log.name, actor), version=version, manifest=manifest, paths=paths)


def plan_deltas(
    source: RegistryReader,
    ledger: Log,
    versions: Collection[Version],
    sizes: Mapping[Digest, int],
    destination: RegistryReader,
) -> tuple[dict[Digest, delta_format.Delta], str]:
    """Choose deltas that make files of these versions from files at the destination.

    `ledger` is the source's log. `sizes` has the size in bytes of each needed file. Return each chosen delta by the
    digest of the file that it makes. Also return the reason why existing deltas cannot be used, or "".
    """
    url = urlsplit(innermost(source).url)
    is_elsewhere = bool(sizes and url.scheme and url.netloc)
    tables = {ledger.versions[version].deltas for version in versions} if is_elsewhere else set()
    deltas = [delta for table in tables for delta in read_deltas(ledger.fetch, table)]
    if not deltas or importlib.util.find_spec("numpy") is None:
        return {}, "deltas need numpy, which is not installed (extra onnx)" if deltas else ""
    present = destination.has({old for delta in deltas for old in delta.old})
    return delta_format.choose_deltas(deltas, sizes, present), ""


def open_by_delta(
    new: Descriptor,
    delta: delta_format.Delta,
    open_delta: Callable[[], BinaryIO],
    find: Callable[[Digest], Path | None],
    start: int,
) -> BinaryIO:
    """Open a stream over the file `new` from byte `start` on. Raises IntegrityError if the delta fails."""

    def parts() -> Generator[memoryview]:
        with ExitStack() as stack:
            try:
                stream = stack.enter_context(open_delta())
                header = delta_format.DeltaHeader.read_from(stream)
                if (header.new, tuple(old.digest for old in header.old)) != (new, delta.old):
                    raise InputError("it is for other files than its table says")
                paths = [path for path in map(find, delta.old) if path is not None]
                if len(paths) < len(delta.old):
                    raise InputError("an old file is not here any more")
                old = [stack.enter_context(path.open("rb")) for path in paths]
                yield from apply_delta(stream, header, old, start)
            except (InputError, IntegrityError, NotFoundError, RemoteError, OSError) as error:
                raise IntegrityError(f"the delta did not fit: {error}") from error

    blocks = parts()
    return cast(BinaryIO, BlockStream(lambda: next(blocks, b""), blocks.close))


def apply_delta(
    delta: BinaryIO, header: delta_format.DeltaHeader, old: Sequence[BinaryIO], start: int = 0
) -> Iterator[memoryview]:
    """Yield the bytes of the file that a delta makes, from byte `start` on. The caller must check the digest.

    `delta` is a stream positioned after the header. `old` are the old files in the order of the header. Raise
    InputError if the delta is malformed, or an old file is shorter than the delta says.
    """
    from onnxreg.schema.delta import difference

    at = 0
    for span in delta_format.read_spans(delta, header):
        skip = min(span.length, max(0, start - at))
        at += span.length
        if skip == span.length:
            continue
        if span.op == delta_format.COPY:
            yield from _copy(old[span.source], span.offset + skip, span.length - skip)
        elif span.op == delta_format.LITERAL:
            yield memoryview(delta_format.inflate(span.payload, span.length, span.length))[skip:]
        else:
            before = b"".join(_copy(old[span.source], span.offset, span.length))
            yield memoryview(difference.restore(span, before))[skip:]


def _copy(file: BinaryIO, offset: int, length: int) -> Iterator[memoryview]:
    file.seek(offset)
    while length:
        data = file.read(min(length, delta_format.BLOCK_BYTES))
        if not data:
            raise InputError("an old file is shorter than the delta says")
        length -= len(data)
        yield memoryview(data)


class Arrival(Struct, frozen=True):
    """A file that `exchange` copied to the destination."""

    path: str
    digest: Digest
    size: int
    moved: int  # the number of bytes that were read for it
    since: Version | None = None  # the version with the old file, if a delta made this file
    doubt: str = ""  # why no delta was used


class BlobMover(Struct):
    """Moves blobs, several at a time, the largest first. A blob that arrives damaged is fetched once more."""

    source: BlobReader
    progress: Progress
    documents: Mapping[Digest, bytes] = {}  # blobs that were read already
    deltas: Mapping[Digest, delta_format.Delta] = {}  # by the digest of the file that a delta makes
    doubt: str = ""
    arrivals: list[Arrival] = []

    def move(self, push: Sink, moving: Mapping[Digest, Reference]) -> None:
        """Move blobs into a push. The first failure stops the other transfers."""
        files = sorted(moving.values(), key=lambda file: (-(file.size or 0), file.digest))
        self.progress.plan(len(files), sum(file.size or 0 for file in files))
        self.arrivals += run_parallel(lambda file: self._fetch(push, file), files)

    def _fetch(self, push: Sink, file: Reference) -> Arrival:
        digest, size, source = file.digest, file.size or 0, self.source
        moved = position = 0

        def receive(count: int) -> None:
            nonlocal moved
            moved += count

        def advance(count: int) -> None:
            nonlocal position
            position += count
            show(count)

        def read(blob: Digest, blob_size: int, start: int = 0) -> BinaryIO:
            document, action = self.documents.get(blob), f"reading blob {blob} from {source.url}"
            stream = source.open_blob(blob, start) if document is None else io.BytesIO(document[start:])
            return metered(stream, receive, action, blob_size - start)

        def store(open_at: OpenAt, path: Path | None = None) -> None:
            def opened(start: int) -> BinaryIO:
                advance(start - position)
                return metered(open_at(start), advance, f"reading blob {digest}", size - start)

            count = push.fetch(digest, size, opened, path)
            if count != size:
                raise IntegrityError(f"blob {digest} has {count} bytes, its manifest says {size}")

        with self.progress.file(file.path, file.size) as show:
            doubt = self.doubt
            if (made_by := self.deltas.get(digest)) is not None:

                def make(start: int) -> BinaryIO:
                    new, open_delta = Descriptor(digest, size), partial(read, made_by.digest, made_by.size)
                    return open_by_delta(new, made_by, open_delta, push.local_file, start)

                try:
                    store(make)
                    return Arrival(file.path, digest, size, moved, made_by.since)
                except IntegrityError as error:
                    doubt = f"{file.path} was fetched whole: {error.message}"
            path = source.blob_path(digest) if isinstance(source, DirectoryRegistry) else None
            try:
                store(partial(read, digest, size), path)
            except IntegrityError:
                store(partial(read, digest, size), path)
            return Arrival(file.path, digest, size, moved, None, doubt)


SMALL_TRANSFER_BYTES = 2**20
"""If blobs exceed this total size, they are moved before the commit. Otherwise the commit moves them."""


class SkippedVersion(Struct, frozen=True):
    """Something that was not copied: the version or channel `tag`, or the whole model if `tag` is None."""

    name: str
    tag: str | None
    reason: str
    error: RegError | None = None  # if it is set, a user must act

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "tag": self.tag, "reason": self.reason}


class TransferResult(Struct, frozen=True):
    """The outcome of an exchange for one model. `events`, `blobs` and `size` (bytes) count what was copied."""

    name: str
    versions: tuple[Version, ...] = ()  # that were requested
    new: int = 0  # how many of these versions were new at the destination
    events: int = 0
    blobs: int = 0
    size: int = 0
    log: Log | None = None  # the destination's log afterwards; None if it could not be read
    artifacts: Mapping[Version, ArtifactPaths] = {}  # at the destination afterwards
    channels: tuple[Tag, ...] = ()  # the moves of channels
    skipped: list[SkippedVersion] = []
    has_copied: bool = False  # False if no exchange was needed or possible
    arrivals: tuple[Arrival, ...] = ()
    yanks: Mapping[Version, Yank] = {}  # at the destination afterwards

    @property
    def is_current(self) -> bool:
        """True if the destination already had everything, and no error occurred."""
        failed = any(item.tag is None or item.error is not None for item in self.skipped)
        return not self.has_copied and bool(self.versions) and not failed

    def warnings(self, destination: str) -> Iterator[str]:
        """Yield a warning for each yank, and for each channel that moved back. `destination` is `here` or `there`."""
        for version, yank in self.yanks.items():
            why = yank.because if yank.version == version else f": {yank.words}"
            yield f"{yank.name}:{version} is yanked {destination}{why}"
        entries = self.log.versions.items() if self.log else ()
        for move in self.channels:
            holders = (version for version, entry in entries if entry.manifest == move.expects)
            former = max(holders, key=lambda version: version.precedence, default=move.version)
            if former.precedence > move.version.precedence:
                yield f"the channel {move.name}:{move.tag} went back {destination}, from {former} to {move.version}"


def exchange(
    source: RegistryReader,
    destination: RegistryStore,
    request: ExchangeRequest,
    progress: Progress = SILENT,
    *,
    log: Log | None = None,
    own: Log | None = None,
    plan: Merge | None = None,
    more: Collection[BlobReader] = (),
) -> TransferResult:
    """Copy the versions and channels of a request to the destination. A second run transfers nothing.

    `log` is the log of the source, `own` is the log of the destination (from `load_own`), and `plan` is the result of
    `merge`. Missing arguments are read or made. `more` are further readers for documents in the destination's log.
    Raises the errors of `merge` and of both registries. Raises GateError if a policy of the destination governs a
    channel that would move.
    """
    name = request.name
    source_log = log or load(source, name, destination)
    own = own or load_own(destination, name, source, *more)
    result_log, merged = own, plan or merge(request, source_log, own)
    before = {version for version, entry in result_log.versions.items() if entry.gone is None}
    channels_before = dict(result_log.channels)
    if merged.moves:
        from onnxreg.registry.gates import check_free

        policies = CheckedReader(destination, KnownHeads())  # a policy that was seen there may be gone
        for channel in merged.moves:
            check_free(policies, name, channel.tag, f" --remote {destination.url}")
    is_small = sum(file.size or 0 for file in merged.blobs.values()) <= SMALL_TRANSFER_BYTES
    is_local = isinstance(destination, DirectoryRegistry)
    moving: dict[Digest, Reference] = {}
    if merged.blobs and (is_local or not merged.is_change):  # before a change elsewhere, only the push asks
        present = destination.has(merged.blobs)
        moving = {digest: file for digest, file in merged.blobs.items() if digest not in present}
    mover, events = BlobMover(source, progress, source_log.fetched), 0
    if request.deltas and is_local:
        sizes = {digest: file.size or 0 for digest, file in moving.items()}
        mover.deltas, mover.doubt = plan_deltas(source, source_log, request.versions, sizes, destination)

    def change(log: Log) -> Collection[Digest]:
        nonlocal merged, events
        if log.head != merged.head:
            merged = merge(request, source_log, log, channels_before)
        events = merged.apply(log)
        return merged.blobs.keys()

    if merged.is_change or moving:
        with destination.push() as push:

            def bring(missing: Collection[Digest]) -> None:
                files = {digest: merged.blobs[digest] for digest in missing}
                moving.update(files)
                mover.move(push, files)

            if not is_small:
                bring(moving.keys() if is_local else merged.blobs.keys() - push.has(merged.blobs))
            progress.step(f"committing {name}")
            result_log = commit(destination, push, name, change, source, *more, bring=bring, first=own)
    else:
        destination.confirm(name)
    arrived = [version for version in request.versions if version in result_log.versions]
    return TransferResult(
        name,
        tuple(request.versions),
        new=len(set(request.versions) - before),
        events=events,
        blobs=len(moving),
        size=sum(file.size or 0 for file in moving.values()),
        log=result_log,
        artifacts={version: result_log.versions[version].held for version in arrived},
        channels=tuple(merged.moves),
        has_copied=True,
        arrivals=tuple(mover.arrivals),
        yanks=result_log.yanks_of(arrived),
    )


def exchange_possible(
    source: RegistryReader,
    destination: RegistryStore,
    name: str,
    choose: Callable[[Log], ExchangeRequest],
    progress: Progress,
    known_heads: KnownHeads,
) -> TransferResult:
    """Fulfil the request `choose(log)` as far as possible. `result.skipped` lists what was not copied, and why.

    The destination's log is first compared with its known head. A channel moves only if its version is copied, and not
    yanked. If the destination has all events already, files are copied only if `heal` is set.
    """
    result, store = TransferResult(name), innermost(source)
    with list_errors(name, result.skipped):
        log, own = load(source, name), load_own(CheckedReader(destination, known_heads), name, source)
        request = choose(log)
        versions = []
        for version in request.versions:
            entry, present = log.versions[version], own.versions.get(version)
            try:
                check_versions(replace(request, versions=[version]), log, own)
                if present is None and own.tombstones:
                    needed = [file.digest for file in files(log, version, entry)]
                    check_tombstones(own, [entry.manifest, *needed])
                versions.append(version)
            except (ConflictError, IntegrityError, NotFoundError) as error:
                is_decided = entry.gone is not None or entry.held is not None
                is_decided = is_decided or (present is not None and present.manifest == entry.manifest)
                cause = None if is_decided else error
                result.skipped.append(SkippedVersion(name, str(version), error.message, cause))
        channels = []
        lifted = {event.yank for _, event in log.events(Unyank)} if request.channels else set()
        for tag in request.channels:
            version, current = log.channels[tag].version, own.channels.get(tag)
            entries = [table[version] for table in (log.versions, own.versions) if version in table]
            is_there = current is not None and current.version == version
            if version in versions and (is_there or all(lifted.issuperset(item.yanks) for item in entries)):
                channels.append(tag)
                continue
            why = "is yanked" if version in versions else "does not travel"
            stuck = ConflictError(f"channel {tag} of {name} holds {version}, which {why}")
            result.skipped.append(SkippedVersion(name, tag, stuck.message, stuck))
        request = replace(request, versions=versions, channels=channels)
        result = replace(result, versions=tuple(versions), log=own)
        plan = merge(request, log, own)
        if request.heal or plan.is_change:
            set_pushed(store, log, versions)
            copied = exchange(store, destination, request, progress, log=log, own=own, plan=plan)
            result = replace(copied, skipped=result.skipped)
            known_heads.remember(destination, name, copied.log.index if copied.log else None)
    return result


@contextmanager
def list_errors(name: str, skipped: list[SkippedVersion]) -> Iterator[None]:
    """A context that appends an error about the model `name` to `skipped`, instead of raising it.

    Errors about a registry or about this machine are still raised.
    """
    try:
        yield
    except (HostError, RemoteError):
        raise
    except RegError as error:
        skipped.append(SkippedVersion(name, None, error.message, error))


def worst_error(skipped: Iterable[SkippedVersion]) -> RegError | None:
    """Return the worst error in the list (IntegrityError, then ConflictError, ...), or None if there is no error."""
    errors = [item.error for item in skipped]
    kinds = (IntegrityError, ConflictError, NotFoundError, RegError)
    return next((error for kind in kinds for error in errors if isinstance(error, kind)), None)

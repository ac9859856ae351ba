"""Repair the damages of `verify`: blobs from any registry that has them, logs from a copy of the same registry.

Readable lines of a damaged index file are salvaged, and joined with another copy of the same log. Nothing here invents
bytes or events: a blob must have its digest, a line must be in one of the two logs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO

from onnxreg.registry.log.collect import collect
from onnxreg.registry.log.commit import announced, load, read_condemned
from onnxreg.registry.log.ledger import Fetch, Ledger, read_segment, replay
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.maintain.verification import Damage, VerifyReport
from onnxreg.registry.store.layout import BlobKey, usable_key
from onnxreg.registry.store.protocol import BlobReader, IndexFile, Push, RegistryStore
from onnxreg.registry.store.streams import metered
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.log.logline import LogLine, genesis
from onnxreg.schema.log.state import State

LOGS = frozenset({"index", "log", "state"})
MIRROR = "only a copy of this very registry can restore it"
Keep = Callable[[str, IndexFile], str]
"""Saves the bytes of a model's damaged index file aside and returns the path."""


@dataclass
class RepairResult:
    """The repaired damages, and the report of `verify` afterwards; a damage has the reason if its repair
    failed.
    """

    report: VerifyReport
    repaired: list[Damage] = field(default_factory=list)


def repair(
    remote: RegistryStore,
    source: RegistryStore | None,
    check: Callable[[], VerifyReport],
    progress: Progress = SILENT,
    keep: Keep | None = None,
) -> RepairResult:
    """Run `check`, repair what it found, and check again, until nothing more can be repaired.

    A repair may reveal more damage: a restored manifest names files. Each repair is tried once. A blob that
    cannot be fetched does not stop the others.
    """
    work = _Repair(remote, source, progress, keep)
    report = check()
    while work.repair_all(report.damages):
        report = check()
    report.damages = [work.explain(damage) for damage in report.damages]
    return RepairResult(report, work.repaired)


def gone_models(remote: RegistryStore, source: RegistryStore | None) -> list[Damage]:
    """The models of a copy of this registry that are missing here: `verify` cannot know of them."""
    if source is None or source.registry_id != remote.registry_id:
        return []
    local_names = set(remote.names())
    return [
        Damage("index", name, f"the index of {name} is gone; {source.url} has one")
        for name in source.names()
        if name not in local_names
    ]


@dataclass(frozen=True)
class Salvage:
    """The readable lines of a damaged log, and the number and digest of its last line according to the state
    line.
    """

    registry: str
    name: str
    lines: dict[int, LogLine]
    end: tuple[int, Digest] | None

    @classmethod
    def read(cls, data: bytes, registry: str, name: str, fetch: Fetch) -> "Salvage":
        """Read the lines. A line is dropped if the next one, or the state line after the last, has another
        digest for it.
        """
        state_line, *log_lines = data.split(b"\n")
        state = _readable_state(state_line, registry, name)
        lines = [
            line
            for segment in (state.segments if state else ())
            for line in _readable_segment(segment, name, fetch)
        ]
        lines += [line for raw in log_lines if (line := _readable_line(raw)) is not None]
        by_number = {line.seq: line for line in lines if line.event.name == name}
        end = (state.seq, state.head) if state else None
        expected = dict([end]) if end else {}
        for seq in sorted(by_number, reverse=True):
            if expected.get(seq, by_number[seq].digest) == by_number[seq].digest:
                expected[seq - 1] = by_number[seq].prev
            else:
                del by_number[seq]
        return cls(registry, name, by_number, end)

    def join(self, copy: Sequence[LogLine] = ()) -> list[LogLine]:
        """The lines of the copy, then the own lines that follow.

        IntegrityError if two different lines follow the same one: one history was rewritten, not damaged.
        """
        prev = genesis(self.registry, self.name)
        for line in copy:
            own_line = self.lines.get(line.seq, line)
            if own_line.raw != line.raw and own_line.prev == prev:
                raise IntegrityError(
                    f"two copies of registry {self.registry} have different histories of {self.name}: "
                    f"line {line.seq} is {own_line.digest.short}... here and {line.digest.short}... there",
                    "one of them was rewritten; nothing was changed",
                )
            prev = line.digest
        joined = list(copy)
        while (follower := self.lines.get(len(joined) + 1)) is not None and follower.prev == prev:
            joined.append(follower)
            prev = follower.digest
        return joined

    def is_complete(self, lines: Sequence[LogLine]) -> bool:
        """True if the lines end as the state line says: nothing is lost."""
        return bool(lines) and self.end == (lines[-1].seq, lines[-1].digest)

    def lost(self, lines: Sequence[LogLine]) -> list[int]:
        """Numbers of the lines that this log had and `lines` lack; of a run at the end, the first and the
        last.
        """
        present = {line.seq: line.raw for line in lines}
        lost = {seq for seq, line in self.lines.items() if present.get(seq) != line.raw}
        if self.end is not None and self.end[0] > len(lines):
            lost |= {len(lines) + 1, self.end[0]}
        return sorted(lost)


@dataclass
class _Repair:
    remote: RegistryStore
    source: RegistryStore | None
    progress: Progress
    keep: Keep | None
    repaired: list[Damage] = field(default_factory=list)
    failed: dict[BlobKey | str, str] = field(default_factory=dict)
    tried: set[BlobKey | str] = field(default_factory=set)

    def repair_all(self, damages: Sequence[Damage]) -> bool:
        """Try everything that was not tried before; return True if anything was repaired."""
        before = len(self.repaired)
        by_key = {damage.key: damage for damage in damages if damage.key and damage.reference}
        for generation in sorted({key.generation for key in by_key}):
            self._blobs([by_key[key] for key in by_key if key.generation == generation])
        for name in sorted({damage.name for damage in damages if damage.kind in LOGS} - self.tried):
            self._log(name)
        blobs = [damage for damage in damages if damage.key and damage.kind != "unreadable"]
        self._delete_unreferenced([damage for damage in blobs if not damage.reference])
        return len(self.repaired) > before

    def explain(self, damage: Damage) -> Damage:
        reason = "a repair leaves it alone" if damage.kind == "stray" else None
        reason = self.failed.get(damage.key or damage.name, reason)
        return damage if reason is None else replace(damage, detail=f"{damage.detail}; {reason}")

    def _blobs(self, damages: Iterable[Damage]) -> None:
        """Fetch blobs of one generation, each to the key where it is damaged or missing."""
        by_key = {damage.key: damage for damage in damages if damage.key and damage.key not in self.tried}
        self.tried |= by_key.keys()
        if self.source is None or not by_key:
            self.failed |= dict.fromkeys(by_key, "no remote is named to fetch it from")
            return
        self.progress.plan(len(by_key), sum(_size(damage) or 0 for damage in by_key.values()))
        with self.remote.push() as push:
            push.avoid({BlobKey(key.digest, lower) for key in by_key for lower in range(key.generation)})
            push.distrust(by_key.keys())
            fetched = self._bring(self.source, push, by_key)
            push.flush()
        self.repaired += [
            replace(by_key[key], detail=f"blob {key.digest} was fetched from {self.source.url}")
            for key in fetched
        ]

    def _bring(self, source: RegistryStore, push: Push, by_key: Mapping[BlobKey, Damage]) -> list[BlobKey]:
        """Stream blobs, several at a time, verified; return the keys of those that arrived."""
        keys = sorted(by_key, key=lambda key: -(_size(by_key[key]) or 0))

        def bring(key: BlobKey) -> str:
            try:
                size = _size(by_key[key])
                file = self.progress.file(by_key[key].name, size)
                with file as advance, source.open_blob(key.digest) as stream:
                    action = f"reading blob {key.digest} from {source.url}"
                    push.put(metered(stream, advance, action, size), key.digest)
            except RegError as error:
                return error.message
            return ""

        reasons = dict(zip(keys, run_parallel(bring, keys), strict=True))
        self.failed |= {
            key: f"{source.url} has no good copy: {reason}" for key, reason in reasons.items() if reason
        }
        return [key for key, reason in reasons.items() if not reason]

    def _delete_unreferenced(self, damages: Sequence[Damage]) -> None:
        """Delete bad blobs that no log refers to, as the collector does: only if every log can be read."""
        if not damages:
            return
        try:
            freed = collect(self.remote, only={damage.key.digest for damage in damages if damage.key}).freed
        except RegError as error:
            reason = f"not deleted, since what refers to it is not known: {error.message}"
            self.failed |= {damage.key: reason for damage in damages if damage.key}
            return
        self.repaired += [
            replace(damage, detail=f"blob {damage.digest} was deleted: nothing refers to it")
            for damage in damages
            if damage.key in freed
        ]

    def _log(self, name: str) -> None:
        """Write a model's index file anew."""
        self.tried.add(name)
        try:
            detail = self._rewrite(name)
        except RegError as error:
            self.failed[name] = error.message
        else:
            self.repaired.append(Damage("log", name, detail))

    def _rewrite(self, name: str) -> str:
        """Rebuild from the local lines if they are complete, else with those of a copy; return a description."""
        index = self.remote.read_index(name)
        fetch = _first_of(self.remote, self.source)
        salvage = Salvage.read(index.data if index else b"", self.remote.registry_id, name, fetch)
        lines = salvage.join()
        if salvage.is_complete(lines):
            detail = "the index was rebuilt from the log"
        else:
            copy = self._copy_of(name)
            lines = salvage.join(copy)
            detail = f"{len(copy)} lines were taken from {self.source.url if self.source else ''}"
            detail += f", {len(lines) - len(copy)} were saved here" if len(lines) > len(copy) else ""
        if lost := salvage.lost(lines):
            numbers = f"{lost[0]} to {lost[-1]}" if len(lost) > 1 else str(lost[0])
            detail += f"; lines {numbers} could not be saved"
        if index is not None and self.keep is not None and not salvage.is_complete(lines):
            detail += f"; the damaged file is kept as {self.keep(name, index)}"
        ledger = replay(lines, self.remote.registry_id, name, fetch)
        with self.remote.push() as push:
            self._publish(push, ledger, index)
        return detail

    def _copy_of(self, name: str) -> list[LogLine]:
        """The lines of the source's copy of this log, which must be good. Its blobs follow in the next round."""
        if self.source is None or self.source.registry_id != self.remote.registry_id:
            raise IntegrityError(MIRROR)
        copy, index = load(self.source, name)
        if index is None:
            raise NotFoundError(f"{self.source.url} has no model {name}")
        lines = list(copy.lines())
        replay(lines, copy.registry, name, copy.fetch)
        return lines

    def _publish(self, push: Push, ledger: Ledger, index: IndexFile | None) -> None:
        """Publish the index, with the segments and the catalog that it names."""
        sealed = {Digest.of(blob): blob for blob in ledger.blobs}
        with announced(self.remote, push, ledger.name):
            condemned = read_condemned(self.remote)
            push.avoid(condemned)
            push.distrust(
                [usable_key(digest, condemned) for digest in sealed if not _is_good(self.remote, digest)]
            )
            for blob in sealed.values():
                push.put(BytesIO(blob))
            push.publish(ledger.name, ledger.encode(), index.token if index else None)


def _size(damage: Damage) -> int | None:
    return damage.reference.size if damage.reference else None


def _is_good(remote: BlobReader, digest: Digest) -> bool:
    try:
        return bool(read_blob(remote, digest))
    except RegError:
        return False


def _first_of(remote: RegistryStore, source: BlobReader | None) -> Fetch:
    """Read small blobs from `remote`, or from `source` if that copy is bad."""

    def fetch(digest: Digest) -> bytes:
        try:
            return read_blob(remote, digest)
        except RegError:
            if source is None:
                raise
        return read_blob(source, digest)

    return fetch


def _readable_state(raw: bytes, registry: str, name: str) -> State | None:
    with suppress(InputError):
        state = State.decode(raw)
        if (state.registry, state.name) == (registry, name):
            return state
    return None


def _readable_line(raw: bytes) -> LogLine | None:
    with suppress(InputError):
        return LogLine.decode(raw)
    return None


def _readable_segment(segment: Digest, name: str, fetch: Fetch) -> Sequence[LogLine]:
    with suppress(RegError):
        return read_segment(fetch(segment), name)
    return ()

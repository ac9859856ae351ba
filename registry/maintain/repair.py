"""Repair the damage that `verify` lists: blobs from any registry that has them, logs from a copy of the same registry.

A damaged index file is rebuilt from its readable lines and from a copy of the log. A repair never invents bytes or events:
a blob must have its digest, and a line must be in one of the two logs.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import NamedTuple

from onnxreg.registry.log.commit import announced, read_condemned
from onnxreg.registry.log.log import Fetch, Log, open_log, read_blob, read_segment
from onnxreg.registry.maintain.verification import Damage, VerifyReport, verify
from onnxreg.registry.remotes import Remotes, check_distinct
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobKey, RegistryStore, usable_key
from onnxreg.registry.store.streams import metered
from onnxreg.registry.system import run_parallel
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, RegError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.log.events import LogLine, genesis
from onnxreg.schema.log.state import State

LOGS = frozenset({"index", "log", "state"})


class RepairResult(NamedTuple):
    """The result of `repair`: a report on the remaining damage, with the reason why it remains, and the repaired damage."""

    report: VerifyReport
    repaired: list[Damage]


def repair(
    remote: RegistryStore,
    source: RegistryStore | None,
    known_heads: KnownHeads,
    ref: Ref | None = None,
    progress: Progress = SILENT,
    aside: DirectoryRegistry | None = None,
) -> RepairResult:
    """Verify a registry, or only `ref`, and repair the damage with copies from `source`, until no repair succeeds.

    A repair may reveal more damage: a restored manifest names files that may be missing. Each repair is tried once. Without
    `source`, only data of `remote` is used. `aside` is the registry that keeps damaged index files, in `local/damaged`.
    """
    if source is not None:
        check_distinct(source, remote)
    work = _Repair(remote, source, progress, aside)
    while True:
        report = verify(remote, known_heads, ref, progress)
        if ref is None and source is not None and source.registry_id == remote.registry_id:
            for name in sorted({*source.names()} - {*remote.names()}):  # `verify` cannot notice this
                detail = f"the index of {name} is gone; {source.url} has one"
                report.damages.append(Damage("index", name, detail))
        before = len(work.repaired)
        work.repair_all(report.damages)
        if len(work.repaired) == before:
            report.damages = [work.explain(damage) for damage in report.damages]
            return RepairResult(report, work.repaired)


def good_copies(remotes: Remotes, name: str | None) -> RegistryStore | None:
    """Open the remote from which copies are fetched: `name`, else `origin`, else the only remote. None if none exists."""
    has_default = "origin" in remotes.urls or len(remotes.urls) == 1
    return remotes.open(name) if name is not None or has_default else None


@dataclass
class _Repair:
    """The repairs of one run: the repaired damage, and the reasons of failed repairs. Each repair is tried once."""

    remote: RegistryStore
    source: RegistryStore | None
    progress: Progress
    aside: DirectoryRegistry | None
    repaired: list[Damage] = field(default_factory=list)
    failed: dict[BlobKey | str, str] = field(default_factory=dict)
    tried: set[BlobKey | str] = field(default_factory=set)

    def repair_all(self, damages: Sequence[Damage]) -> None:
        """Try each repair that was not tried before. If a blob has several damaged copies, one call repairs one copy."""
        needed = {
            item.key.digest: (item.key, item)
            for item in damages
            if item.key is not None and item.reference is not None and item.key not in self.tried
        }
        self._fetch(dict(needed.values()))
        for name in sorted({item.name for item in damages if item.kind in LOGS} - self.tried):
            self.tried.add(name)
            try:
                self.repaired.append(Damage("log", name, self._rewrite(name)))
            except RegError as error:
                self.failed[name] = error.message

    def explain(self, damage: Damage) -> Damage:
        """Return the damage with the reason why it was not repaired."""
        reason = "a repair leaves it alone" if damage.kind == "stray" else None
        if damage.key is not None and damage.reference is None:
            reason = "nothing readable refers to it: if all logs can be read, `reg gc` deletes it"
        reason = self.failed.get(damage.key or damage.name, reason)
        return damage if reason is None else damage._replace(detail=f"{damage.detail}; {reason}")

    def _fetch(self, damages: dict[BlobKey, Damage]) -> None:
        """Fetch blobs, several at a time. Store each blob under the key where it was damaged or missing."""
        source = self.source
        self.tried |= damages.keys()
        if source is None:
            self.failed |= dict.fromkeys(damages, "no remote is named to fetch it from")
            return
        sizes = {key: item.reference.size if item.reference else None for key, item in damages.items()}
        keys = sorted(damages, key=lambda key: -(sizes[key] or 0))
        self.progress.plan(len(keys), sum(size or 0 for size in sizes.values()))

        def bring(key: BlobKey) -> None:
            try:
                file = self.progress.file(damages[key].name, sizes[key])
                with file as advance, source.open_blob(key.digest) as stream:
                    action = f"reading blob {key.digest} from {source.url}"
                    push.put(metered(stream, advance, action, sizes[key]), key.digest)
            except RegError as error:
                self.failed[key] = f"{source.url} has no good copy: {error.message}"

        with self.remote.push() as push:
            push.avoid({BlobKey(key.digest, lower) for key in keys for lower in range(key.generation)})
            push.distrust(keys)
            run_parallel(bring, keys)
            push.flush()
        for key in keys:
            if key not in self.failed:
                detail = f"blob {key.digest} was fetched from {source.url}"
                self.repaired.append(damages[key]._replace(detail=detail))

    def _rewrite(self, name: str) -> str:
        """Rebuild an index file from its lines and, if lines are missing, from a copy of the log. Return what was done."""
        remote, source, index = self.remote, self.source, self.remote.read_index(name)

        def fetch(digest: Digest) -> bytes:
            with suppress(RegError):  # a blob that is damaged, missing or unreadable
                return read_blob(remote, digest)
            return read_blob(source or remote, digest)

        own, end = salvage(index.data if index else b"", remote.registry_id, name, fetch)
        lines = joined(remote.registry_id, name, own)
        is_complete = bool(lines) and end == (lines[-1].seq, lines[-1].digest)
        detail = "the index was rebuilt from the log"
        if not is_complete:
            if source is None or source.registry_id != remote.registry_id:
                raise IntegrityError("only a copy of this very registry can restore it")
            copy = list(open_log(source, name).lines())
            lines = joined(remote.registry_id, name, own, copy)
            detail = f"{len(copy)} lines were taken from {source.url}"
            detail += f", {len(lines) - len(copy)} were saved here" if len(lines) > len(copy) else ""
        first, last = len(lines) + 1, max(line.seq for line in (*own, *lines))
        last = max(last, end[0]) if end else last
        if last >= first:
            detail += f"; lines {first} to {last} could not be saved"
        if index is not None and self.aside is not None and not is_complete:
            prefix = "" if self.aside is remote else f"{remote.registry_id}/"
            path = f"local/damaged/{prefix}{name}.{Digest.of(index.data).short}.jsonl"
            self.aside.write_file(path, index.data)
            detail += f"; the damaged file is kept as {path}"
        log = Log.replay(lines, remote.registry_id, name, fetch)
        with remote.push() as push, announced(remote, push, name):
            condemned = read_condemned(remote)
            push.avoid(condemned)
            for blob in log.blobs:
                try:
                    read_blob(remote, digest := Digest.of(blob))
                except RegError:
                    push.distrust([usable_key(digest, condemned)])
                push.put(BytesIO(blob))
            push.publish(name, log.encode(), index.token if index else None)
        return detail


def salvage(
    data: bytes, registry: str, name: str, fetch: Fetch
) -> tuple[list[LogLine], tuple[int, Digest] | None]:
    """Return an index file's lines that no later line contradicts, and the last line's number and digest in the state."""
    first, *raws = data.split(b"\n")
    lines: list[LogLine] = []
    end = None
    with suppress(InputError):
        state = State.decode(first)
        if (state.registry, state.name) == (registry, name):
            end = state.seq, state.head
            for segment in state.segments:
                with suppress(RegError):
                    lines += read_segment(fetch(segment), name)
    for raw in raws:
        with suppress(InputError):
            lines.append(LogLine.decode(raw))
    expected, intact = dict([end]) if end else {}, list[LogLine]()
    for line in reversed(lines):
        if line.event.name == name and expected.get(line.seq, line.digest) == line.digest:
            expected[line.seq - 1] = line.prev
            intact.append(line)
    return intact[::-1], end


def joined(registry: str, name: str, own: Sequence[LogLine], copy: Sequence[LogLine] = ()) -> list[LogLine]:
    """Join the lines of two copies of a log to one chain, up to the first missing line. IntegrityError if they disagree."""
    following = {line.prev: line for line in copy}
    for line in own:
        other = following.setdefault(line.prev, line)
        if other.raw != line.raw:
            raise IntegrityError(
                f"two copies of registry {registry} have different histories of {name}: "
                f"line {line.seq} is {line.digest.short}... here and {other.digest.short}... there",
                "one of them was rewritten; nothing was changed",
            )
    lines, prev = list[LogLine](), genesis(registry, name)
    while prev in following:
        lines.append(following[prev])
        prev = lines[-1].digest
    return lines

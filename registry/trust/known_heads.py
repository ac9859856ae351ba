"""Notice that a log was rolled back or rewritten since the user last read it. Read and extend the user's trust file.

A log only grows, so it must begin with the lines that the user accepted before. A copy that lags behind must end with
one of these lines. `KnownHeads` keeps the head (last line) of the last accepted copy of each log in `heads/<registry
id>/<name>.json` of the user's state directory. The head of a rejected copy is never saved.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from onnxreg.registry import system
from onnxreg.registry.log.log import Fetch, Log, StateError, fetcher
from onnxreg.registry.store.protocol import (
    BlobReader,
    MissingBlobError,
    ReaderWrapper,
    RegistryReader,
    StoredObject,
    index_path,
    innermost,
)
from onnxreg.registry.system import host_errors, refuse_unlisted, replace_file, state_directory, trust_file
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.canonical import Count, Digest, Record, check_size, decode_json
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    ConflictError,
    ForkError,
    InputError,
    IntegrityError,
    RegError,
    about,
)
from onnxreg.schema.core.files import read_given
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.log.state import SEGMENT_LINES, State

if TYPE_CHECKING:
    from onnxreg.schema.inputs.trust_file import Trust

MAX_REMEMBERED_LINES = 256
"""The number of lines whose digests a known head keeps. They tell an earlier copy of the log from another log."""
MAX_PLACES = 32  # the greatest number of locations (copies of a registry) in a known head


class KnownHead(Record, frozen=True):
    """The last accepted index file of a log."""

    seq: Count  # the number of log lines
    index: Digest  # of the index file
    lines: tuple[Digest, ...]  # the digests of the newest log lines, the head last
    state: State | None = None  # the first line of the index file; None for policies
    places: dict[str, Count] = {}  # for each location, the greatest number of lines seen there
    trust: str = ""  # the digest (hex) of the trust file that was met

    @property
    def head(self) -> Digest:
        return self.lines[-1]

    def digest_at(self, seq: int) -> Digest | None:
        """Return the digest of line `seq`, or None if the digest is not remembered."""
        position = len(self.lines) - 1 - (self.seq - seq)
        return self.lines[position] if 0 <= position < len(self.lines) else None

    def seen_at(self, origin: str, seq: int) -> KnownHead:
        """Return a copy that notes that the location `origin` has `seq` lines. A greater noted number is kept."""
        places = [item for item in self.places.items() if item[0] != origin][-MAX_PLACES + 1 :]
        return self.replace(places=dict([*places, (origin, max(seq, self.places.get(origin, 0)))]))


def observe(
    before: KnownHead | None,
    registry: str,
    name: str,
    data: bytes | None,
    origin: str,
    fetch: Fetch,
    url: str | None = None,
) -> KnownHead | None:
    """Check an index file against the known head `before`, and return the new known head. The body has numbered rules.

    `data` is the file at the location `origin`, or None if it has no such file. Errors name the location `url`, if it
    is given. If a location lags behind others, the known head is kept. A log of policies must not lag. Raise ForkError
    if the log was rewritten, StateError if the state is wrong, IntegrityError if lines or the file are gone.
    """
    url = url or origin
    reset = f"ask its owner; after a backup was restored: reg trust reset {registry} {name}"
    had = 0 if before is None else before.places.get(origin, 0)

    def fork(seq: int, line: Digest, before: Digest) -> ForkError:
        lines = f"line {seq} is {line.short}..., and was {before.short}... when last seen"
        return ForkError(f"history of {name} was rewritten: {lines}", reset)

    # 1. A location that had the file still has it. It is an index file: a chain of lines up to the head in its state.
    if data is None:
        if before is None or not (had or name == POLICY_LOG):
            return before
        raise IntegrityError(
            f"{url} went back in time: {name} is gone, {before.seq} were there before", reset
        )
    digest = Digest.of(data)
    if before is not None and before.index == digest:
        return before.seen_at(origin, before.seq)
    if name == POLICY_LOG:
        return _observe_policies(before, registry, data, origin, url, reset)
    log = Log.decode(data, registry, name, fetch, url)
    # 2. At the first contact, the state must follow from checkpoint and lines.
    if before is None or before.state is None:
        log.check()
        lines = tuple(line.digest for line in log.tail) or (log.head,)
        return KnownHead(log.seq, digest, lines, log.state).seen_at(origin, log.seq)
    state = before.state
    # 3. A shorter log must be a beginning of the known log, at a location that never had more lines.
    if log.seq < before.seq:
        remembered = before.digest_at(log.seq)
        if remembered is not None and remembered != log.head:
            raise fork(log.seq, log.head, remembered)
        ends = f"the log of {name} ends at line {log.seq}"
        if log.seq < had:
            raise IntegrityError(f"{url} went back in time: {ends}, {had} were there before", reset)
        if remembered is None:
            doubt = "it is too far back to tell whether it is the same log"
            raise IntegrityError(f"{ends}, {before.seq} were seen before, and {doubt}", reset)
        log.check()
        is_sealed_alike = (log.state.segments, log.state.checkpoint) == (state.segments, state.checkpoint)
        if not is_sealed_alike or not log.state.summaries.items() <= state.summaries.items():
            log.prove()  # the earlier state must follow from lines and manifests
        return before.seen_at(origin, log.seq)
    # 4. A log of the same length, or longer, must have the known head.
    if (line := log.digest_at(before.seq)) != before.head:
        raise fork(before.seq, line, before.head)
    try:
        # 5. Sealed segments must stay, and a new checkpoint must follow from the known one.
        _check_sealed(state, log)
        # 6. The state must follow from checkpoint and lines; without new lines, it must be the known state.
        log.check()
        if log.seq == before.seq and log.state.replace(summaries=state.summaries) != state:
            raise StateError(f"the log of {name} is as it was, and its state is not", reset)
        # 7. The summary of a manifest must stay.
        for version, summary in log.state.summaries.items():
            former = state.summaries.get(version, summary)
            if summary != former and summary.manifest == former.manifest:
                problem = f"the index says other things of {name}:{version} than before"
                raise StateError(problem, VERIFY_ADVICE)
    except StateError as error:
        # 8. If 5, 6 or 7 fails, the known state may be the damaged one: the whole log and the manifests decide.
        try:
            log.prove()
        except RegError:
            raise error from None
    lines = (*before.lines, *(line.digest for line in log.lines(before.seq)))[-MAX_REMEMBERED_LINES:]
    return KnownHead(log.seq, digest, lines, log.state, before.places).seen_at(origin, log.seq)


def _check_sealed(before: State, log: Log) -> None:
    """Raise StateError if sealed segments changed, or if a replay of the lines gives another checkpoint (rule 5)."""
    state, count = log.state, len(before.segments)
    is_longer = len(state.segments) > count
    if state.segments[:count] != before.segments or not (is_longer or state.checkpoint == before.checkpoint):
        raise StateError(f"the sealed part of the log of {log.name} is not what it was", VERIFY_ADVICE)
    if not is_longer:
        return
    try:
        replay = log.replay_from(before.checkpoint, log.lines(count * SEGMENT_LINES, log.base))
    except MissingBlobError:  # a collector freed the checkpoint
        replay = log.replay_from(None, log.lines(0, log.base))
    if log.attach(replay.checkpoint().encode()) != state.checkpoint:
        raise StateError(f"the checkpoint of {log.name} is not what its log says", VERIFY_ADVICE)


def _observe_policies(
    before: KnownHead | None, registry: str, data: bytes, origin: str, url: str, reset: str
) -> KnownHead:
    """Check a log of policies, and return the head to remember. Raises IntegrityError if known lines are missing."""
    from onnxreg.schema.gates.policy import PolicyLog

    digests = tuple(line.digest for line in PolicyLog.decode(data, registry).lines)
    places, seq = {} if before is None else before.places, len(digests)
    if before is not None and digests[before.seq - 1 : before.seq] != (before.head,):
        if before.digest_at(seq) == digests[-1] and places.get(origin, 0) <= seq:
            problem = f"{url} has policy {seq} of the {before.seq} that the registry is known to have"
            raise IntegrityError(problem, "have this copy brought up to date, or ask another place")
        lines = f"it has {seq} lines that are not the {before.seq} seen before"
        raise IntegrityError(f"the policy log was put back or rewritten: {lines}", reset)
    newest = digests[-MAX_REMEMBERED_LINES:]
    return KnownHead(seq, Digest.of(data), newest, places=places).seen_at(origin, seq)


class StaleNotice(NamedTuple):
    """The copy at `url` lacks log lines that were first seen at another location `seconds` ago."""

    name: str
    url: str
    lines: int
    seconds: float


class KnownHeads:
    """The known heads of one user, stored in `heads/` below a directory, by default the user's state directory.

    `stale` is called if a log lacks lines that were seen elsewhere. `warn` is called once if saving fails.
    """

    def __init__(
        self,
        directory: Path | None = None,
        stale: Callable[[StaleNotice], None] = lambda notice: None,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._root = (directory or state_directory()) / "heads"
        self._stale, self._warn, self._warned = stale, warn, False

    def read(self, registry_id: str, name: str) -> KnownHead | None:
        """Return a log's known head, or None if there is none. Raises IntegrityError if it is damaged.

        Call this before you read the log's index file. Otherwise another process may save a newer head meanwhile, and
        the index file, which was read before, would look like a rollback.
        """
        with host_errors(f"reading the known head of {name} in {self._root}"):
            try:
                data = self._path(registry_id, name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        damaged, reset = f"the known head of {name} is damaged", f"reg trust reset {registry_id} {name}"
        with about(damaged, IntegrityError, reset):
            check_size(data, "it", MAX_DOCUMENT_BYTES)
            return decode_json(data, KnownHead, "it") if data else None

    def knows(self, registry_id: str, name: str) -> bool:
        return self._path(registry_id, name).is_file()

    def read_index(
        self,
        reader: RegistryReader,
        name: str,
        cached: StoredObject | None = None,
        more: Sequence[BlobReader] = (),
        is_own: bool = False,
    ) -> StoredObject | None:
        """Read an index file, check it, and save it as the known head. Return None if the file does not exist.

        `observe` compares the file with the known head. A changed file must also have the signatures that the trust
        file requires, except in the user's own registry (`is_own`). `more` are readers that may have older parts of the
        log. If a check fails, the newest file is checked, because a cached file may be old. If that fails too, raise
        ForkError or IntegrityError. If the log only lags behind another location, `stale` gets a notice.
        """
        before = self.read(reader.registry_id, name)
        index = reader.read_index(name, cached)
        try:
            self._accept(reader, name, index, before, more, is_own)
        except (IntegrityError, MissingBlobError):
            index, former = innermost(reader).read_file(index_path(name)), index
            if index == former:
                raise
            self._accept(reader, name, index, before, more, is_own)
        return index

    def check_own(self, store: RegistryReader, name: str, *more: BlobReader) -> None:
        """Check the user's own log before a change. Raises IntegrityError or ForkError if others rewrote it."""
        if self.knows(store.registry_id, name):
            self.read_index(store, name, more=more, is_own=True)

    def remember(self, store: RegistryReader, name: str, index: StoredObject | None) -> None:
        """Save a known head for an index file that this user just wrote, so that a later loss is noticed."""
        try:
            self._accept(store, name, index, self.read(store.registry_id, name), is_own=True)
        except (IntegrityError, MissingBlobError):  # another writer came later, and its collector
            self.read_index(store, name, is_own=True)

    def reset(self, registry_id: str, name: str | None = None) -> list[str]:
        """Forget the known head of a model, or of all models of a registry. Return the names of these models."""
        names = [model for model in self.names(registry_id) if name in (None, model)]
        for model in names:
            self._path(registry_id, model).unlink(missing_ok=True)
        if name is None:
            shutil.rmtree(self._root / registry_id, ignore_errors=True)
        return names

    def names(self, registry_id: str) -> list[str]:
        """Return the names of a registry's logs that have a known head, sorted."""
        top = self._root / registry_id
        walk = os.walk(top, onerror=refuse_unlisted)
        files = [Path(folder, name).relative_to(top) for folder, _, names in walk for name in names]
        return sorted(path.with_suffix("").as_posix() for path in files if path.suffix == ".json")

    def models(self, registry_id: str) -> list[str]:
        return [name for name in self.names(registry_id) if name != POLICY_LOG]

    def to_json(self) -> list[dict[str, Any]]:
        registries = sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []
        return [
            {"registry": registry, "name": name, "seq": head.seq, "head": str(head.head)}
            for registry in registries
            for name in self.names(registry)
            if (head := self.read(registry, name)) is not None
        ]

    def _path(self, registry_id: str, name: str) -> Path:
        return self._root / registry_id / f"{name}.json"

    def _accept(
        self,
        reader: RegistryReader,
        name: str,
        index: StoredObject | None,
        before: KnownHead | None,
        more: Sequence[BlobReader] = (),
        is_own: bool = False,
    ) -> None:
        data, registry = None if index is None else index.data, reader.registry_id
        origin = reader.location.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        after = observe(before, registry, name, data, origin, fetcher(*more, reader), reader.url)
        if after is None or index is None:
            return
        digest, trust = Digest.of(index.data), "" if is_own else self.enforce(reader, name, index)
        if trust and after.index == digest:
            after = after.replace(trust=trust)
        self._keep(registry, name, before, after)
        if after.index != digest:
            with suppress(OSError):
                age = abs(time.time() - self._path(registry, name).stat().st_mtime)
                self._stale(StaleNotice(name, reader.url, after.seq - after.places[origin], age))

    def enforce(self, reader: RegistryReader, name: str, index: StoredObject) -> str:
        """Raise IntegrityError if an index file lacks a required signature. Return the digest of the trust file."""
        trust, head = trust_digest(), self.read(reader.registry_id, name)
        if trust and (head is None or (head.index, head.trust) != (Digest.of(index.data), trust)):
            rules = load_trust()
            if name == POLICY_LOG or rules.concerns(reader.registry_id, name):
                from onnxreg.registry.trust.signatures import enforce

                enforce(rules, reader, name, index)
        return trust

    def _keep(self, registry_id: str, name: str, before: KnownHead | None, head: KnownHead) -> None:
        if head == before:
            return
        path = self._path(registry_id, name)
        try:
            latest = self.read(registry_id, name)
            if latest is not None and latest.seq > head.seq:
                return
            status = path.stat() if before is not None and before.seq == head.seq else None
            replace_file(path, head.encode(), (status.st_atime, status.st_mtime) if status else None)
        except OSError as error:
            lost = f"known heads cannot be kept in {self._root}: {error.strerror}"
            if not self._warned:
                self._warn(f"{lost}; a rollback will go unnoticed")
            self._warned = True


class CheckedReader(ReaderWrapper):
    """A reader that refuses an index file if it contradicts its known head or lacks a required signature."""

    def __init__(self, source: RegistryReader, known_heads: KnownHeads) -> None:
        super().__init__(source)
        self._known_heads = known_heads

    def read_index(self, name: str, cached: StoredObject | None = None) -> StoredObject | None:
        return self._known_heads.read_index(self.source, name, cached)


def checked_reader(reader: RegistryReader, known_heads: KnownHeads) -> RegistryReader:
    """Wrap a reader so that index files are checked. A reader that is already wrapped is returned unchanged."""
    return reader if isinstance(reader, ReaderWrapper) else CheckedReader(reader, known_heads)


# The user's trust file: new entries are appended, so that lines by a person stay unchanged.


def load_trust() -> Trust:
    """Read the user's trust file, by default an empty one. Raise InputError if the file is malformed."""
    from onnxreg.schema.inputs.trust_file import Trust

    return trust_if_any() or Trust()


def trust_if_any() -> Trust | None:
    """Read the user's trust file. Return None if the file does not exist."""
    return read_trust_file(path) if (path := _trust_path()) else None


def _trust_path() -> Path | None:
    """Return the path of the user's trust file, or None. Raise InputError if REG_TRUST names a missing file."""
    path = trust_file()
    if system.variable("REG_TRUST") and not path.is_file():  # without it, everything would pass
        hint = "name a file that `reg trust add` made, or an empty one, which demands nothing; or unset it"
        raise InputError(f"REG_TRUST names {path}, which is not a file", hint)
    return path if path.is_file() and path.stat().st_size else None  # an empty one demands nothing


def read_trust_file(path: Path) -> Trust:
    """Read a trust file. Raises NotFoundError, HostError if it is unreadable, InputError if it is malformed."""
    from onnxreg.schema.inputs.trust_file import read_trust

    return read_trust(read_given(path), str(path))


def trust_digest() -> str:
    """Return the SHA-256 of the user's trust file as hex digits, or "" if the file does not exist."""
    return Digest.of(path.read_bytes()).hex if (path := _trust_path()) else ""


def add_key(name: str, text: str, models: Collection[str]) -> Path:
    """Add a key to the trust file. Raise ConflictError if the file already has the name or the key."""
    from onnxreg.registry.store.directory import exclusive
    from onnxreg.schema.inputs.trust_file import Trust, read_trust
    from onnxreg.schema.signing.dsse import PublicKey

    public, path = PublicKey.parse(text), trust_file().resolve()
    words = {"key": str(public), "models": list(models)}  # a JSON string is a TOML string
    lines = [f"[keys.{json.dumps(name, ensure_ascii=False)}]"]
    lines += [f"{word} = {json.dumps(value, ensure_ascii=False)}" for word, value in words.items() if value]
    with host_errors(f"writing {path}"), exclusive(path.with_name(f"{path.name}.lock")):
        trust = load_trust() if path.exists() else Trust()
        if (key := trust.keys.get(public.id) or trust.named(name)) is not None:
            raise ConflictError(f"{path} has key {key.name} already", "edit the file to change it")
        before = path.read_bytes().decode() if path.exists() else ""
        after = "\n".join([*([before.rstrip("\n"), ""] if before.strip() else []), *lines, ""])
        read_trust(after.encode(), str(path))
        replace_file(path, after.encode())
    return path


def trust_json(trust: Trust) -> dict[str, list[dict[str, Any]]]:
    keys = [
        {
            "name": key.name,
            "kind": key.key.kind,
            "keyid": keyid,
            "public": str(key.key),
            "models": list(key.models),
            **({"replaces": key.replaces} if key.replaces else {}),
            "revoked": key.revoked and {"date": str(key.revoked.date), "reason": key.revoked.reason},
        }
        for keyid, key in trust.keys.items()
    ]
    return {"keys": keys, "require": [msgspec.to_builtins(need, enc_hook=str) for need in trust.requirements]}

"""The present heads of a registry, compared with those in the newest map."""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from onnxreg.registry.log.lookup import fetcher, sealed_lines
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, RegError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.log.known_head import ObservedIndex
from onnxreg.schema.log.logline import LogLineHeader, genesis, verify_chain
from onnxreg.schema.witness.merkle_map import MapEntry

MAX_WORKERS = 8


@dataclass
class HeadSurvey:
    """The entries that changed since the map; `refused` says why a log keeps its old entry, by name."""

    changed: dict[str, MapEntry | None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def survey(reader: RegistryReader, entries: Mapping[str, MapEntry], accept: Collection[str]) -> HeadSurvey:
    """Read the head of every log. A log that does not continue its entry keeps it, unless its name is in `accept`."""
    names = {*reader.names(), *entries, POLICY_LOG}
    result = HeadSurvey()
    with ThreadPoolExecutor(MAX_WORKERS) as pool:
        findings = pool.map(
            lambda name: (name, _finding(reader, name, entries.get(name), name in accept)), sorted(names)
        )
        for name, finding in findings:
            if isinstance(finding, str):
                result.refused[name] = finding
            elif finding != entries.get(name):
                result.changed[name] = finding
    return result


def _finding(
    reader: RegistryReader, name: str, entry: MapEntry | None, accept: bool
) -> MapEntry | str | None:
    """The present entry of a log, None without a log; a text why it does not continue the known one."""
    try:
        index = reader.read_index(name)
        head = None if index is None else LogEnd.read(reader, name, index)
        if entry is not None and not accept:
            if head is None:
                return f"it is gone, and had {entry.seq} lines"
            head.check_continues(entry)
    except RegError as error:
        return error.message
    return None if head is None else head.entry


@dataclass(frozen=True)
class LogEnd:
    """The end of a log as an index file has it; `observed` is None for the log of policies."""

    entry: MapEntry
    lines: tuple[LogLineHeader, ...]
    observed: ObservedIndex | None
    source: RegistryReader

    @classmethod
    def read(cls, reader: RegistryReader, name: str, index: IndexFile) -> "LogEnd":
        """Read an index file, or the log of policies. IntegrityError if it does not fit itself or the registry."""
        if name == POLICY_LOG:
            lines = _policy_lines(reader.registry_id, index)
            return cls(MapEntry(name, len(lines), lines[-1].digest), lines, None, reader)
        observed = ObservedIndex.read(index.data, name)
        if observed.state.registry != reader.registry_id:
            raise IntegrityError(f"the index of {name} is another registry's")
        return cls(MapEntry(name, observed.state.seq, observed.state.head), observed.lines, observed, reader)

    def check_continues(self, entry: MapEntry) -> None:
        """Raise IntegrityError if the log does not have the line that an entry names."""
        if self.entry.seq < entry.seq:
            raise IntegrityError(f"it ends at line {self.entry.seq}, and had {entry.seq} lines")
        digest = self._digest_at(entry.seq)
        if digest != entry.head:
            raise IntegrityError(
                f"it was rewritten: line {entry.seq} is {digest.short}..., and was {entry.head.short}..."
            )

    def _digest_at(self, seq: int) -> Digest:
        if seq == self.entry.seq:
            return self.entry.head
        if self.observed is None:
            return self.lines[seq - 1].digest
        sealed = partial(sealed_lines, fetcher(self.source), self.observed.state.segments)
        return self.observed.since(seq, sealed)[0]


def _policy_lines(registry: str, index: IndexFile) -> tuple[LogLineHeader, ...]:
    try:
        lines = tuple(LogLineHeader.read(raw) for raw in index.data.removesuffix(b"\n").split(b"\n"))
    except InputError as error:
        raise IntegrityError(f"the policy log cannot be read: {error.message}") from error
    if lines[0].prev != genesis(registry, POLICY_LOG):
        raise IntegrityError("the policy log is another registry's")
    verify_chain(lines, POLICY_LOG, lines[0].prev, "")
    return lines

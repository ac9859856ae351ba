"""What can still be read of a damaged index file, and how it joins with another copy of the same log. Pure."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from onnxreg.registry.log.index_file import read_segment
from onnxreg.registry.log.ledger import Fetch
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, RegError
from onnxreg.schema.log.logline import LogLine, genesis
from onnxreg.schema.log.state import State


@dataclass(frozen=True)
class Salvage:
    """The lines of a damaged log that can be read, and the number and digest of the last line as the state line has it."""

    registry: str
    name: str
    lines: dict[int, LogLine]
    end: tuple[int, Digest] | None

    @classmethod
    def read(cls, data: bytes, registry: str, name: str, fetch: Fetch) -> "Salvage":
        """A line is dropped where the next one, or the state line behind the last, names another digest for it."""
        first, *rest = data.split(b"\n")
        state = _state(first, registry, name)
        lines = [
            line for segment in (state.segments if state else ()) for line in _sealed(segment, name, fetch)
        ]
        lines += [line for raw in rest if (line := _line(raw)) is not None]
        found = {line.seq: line for line in lines if line.event.name == name}
        end = (state.seq, state.head) if state else None
        named = dict([end]) if end else {}
        for seq in sorted(found, reverse=True):
            if named.get(seq, found[seq].digest) == found[seq].digest:
                named[seq - 1] = found[seq].prev
            else:
                del found[seq]
        return cls(registry, name, found, end)

    def join(self, copy: Sequence[LogLine] = ()) -> list[LogLine]:
        """The copy's lines, then those of ours that follow.

        IntegrityError where both have a line in the same place: then one history was rewritten, not damaged.
        """
        prev = genesis(self.registry, self.name)
        for line in copy:
            ours = self.lines.get(line.seq, line)
            if ours.raw != line.raw and ours.prev == prev:
                raise IntegrityError(
                    f"two copies of registry {self.registry} have different histories of {self.name}: "
                    f"line {line.seq} is {ours.digest.short}... here and {line.digest.short}... there",
                    "one of them was rewritten; nothing was changed",
                )
            prev = line.digest
        joined = list(copy)
        while (follower := self.lines.get(len(joined) + 1)) is not None and follower.prev == prev:
            joined.append(follower)
            prev = follower.digest
        return joined

    def is_complete(self, lines: Sequence[LogLine]) -> bool:
        """Whether the lines end as the state line says: nothing is lost."""
        return bool(lines) and self.end == (lines[-1].seq, lines[-1].digest)

    def lost(self, lines: Sequence[LogLine]) -> list[int]:
        """The lines that this log had and these lines have not: their numbers, of a run at the end first and last."""
        kept = {line.seq: line.raw for line in lines}
        lost = {seq for seq, line in self.lines.items() if kept.get(seq) != line.raw}
        if self.end is not None and self.end[0] > len(lines):
            lost |= {len(lines) + 1, self.end[0]}
        return sorted(lost)


def _state(raw: bytes, registry: str, name: str) -> State | None:
    with suppress(InputError):
        state = State.decode(raw)
        if (state.registry, state.name) == (registry, name):
            return state
    return None


def _line(raw: bytes) -> LogLine | None:
    with suppress(InputError):
        return LogLine.decode(raw)
    return None


def _sealed(segment: Digest, name: str, fetch: Fetch) -> Sequence[LogLine]:
    with suppress(RegError):
        return read_segment(fetch(segment), name)
    return ()

"""Salvage readable lines of a damaged index file, and join them with another copy of the same log. Pure."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from onnxreg.registry.log.ledger import Fetch, read_segment
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, RegError
from onnxreg.schema.log.logline import LogLine, genesis
from onnxreg.schema.log.state import State


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
        state = _state(state_line, registry, name)
        lines = [
            line for segment in (state.segments if state else ()) for line in _sealed(segment, name, fetch)
        ]
        lines += [line for raw in log_lines if (line := _line(raw)) is not None]
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

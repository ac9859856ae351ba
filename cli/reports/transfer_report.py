"""The report of `push` and `pull` about a transfer."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.render import output

if TYPE_CHECKING:
    from onnxreg.registry.transfer.exchange import Arrival, TransferResult


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def rate(self, size: int) -> str:
        """` in 12 s, 23.7 MB/s` for so many bytes; nothing below a second, which would tell nothing."""
        seconds = time.monotonic() - self._begun
        if seconds < 1 or not size:
            return ""
        return f" in {output.duration(seconds)}, {output.size(round(size / seconds))}/s"


def report_transfer(
    session: Session,
    verb: str,
    result: "TransferResult",
    remote: str,
    watch: Stopwatch,
    tags: Sequence[str] = (),
    out: Path | None = None,
    heal: bool = False,
    remarks: Iterable[str] = (),
    **more: Any,
) -> None:
    """Print a line or two and the `remarks`, or the document of `to_json` with `channels` (if there are `tags`) and
    `more`. With `heal` every file was asked for."""
    more |= {"channels": channels_to_json(result)} if tags else {}
    ref = _ref(result)
    if result.events or result.blobs:
        moved = ref if len(result.versions) == 1 else result.name
        link = "to" if verb == "pushed" else "from"
        amount = f"{output.counted(result.blobs, 'blob')}, {output.size(result.size)}"
        outcome = f"{verb} {moved} {link} {remote}: {amount}{watch.rate(result.size)}"
    elif heal:
        reads = f"reg verify --remote {quote(remote)} reads them"
        outcome = f"nothing to do: every file of {ref} is in {remote} (not read: {reads})"
    else:
        outcome = f"nothing to do: {ref} is up to date with {remote}"
    session.show(
        {**to_json(result, remote, out), **more},
        outcome,
        [f"{verb} channel {tag.tag}: {result.name}:{tag.version}" for tag in result.channels],
        [] if out is None else [f"written to {out}"],
        remarks,
    )
    warn_of_yanks(session, result)


def warn_of_yanks(session: Session, result: "TransferResult") -> None:
    """Say to people which of the versions are yanked at the destination, and why."""
    for version, yank in result.yanks.items() if not session.as_json else ():
        session.warn(f"warning: {result.name}:{version} is yanked there: {yank.words}")


def arrival_lines(arrivals: "Collection[Arrival]") -> Iterator[str]:
    """The bytes that deltas saved, and why one could not arrive by deltas."""
    if saved := sum(item.size - item.moved for item in arrivals if item.since):
        total = output.size(sum(item.size for item in arrivals))
        yield f"deltas saved {output.size(saved)} of {total}"
    yield from (f"note: {reason}" for reason in sorted({item.reason for item in arrivals if item.is_doubt}))


def to_json(result: "TransferResult", remote: str, out: Path | None = None) -> dict[str, Any]:
    """The transfer as `{ref, remote, events, blobs, bytes, output}`, and `yanked` of `yanked_to_json`."""
    counts = {"events": result.events, "blobs": result.blobs, "bytes": result.size}
    output = None if out is None else str(out)
    return {"ref": _ref(result), "remote": remote, **counts, "output": output, **yanked_to_json(result)}


def yanked_to_json(result: "TransferResult") -> dict[str, Any]:
    """The versions that are yanked at the destination, if any, as `{yanked: [{version, of, reason}]}`."""
    yanked = [
        {"version": str(version), "of": str(yank.version), "reason": yank.reason}
        for version, yank in result.yanks.items()
    ]
    return {"yanked": yanked} if yanked else {}


def _ref(result: "TransferResult") -> str:
    return f"{result.name}:{result.versions[0]}"


def channels_to_json(result: "TransferResult") -> list[dict[str, Any]]:
    """The channels that were moved, as `[{name, tag, version}]`."""
    return [{"name": result.name, "tag": tag.tag, "version": str(tag.version)} for tag in result.channels]

"""The reports of `push`, `pull` and `mirror` about the transferred versions, blobs and channels."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.output import counted, duration, fields, size, table

if TYPE_CHECKING:
    from onnxreg.registry.transfer.exchange import Arrival, SkippedVersion, TransferResult


class Stopwatch:
    def __init__(self) -> None:
        self._begun = time.monotonic()

    def amount(self, blobs: int, moved: int) -> str:
        """Describe a transfer: `6 blobs, 45.9 MB in 12 s, 3.7 MB/s`, without a rate if it took less than a second."""
        seconds = time.monotonic() - self._begun
        rate = f" in {duration(seconds)}, {size(round(moved / seconds))}/s" if moved and seconds >= 1 else ""
        return f"{counted(blobs, 'blob')}, {size(moved)}{rate}"


def report_transfer(
    session: Session,
    verb: str,
    result: "TransferResult",
    remote: str,
    watch: Stopwatch,
    tags: Sequence[str] = (),
    out: Path | None = None,
    remarks: Iterable[str] = (),
    **more: Any,
) -> None:
    """Show the result of a transfer, then `remarks`. The JSON document also has `channels` (with `tags`) and `more`."""
    ref, channels = f"{result.name}:{result.versions[0]}", {"channels": channels_to_json(result)}
    if result.events or result.blobs:
        moved, link = ref if len(result.versions) == 1 else result.name, "to" if verb == "pushed" else "from"
        outcome = f"{verb} {moved} {link} {remote}: {watch.amount(result.blobs, result.size)}"
    else:
        outcome = f"{'' if out else 'nothing to do: '}{ref} is up to date with {remote}"
    session.show(
        {**to_json(result, remote, out), **more, **(channels if tags else {})},
        outcome,
        [f"{verb} channel {tag.tag}: {result.name}:{tag.version}" for tag in result.channels],
        f"written to {out}" if out else None,
        remarks,
    )
    warn_of_yanks(session, result)


def warn_of_yanks(session: Session, result: "TransferResult") -> None:
    for warning in result.warnings if not session.as_json else ():
        session.warn(f"warning: {warning}")


def arrival_lines(arrivals: "Collection[Arrival]") -> Iterator[str]:
    """Yield lines about the bytes that deltas saved, and the reasons why files arrived without a delta."""
    if saved := sum(item.size - item.moved for item in arrivals if item.since):
        yield f"deltas saved {size(saved)} of {size(sum(item.size for item in arrivals))}"
    yield from (f"note: {reason}" for reason in sorted({item.doubt for item in arrivals if item.doubt}))


def skipped_lines(skipped: "Iterable[SkippedVersion]") -> Iterator[str]:
    """Yield a line, with the reason, for each model, version or channel that was not transferred."""
    return table(("SKIPPED", "TAG", "WHY"), [(item.name, item.tag, item.reason) for item in skipped])


def to_json(result: "TransferResult", remote: str, out: Path | None = None) -> dict[str, Any]:
    """Return a transfer as `{ref, remote, events, blobs, bytes, output}`, and the keys of `yanked_to_json`."""
    moved = {**fields(result, "events blobs"), "bytes": result.size, "output": out}
    return {"ref": f"{result.name}:{result.versions[0]}", "remote": remote, **moved, **yanked_to_json(result)}


def yanked_to_json(result: "TransferResult") -> dict[str, Any]:
    """Return the versions that are yanked at the destination as `{yanked: [{version, of, reason}]}`; {} if none is."""
    yanked = [
        {"version": key, "of": yank.version, "reason": yank.reason} for key, yank in result.yanks.items()
    ]
    return {"yanked": yanked} if yanked else {}


def channels_to_json(result: "TransferResult") -> list[dict[str, Any]]:
    """Return the moved channels as `[{name, tag, version}]`."""
    return [{"name": result.name, "tag": tag.tag, "version": tag.version} for tag in result.channels]

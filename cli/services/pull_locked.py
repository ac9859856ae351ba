"""`reg pull --locked`: exactly the artifacts that a lock file names."""

from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.context import Session
from onnxreg.cli.errors import resumable, still
from onnxreg.cli.render import output
from onnxreg.cli.reports.transfer_report import Stopwatch, arrival_to_json, tell_arrivals
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.inputs.lockfile import FILENAME, Lockfile

if TYPE_CHECKING:
    from onnxreg.registry.delta.routes import DeltaPolicy
    from onnxreg.registry.lockfile import FetchedEntry


def run(
    session: Session,
    file: str | None,
    remote: str | None,
    out: Path | None,
    deltas: "DeltaPolicy",
    explain: bool,
    as_json: bool,
) -> None:
    """For the shape of the JSON see `pull.command`. Nothing is written out before every model has arrived."""
    from onnxreg.registry import lockfile

    locked = _read(Path(file or FILENAME))
    registry = session.open(create=None)
    if out is not None:
        lockfile.folders(locked, out, registry.store.root)
    watch = Stopwatch()
    with resumable(), session.progress("pulling what is locked", as_json) as progress:
        entries = lockfile.pull_locked(registry, locked, remote, progress, deltas)
    if out is not None:
        with still("pulled what is locked"), session.progress("writing", as_json) as progress:
            lockfile.write_locked(registry, entries, out, progress)
    url = registry.remotes.url_of(remote)
    if as_json:
        models = [_to_json(item, explain) for item in entries]
        output.write_json({"remote": url, "output": out and str(out), "models": models})
        return
    _show(session, entries, url, out, watch)
    tell_arrivals(session, [item for entry in entries for item in entry.result.arrivals], explain)


def _read(path: Path) -> Lockfile:
    try:
        return Lockfile.decode(path.read_bytes(), str(path))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no {path}", "`reg lock REF` makes one") from error


def _show(
    session: Session, entries: "list[FetchedEntry]", url: str, out: Path | None, watch: Stopwatch
) -> None:
    blobs, size = sum(item.result.blobs for item in entries), sum(item.result.size for item in entries)
    rows = [(item.entry.name, item.entry.version, item.entry.path, _status(item)) for item in entries]
    session.table(("MODEL", "VERSION", "PATH", "STATUS"), rows)
    moved = f"{output.counted(blobs, 'blob')}, {output.size(size)}{watch.rate(size)}"
    session.say(
        "", f"pulled what is locked from {url}: {moved}" if blobs else "nothing to do: all of it is here"
    )
    for item in entries:
        if item.yanked:
            session.say(
                f"{item.entry.name}:{item.entry.version} is yanked since: `reg log {item.entry.name}` says why"
            )
    if out is not None:
        session.say(f"written to {out}")


def _status(item: "FetchedEntry") -> str:
    return "yanked" if item.yanked else ""


def _to_json(item: "FetchedEntry", explain: bool) -> dict[str, object]:
    entry = item.entry
    moved: dict[str, object] = {"blobs": item.result.blobs, "bytes": item.result.size}
    if explain:
        moved["files"] = list(map(arrival_to_json, item.result.arrivals))
    return {
        "name": entry.name,
        "version": str(entry.version),
        "path": entry.path,
        "yanked": item.yanked,
        **moved,
    }

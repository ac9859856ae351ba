"""`reg delta`: make deltas of a version, and list the deltas that a version offers."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onnxreg.cli.options import REF, REMOTE, Session, option
from onnxreg.cli.output import size, table
from onnxreg.schema.core.ref import Ref, Version

if TYPE_CHECKING:
    from onnxreg.schema.delta.delta_format import Delta
    from onnxreg.schema.manifest.manifest import FileEntry

EXAMPLES = (
    "reg delta make acme/pii",
    "reg delta make acme/pii:1.3.0 --from 1.1.0 --from 1.2.0",
    "reg delta ls acme/pii --json",
)


def delta_make(
    session: Session,
    ref: str = REF,
    since: list[Version] | None = option(
        "An old version; may be repeated; default: the previous release, and the versions of channels.",
        "--from",
        metavar="VERSION",
        parser=Version.parse,
    ),
    remote: str | None = REMOTE,
) -> None:
    """Make deltas (differences) between a version's files and older files, so that updates are small downloads.

    Files that are too different get no delta. Deltas belong to one registry: push and pull do not copy them.

    With --json: {ref, made, deltas: [{path, new, old, delta, size, of, from}], unlike: [{path, from}]}; deltas has all
    deltas that the version offers now; `size` is the size of the delta, and `of` is the size of the whole new file.
    """
    from onnxreg.cli.services import make_deltas

    registry, store = session.with_remote(remote)
    with session.steps() as progress:
        report = make_deltas(registry, store or registry.store, Ref.parse(ref), since or (), progress)
    rows = _rows(report.deltas, report.files)
    unlike = [{"path": path, "from": version} for path, version in report.unlike]
    session.show(
        {"ref": report.ref, "made": report.new, "deltas": rows, "unlike": unlike},
        _table(rows),
        [f"no delta of {item['path']} from {item['from']}: the files are not alike" for item in unlike],
        None if rows or unlike else f"{report.ref} has no earlier version with a file that it changed",
    )


def delta_ls(session: Session, ref: str = REF, remote: str | None = REMOTE) -> None:
    """List the deltas that a version offers.

    With --json: {ref, deltas: [{path, new, old, delta, size, of, from}]}; the keys mean the same as in `reg delta
    make`.
    """
    from onnxreg.registry.log.log import load, read_deltas

    target = Ref.parse(ref)
    log = load(session.reader(remote), target.name)
    located = log.find(target)
    rows = _rows(read_deltas(log.fetch, located.entry.deltas), log.manifest(located.version).all_files())
    none = f"{located.ref} offers no deltas; `reg delta make {ref}` makes some"
    session.show({"ref": located.ref, "deltas": rows}, _table(rows) if rows else none)


def _rows(deltas: "Iterable[Delta]", files: "Iterable[FileEntry]") -> list[dict[str, Any]]:
    sizes = {file.digest: {"path": file.path, "of": file.size} for file in files}
    return [{"path": "", "of": 0, **sizes.get(delta.new, {}), **delta.to_json()} for delta in deltas]


def _table(deltas: list[dict[str, Any]]) -> Iterator[str]:
    rows = []
    for item in deltas:
        share = f"{item['size'] / item['of']:.1%}" if item["of"] else ""
        rows.append((item["path"], item["from"], size(item["size"]), size(item["of"]), share))
    return table(("FILE", "FROM", "DELTA", "OF", "SHARE"), rows)

"""`reg delta`: make deltas of a version, and list those that it offers."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, RefArgument, RemoteOption
from onnxreg.cli.render import output
from onnxreg.schema.core.ref import Ref, Version

if TYPE_CHECKING:
    from onnxreg.cli.services.delta_service import DeltaReport
    from onnxreg.schema.delta.table import Delta
    from onnxreg.schema.manifest.manifest import Manifest

EXAMPLES = (
    "reg delta make acme/pii",
    "reg delta make acme/pii:1.3.0 --from 1.1.0 --from 1.2.0",
    "reg delta make acme/pii --remote s3://models/prod",
    "reg delta ls acme/pii --json",
)


def make(
    context: typer.Context,
    ref: RefArgument,
    since: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="An old version; may be repeated; default: the two releases before, and versions of channels.",
            metavar="VERSION",
        ),
    ] = None,
    remote: Annotated[
        str | None, typer.Option(help="Offer them in this remote (a name, path or URL), not here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make differences between a version's files and older ones, so that an update is a fraction of a file.

    Also within the version: an .ort file from its .onnx file, INT8 from float32. A pair of files that are not
    alike gets no delta. Deltas that are offered already are not made again. They belong to one registry: `push`
    and `pull` do not carry them (see `reg push --deltas`), a mirror does.

    With --json: {ref, made, deltas: [{path, new, old, delta, size, of, from}], unlike: [{path, from}]}: all
    deltas that the version offers now; `of` is the size of the file, `from` null within the version.
    """
    from onnxreg.cli.services.delta_service import DeltaRequest, make_deltas

    session: Session = context.obj
    registry, store = session.with_remote(remote)
    request = DeltaRequest(Ref.parse(ref), [Version.parse(item) for item in since or ()])
    with session.steps() as progress:
        report = make_deltas(registry, store or registry.store, request, progress)
    if as_json:
        unlike = [{"path": path, "from": version and str(version)} for path, version in report.unlike]
        rows = _rows_of(report)
        output.write_json({"ref": str(report.ref), "made": report.new, "deltas": rows, "unlike": unlike})
        return
    tell(session, report)


def ls(context: typer.Context, ref: RefArgument, remote: RemoteOption = None, as_json: Json = False) -> None:
    """List the deltas that a version offers.

    With --json: {ref, deltas: [{path, new, old, delta, size, of, from}]}, as `reg delta make`.
    """
    from onnxreg.registry.log import lookup
    from onnxreg.registry.log.commit import load
    from onnxreg.registry.log.delta_log import offered
    from onnxreg.registry.log.lookup import read_manifest

    session: Session = context.obj
    reader = session.reader(remote)
    located = lookup.find(reader, Ref.parse(ref))
    ledger = load(reader, located.name)[0]
    digest = located.entry.manifest
    manifest = read_manifest(ledger.fetch(digest), digest, located.name)
    rows = [_row(delta, manifest) for delta in offered(ledger, located.version)]
    if as_json:
        output.write_json({"ref": f"{located.name}:{located.version}", "deltas": rows})
    elif rows:
        _show(session, rows)
    else:
        session.say(f"{located.name}:{located.version} offers no deltas; `reg delta make {ref}` makes some")


def tell(session: Session, report: "DeltaReport") -> None:
    """Say which deltas a version offers now."""
    rows = _rows_of(report)
    _show(session, rows)
    for path, since in report.unlike:
        session.say(f"no delta of {path} from {since or 'this version'}: the files are not alike")
    if not rows and not report.unlike:
        session.say(f"{report.ref} has no earlier version and no file that another one resembles")


def _rows_of(report: "DeltaReport") -> list[dict[str, Any]]:
    files = {digest: (file.path, file.size) for digest, file in report.paths.items()}
    return [_to_json(delta, *files.get(delta.new, ("", 0))) for delta in report.table.deltas]


def _row(delta: "Delta", manifest: "Manifest") -> dict[str, Any]:
    file = next((file for file in manifest.all_files() if file.digest == delta.new), None)
    return _to_json(delta, file.path if file else "", file.size if file else 0)


def _to_json(delta: "Delta", path: str, size: int) -> dict[str, Any]:
    return {"path": path, **delta.to_json(), "of": size, "from": delta.since and str(delta.since)}


def _show(session: Session, rows: list[dict[str, Any]]) -> None:
    session.table(
        ("FILE", "FROM", "DELTA", "OF", "SHARE"),
        [
            (
                row["path"],
                row["from"] or "this version",
                output.size(row["size"]),
                output.size(row["of"]),
                f"{row['size'] / row['of']:.1%}" if row["of"] else "",
            )
            for row in rows
        ],
    )

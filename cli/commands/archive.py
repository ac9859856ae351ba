"""`reg archive`: versions in one file, for a site without network."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.completion import complete_ref
from onnxreg.cli.options.shared import Json, RemoteOption
from onnxreg.cli.render import output

if TYPE_CHECKING:
    from onnxreg.registry.store.protocol import Carried

EXAMPLES = (
    "reg archive create pii.onnxreg acme/pii-small:1.2.0 acme/pii-small:1.1.0",
    "reg archive create everything.onnxreg --all",
    "reg archive verify pii.onnxreg",
    "reg archive verify pii.onnxreg --trust ./trust.toml",
)


def create(
    session: Session,
    file: Annotated[Path, typer.Argument(help="The file to write, usually NAME.onnxreg.", metavar="FILE")],
    refs: Annotated[
        list[str] | None,
        typer.Argument(
            help="The versions to carry; with --all names or quoted globs of models.",
            metavar="[REF]...",
            autocompletion=complete_ref,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every version, of all models or of those named.")
    ] = False,
    remote: RemoteOption = None,
    trust: Annotated[
        Path | None,
        typer.Option(help="Add a copy of this file of trusted keys, for people: reg never reads it there."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write versions into one file, with the complete history of their models and all statements about them.

    The file is a registry to read from: reg pull REF FILE, reg ls --remote FILE. The same versions of the
    same registry give the same bytes. Everything is verified as it is read. See docs/archive.md.

    With --json: {file, registry, bytes, blobs, versions: {name: [version]}}.
    """
    from onnxreg.registry.transfer.archive import choose, create_archive
    from onnxreg.schema.core.given_file import read_given

    reader = session.reader(remote)
    chosen = choose(reader, refs or (), every)
    copied = None if trust is None else read_given(trust)
    with session.progress("archiving") as progress:
        archive = create_archive(reader, chosen, file, progress, copied)
    document = {
        "file": str(file),
        "registry": archive.registry,
        "bytes": archive.size,
        "blobs": archive.blobs,
        "versions": _versions(archive.carried),
    }
    session.show(
        document,
        _carried(archive.carried),
        f"written to {file}: {output.counted(archive.blobs, 'blob')}, {output.size(archive.size)}",
    )


def verify(
    session: Session,
    file: Annotated[Path, typer.Argument(help="The archive.", metavar="FILE")],
    trust: Annotated[
        Path | None,
        typer.Option(help="Verify by this file of trusted keys instead of your own; see docs/signing.md."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read every byte and log line of an archive, and list all damage. Needs no registry and no network.

    The history must be complete, the carried versions must have all files, and nothing else may be in the
    archive. Damage is exit status 4; if something could only not be read (kind unreadable), it is 9.

    These are damage too: a wrong signature, a missing one that your trust file demands, a broken log of
    policies, and a governed channel whose version the policy bars. The copy of a trust file in the archive
    is never used.

    With --json: {ok, registry, versions: {name: [version]}, models, blobs, bytes, damages: [{kind, name,
    detail, digest?}], unpromoted: [{name, detail}]}.
    """
    from onnxreg.cli.commands.health import fail, lines
    from onnxreg.registry.maintain.verification import verify_watched
    from onnxreg.registry.store.archive_reader import open_archive
    from onnxreg.registry.trust.trust_file import load_trust, read_trust_file

    archive = open_archive(file)
    trusted = load_trust() if trust is None else read_trust_file(trust)
    with session.progress("verifying") as progress:
        report = verify_watched(archive, None, progress=progress, trust=trusted)
    document = report.to_json()
    totals = {key: document[key] for key in ("ok", "models", "blobs", "bytes", "damages", "unpromoted")}
    session.show(
        {"registry": archive.registry_id, "versions": _versions(archive.carried), **totals},
        _carried(archive.carried),
        f"registry {archive.registry_id}",
        lines(report, archive),
    )
    fail(report, str(file), "copy it again, or have it made again: reg archive create")


def _versions(carried: "Carried") -> dict[str, list[str]]:
    return {name: [str(version) for version in sorted(carried[name])] for name in sorted(carried)}


def _carried(carried: "Carried") -> Iterator[str]:
    rows = [(name, ", ".join(versions)) for name, versions in _versions(carried).items()]
    return output.table(("MODEL", "CARRIED"), rows)

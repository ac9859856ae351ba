"""`reg archive`: put versions into one file, or write one version as a package of ONNX Runtime."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.options import FORMATS, PRECISION, REF, REMOTE, Session, argument, flag, option
from onnxreg.cli.output import counted, fields, size, table
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.store.protocol import Carried

EXAMPLES = (
    "reg archive create pii.onnxreg acme/pii-small:1.2.0 acme/pii-small:1.1.0",
    "reg archive create everything.onnxreg --all",
    "reg archive verify pii.onnxreg",
    "reg archive verify pii.onnxreg --trust ./trust.toml",
    "reg archive package acme/pii-small:1.2.0 ./pii-small.ortpackage",
    "reg archive package acme/pii-small ./pii-small.ortpackage --format onnx-int8",
)


def archive_create(
    session: Session,
    file: Path = argument("The file to write, usually NAME.onnxreg.", "FILE"),
    refs: list[str] | None = argument(
        "Versions. With --all: names of models, or quoted globs.", "[REF]...", models=True
    ),
    every: bool = flag("Every version of all models, or of the models that are named.", "--all"),
    remote: str | None = REMOTE,
) -> None:
    """Write versions into one file, with the complete history of their models and all statements about them.

    Other verbs can read the file like a registry: reg pull REF FILE, reg ls --remote FILE. Everything that is read is
    verified. The same versions of the same registry give the same bytes. See docs/archive.md.

    With --json: {file, registry, bytes, blobs, versions: {name: [version]}}.
    """
    from onnxreg.registry.archive import choose, create_archive

    reader = session.reader(remote)
    chosen = choose(reader, refs or (), every)
    with session.progress("archiving") as progress:
        blobs, count = create_archive(reader, chosen, file, progress)
    session.show(
        {"file": file, "registry": reader.registry_id, "blobs": blobs, "bytes": count}
        | {"versions": _versions(chosen)},
        _carried(chosen),
        f"written to {file}: {counted(blobs, 'blob')}, {size(count)}",
    )


def archive_verify(
    session: Session,
    file: Path = argument("The archive.", "FILE"),
    trust: Path | None = option(
        "Verify with the trusted keys in this file, not with your own trust file; see docs/signing.md."
    ),
) -> None:
    """Read every byte and log line of an archive, and list all damage. The command needs no network.

    Damage is exit status 4. If parts cannot be read and no damage is known, the exit status is 9.

    With --json: {ok, registry, versions: {name: [version]}, models, blobs, bytes, damages: [{kind, name, detail,
    digest?}], unpromoted: [{name, detail}]}.
    """
    from onnxreg.cli.commands.health import fail, lines
    from onnxreg.registry.archive import open_archive
    from onnxreg.registry.maintain import verify as verify_registry
    from onnxreg.registry.trust.known_heads import load_trust, read_trust_file

    archive = open_archive(file)
    trusted = load_trust() if trust is None else read_trust_file(trust)
    with session.progress("verifying") as progress:
        report = verify_registry(archive, None, progress=progress, trust=trusted)
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
    return {name: list(map(str, sorted(carried[name]))) for name in sorted(carried)}


def _carried(carried: "Carried") -> Iterator[str]:
    return table(("MODEL", "CARRIED"), list(_versions(carried).items()))


def archive_package(
    session: Session,
    ref: str = REF,
    directory: Path = argument("A new directory, or an earlier package.", "DIRECTORY"),
    formats: list[str] | None = FORMATS,
    precision: str | None = PRECISION,
) -> None:
    """Write a version as a model package (schema 1.0), from which ONNX Runtime picks the variant that fits.

    The package has one component, named after the model. Each artifact has a directory, a variant for the CPU, and a
    variant for each execution provider that the artifact names. The same version gives the same bytes. See
    docs/ort-packages.md.

    With --json: {ref, manifest, output, component, variants: [{name, ep, artifact, format, precision, digest,
    directory}], shared_assets, bytes, left_out}; left_out lists the artifacts that ONNX Runtime does not load.
    """
    from onnxreg.registry.log.contents import Selection
    from onnxreg.registry.transfer.export_files import write_package

    registry = session.open()
    with session.progress("writing") as progress:
        chosen = Selection(tuple(formats or ()), precision)
        published, layout = write_package(registry.store, Ref.parse(ref), directory, chosen, progress)
    keys = "format=artifact.format precision=artifact.precision digest=artifact.digest artifact=artifact.path"
    variants = [fields(item, f"name ep directory {keys}") for item in layout.variants]
    document = {"ref": published.ref, "output": directory, "manifest": published.digest, "variants": variants}
    document |= fields(layout, "component left_out shared_assets=assets bytes=size")
    rows = [(item.name, item.ep, item.artifact.path, item.artifact.digest) for item in layout.variants]
    left_out = f"left out, since ONNX Runtime does not load it: {', '.join(layout.left_out)}"
    session.show(
        document,
        table(("VARIANT", "PROVIDER", "ARTIFACT", "DIGEST"), rows),
        left_out if layout.left_out else None,
        f"written to {directory}: component {layout.component}, {size(layout.size)}",
    )

"""`reg import`: adopting model files that others published: OpenMed's, a repository of the Hub or of an OCI
registry."""

import json
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, NewVersion, YankedBytes, wants_deltas
from onnxreg.cli.render.output import table
from onnxreg.cli.reports.publish_report import report_published
from onnxreg.cli.services.export_service import offer_deltas_of
from onnxreg.cli.services.prove_service import proof_lines, prove_added
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version

if TYPE_CHECKING:
    from onnxreg.converters.importers.survey import Adopted
    from onnxreg.converters.source.location import Location

EXAMPLES = (
    "reg import ./openmed-export --name acme/pii-small --version 1.0.0",
    "reg import hf://onnx-community/bert-base-NER-ONNX --name acme/ner",
    "reg import ./all-MiniLM-L6-v2 --name acme/minilm",
    "reg import oci://ghcr.io/acme/pii-small:1.2.0",
    "reg import ./pulled --name acme/pii-small",
)


def command(
    session: Session,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A directory: of OpenMed, of --output or a repository. Or hf://ORG/NAME[@REVISION], oci://HOST/REPOSITORY:TAG.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="The model's name: NAME or ORG/NAME; required unless from oci://.")
    ] = None,
    version: NewVersion = None,
    statements: Annotated[
        bool | None,
        typer.Option(
            help="From oci://: record the signatures and evaluations of the version, too; each is a line, signed by your key "
            "if one is set. By default they are recorded if no key is set, and with a key it is an error to say neither.",
        ),
    ] = None,
    yanked_bytes: YankedBytes = False,
    as_json: Json = False,
) -> None:
    """Make a version from a directory of OpenMed or the Hub, or an OCI registry.

    A directory that OpenMed wrote has an openmed-onnx.json of version 1; none of its claims is trusted.

    Or import a repository as people publish them: Transformers.js and onnx-community, Optimum,
    sentence-transformers, or any directory with .onnx files. Its graphs become one version; weights say which
    graph was made from which. See docs/hub.md.

    Or import what `reg pull --output` and `reg export --output` wrote (version 2): the same files give the
    same manifest digest, and a changed file is an integrity error.

    Or import what `reg publish` put into an OCI registry, by tag or @digest: the same manifest digest, with
    signatures and evaluations. Its name and version are kept. See docs/oci.md.

    Digests, sizes, contracts and operators are read again; differences from the claims are listed.

    Artifacts whose parent is in the directory are proven to be that parent, rounded, or not: `reg prove`.

    With --json: {ref, name, version, digest, manifest, states, yanked, output, differences: [{path, claimed,
    found}], proofs: [{path, parent, verdict, reasons}]}; without proofs for oci://.
    """
    new_version = None if version is None else Version.parse(version)
    deltas = wants_deltas()
    if source.startswith("oci://"):
        from onnxreg.registry.oci.versions import fetch_version

        with session.progress(f"importing {source}") as moving:
            registry = session.open(create=None)
            registry.yanked_bytes = yanked_bytes
            published = fetch_version(registry.publisher(new_version), source, name, moving, statements)
        report_published(session, published, differences=[])
        offer_deltas_of(session, registry, published, deltas)
        return
    if name is None:
        raise InputError("the model's name is missing", "add --name ORG/NAME")
    progress = not (session.quiet or as_json) and sys.stderr.isatty()
    registry = session.open(create=None)
    registry.yanked_bytes = yanked_bytes
    with registry.workspace() as files, registry.workspace() as workspace:
        location, (draft, differences) = _read(source, files, workspace, name, progress)
        if location.hub_id is not None and draft.document is None:
            origin = {"id": location.hub_id, "revision": location.revision}
            draft = replace(draft, fields={**draft.fields, "source": origin})
        published = registry.add(draft, new_version)
    documents = [{"path": item.path, "claimed": item.claimed, "found": item.actual} for item in differences]
    proofs = prove_added(session, registry, published)
    rows = [(item["path"], _short(item["claimed"]), _short(item["found"])) for item in documents]
    claims = ["", "what was claimed otherwise:", *table(("FIELD", "CLAIMED", "FOUND"), rows)] if rows else []
    remarks = [*proof_lines(proofs), *claims]
    report_published(session, published, remarks=remarks, differences=documents, proofs=proofs)
    offer_deltas_of(session, registry, published, deltas)


def _read(source: str, files: Path, workspace: Path, name: str, progress: bool) -> "tuple[Location, Adopted]":
    """Read a source into a workspace; `files` is an empty directory for links into the Hub's cache.

    External data of unusual names is downloaded once a graph names it.
    """
    from onnxreg.converters.importers.confine import Child
    from onnxreg.converters.importers.hub_repository import SCHEME, missing_data

    location, further = _locate(source, progress), set[str]()
    while True:
        with Child() as child:
            directory = _directory(location, files / str(len(further)))
            try:
                return location, child.take(directory, workspace, name=name)
            except InputError as error:
                missing = missing_data(error, directory) - further
                if location.hub_id is None or not missing:
                    raise
        further |= missing
        location = _locate(f"{SCHEME}{location.hub_id}@{location.revision}", progress, further)


def _locate(source: str, progress: bool, further: Collection[str] = ()) -> "Location":
    """The directory of a source; a repository of the Hub is downloaded, with `further` files."""
    from onnxreg.converters.importers.hub_repository import SCHEME, fetch_repository
    from onnxreg.converters.source.location import Location

    is_url = source.startswith(SCHEME)
    return fetch_repository(source, progress, further) if is_url else Location(Path(source))


def _directory(location: "Location", target: Path) -> Path:
    """The directory to read. Links into the Hub's cache are replaced by files in `target`."""
    from onnxreg.converters.importers.hub_repository import resolve_links
    from onnxreg.converters.source.location import is_snapshot

    snapshot = location.directory
    return resolve_links(snapshot, target) if is_snapshot(snapshot) else snapshot


def _short(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

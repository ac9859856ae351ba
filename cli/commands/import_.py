"""`reg import`: adopting a directory that OpenMed's converter or `--output` wrote, or a model package of ONNX Runtime."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.delta_options import releases_of
from onnxreg.cli.options.shared import Json, NewName, NewVersion
from onnxreg.cli.render.output import table
from onnxreg.cli.reports.publish_report import announce
from onnxreg.cli.services.delta_offers import offer_published
from onnxreg.schema.core.version import Version

EXAMPLES = (
    "reg import ./openmed-export --name acme/pii-small --version 1.0.0",
    "reg import ./pulled --name acme/pii-small",
    "reg import ./pii-small.ortpackage --name acme/pii-small",
)


def command(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(help="A directory that OpenMed or --output wrote, or a model package.")
    ],
    name: NewName,
    version: NewVersion = None,
    as_json: Json = False,
) -> None:
    """Adopt a directory that OpenMed wrote (openmed-onnx.json of version 1), trusting none of its claims.

    Or import a model package of ONNX Runtime (manifest.json of schema 1.0): every digest in it is checked,
    each model file becomes an artifact, and the files of shared assets belong to all artifacts. See
    docs/ort-packages.md.

    Or import what `reg pull --output` and `reg export --output` wrote (version 2): the same files give the
    same manifest digest, and a changed file is an integrity error.

    Digests, sizes, contracts and operators are read again; differences from the claims are listed.

    With --json: {ref, name, version, digest, manifest, states, output, differences: [{path, claimed,
    found}]}.
    """
    session: Session = context.obj
    new_version = None if version is None else Version.parse(version)
    releases = releases_of(None)
    from onnxreg.converters.importers.confine import Child

    with Child() as child:
        registry = session.open(create=None)
        with registry.workspace() as workspace:
            draft, differences = child.take(directory, workspace, name=name)
            published = registry.add(draft, new_version)
    documents = [{"path": item.path, "claimed": item.claimed, "found": item.actual} for item in differences]
    announce(session, published, as_json, differences=documents)
    if documents and not as_json:
        session.say("", "what was claimed otherwise:")
        rows = [(item["path"], _short(item["claimed"]), _short(item["found"])) for item in documents]
        session.say(*table(("FIELD", "CLAIMED", "FOUND"), rows))
    offer_published(session, registry, published, releases, as_json)


def _short(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""`reg dossier`: a version's documentation for auditors."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, RefArgument, RemoteOption
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg dossier acme/pii-small:1.2.0 --output ./dossier",
    "reg dossier acme/pii-small:stable --profile eu-annex-iv --facts owner.yaml --output ./dossier",
    "reg dossier acme/pii-small --profile ./ours.yaml --remote origin --output ./dossier",
)


def command(
    session: Session,
    ref: RefArgument,
    directory: Annotated[
        Path, typer.Option("--output", help="A new directory, or that of an earlier dossier.", metavar="DIR")
    ],
    profile: Annotated[
        str, typer.Option(help="plain, eu-annex-iv, or a .yaml file: the table of sections and fields.")
    ] = "plain",
    facts: Annotated[
        Path | None,
        typer.Option(help="What only a person can state, a YAML file."),
    ] = None,
    remote: RemoteOption = None,
    as_json: Json = False,
) -> None:
    """Write the dossier of a version: a page to print, and the same as JSON.

    Each generated statement cites the digest of the blob or of the log line that it follows from, and the
    place in it. A field that only a person can fill in is taken from --facts, or says `not provided`. If
    REF names a channel, the history is that of this channel, else of all that ever pointed to the version.
    The same registry, facts, profile and trust file give the same bytes. It is a template, not legal
    advice. See docs/dossier.md.

    With --json: {ref, manifest, profile, output, files: {name: digest}, fields: {generated, owner,
    absent}}.
    """
    from onnxreg.registry.dossier.dossier import make_dossier, write_dossier, written_files
    from onnxreg.registry.support.environment import default_root
    from onnxreg.registry.transfer.export_files import check_target

    check_target(directory, session.registry or default_root(), written_files, "dossier")
    bundle = make_dossier(session.reader(remote), Ref.parse(ref), profile, facts)
    write_dossier(bundle, directory)
    counts = Counter(field["origin"] for section in bundle.dossier["sections"] for field in section["fields"])
    subject = bundle.dossier["subject"]
    document = {
        "ref": f"{subject['name']}:{subject['version']}",
        "manifest": subject["manifest"],
        "profile": bundle.dossier["profile"]["name"],
        "output": str(directory),
        "files": {name: str(Digest.of(data)) for name, data in sorted(bundle.files.items())},
        "fields": {origin: counts[origin] for origin in ("generated", "owner", "absent")},
    }
    session.show(
        document,
        f"written to {directory}: {counts['generated']} fields from the registry, {counts['owner']} from the owner, "
        f"{counts['absent']} empty",
    )

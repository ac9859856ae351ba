"""`reg sbom` and `reg dossier`: write documents about a version, for other programs and for auditors."""

import json
import re
from collections import Counter
from pathlib import Path

from onnxreg.cli.options import REF, REMOTE, Session, flag, option
from onnxreg.cli.output import write_file, write_json
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg sbom acme/pii-small:1.2.0 --output pii-small.cdx.json",
    "reg sbom acme/pii-small --remote origin --timestamp 2026-01-31T12:00:00Z",
    "reg dossier acme/pii-small:1.2.0 --output ./dossier",
    "reg dossier acme/pii-small:stable --profile eu-annex-iv --facts owner.yaml --output ./dossier",
)

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def sbom(
    session: Session,
    ref: str = REF,
    remote: str | None = REMOTE,
    out: Path | None = option("Write to this file.", "--output"),
    timestamp: str | None = option("The bill's time, such as 2026-01-31T12:00:00Z; default: none."),
    proofs: bool = flag("Add the verdicts of recorded proofs (`reg prove --attest`), each with its signer."),
) -> None:
    """Print a version's bill of materials: CycloneDX 1.6 with model cards (ML-BOM), as JSON.

    It has every file with its SHA-256, the source, tools and steps, and each artifact's quantization, recall and
    certification. Without --timestamp the same version gives the same bytes (docs/sbom.md).

    With --json and --output nothing is printed.
    """
    from onnxreg.registry.log.contents import read_version
    from onnxreg.registry.trust.known_heads import load_trust
    from onnxreg.registry.trust.signatures import latest_proofs
    from onnxreg.schema.formats.sbom import bill
    from onnxreg.schema.log.events import check_time

    if timestamp is not None:
        if not TIME.fullmatch(timestamp):
            raise InputError(f"not a time: {timestamp[:40]!r}", "write --timestamp 2026-01-31T12:00:00Z")
        check_time(timestamp)
    published = read_version(session.reader(remote), Ref.parse(ref), yanked=True)
    subject = (published.digest, published.manifest)
    recorded = latest_proofs(published.log.check(), *subject, load_trust()) if proofs else {}
    value = bill(
        published.manifest, published.digest, published.version, published.states, timestamp, recorded
    )
    if out is None:
        write_json(value)
    else:
        write_file(out, f"{json.dumps(value, indent=2)}\n".encode())
        session.say(f"written to {out}")


def dossier(
    session: Session,
    ref: str = REF,
    directory: Path = option(
        "A new directory, or an earlier dossier.", "--output", default=..., metavar="DIR"
    ),
    profile: str = option("plain, eu-annex-iv, or a .yaml file of sections and fields.", default="plain"),
    facts: Path | None = option("A YAML file with the statements that only a person can make."),
    remote: str | None = REMOTE,
) -> None:
    """Write the dossier of a version: a page to print, and the same content as JSON.

    Each statement cites the digest of the blob or log line that it follows from. Fields that only a person can fill in
    come from --facts, or say `not provided`. The same inputs give the same bytes. A dossier is a template, not legal
    advice (docs/dossier.md).

    With --json: {ref, manifest, profile, output, files: {name: digest}, fields: {generated, owner, absent}}.
    """
    from onnxreg.registry.dossier.dossier import DOCUMENT, FILES, make_dossier, write_dossier
    from onnxreg.registry.transfer.export_files import check_target

    earlier = {*FILES} if (directory / DOCUMENT).is_file() else set()
    check_target(directory, session.root, lambda _: earlier, "dossier")
    files = make_dossier(session.reader(remote), Ref.parse(ref), profile, facts)
    write_dossier(files, directory)
    dossier = json.loads(files[DOCUMENT])
    counts = Counter(field["origin"] for section in dossier["sections"] for field in section["fields"])
    subject = dossier["subject"]
    document = {"ref": f"{subject['name']}:{subject['version']}", "manifest": subject["manifest"]}
    session.show(
        document
        | {"profile": dossier["profile"]["name"], "output": directory}
        | {"files": {name: Digest.of(data) for name, data in sorted(files.items())}}
        | {"fields": {origin: counts[origin] for origin in ("generated", "owner", "absent")}},
        f"written to {directory}: {counts['generated']} fields from the registry, {counts['owner']} from the owner, "
        f"{counts['absent']} empty",
    )

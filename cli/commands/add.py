"""`reg add` and `reg import`: make versions from existing model files, or from models that others published."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.options import DESCRIPTION, LICENSE, VERSION, Session, argument, option, pairs
from onnxreg.cli.output import fields, printable, shortened, table
from onnxreg.cli.versions import report_published
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.ref import Version

if TYPE_CHECKING:
    from onnxreg.registry.log.contents import Release
    from onnxreg.registry.registry import Registry

EXAMPLES = (
    "reg add model.onnx config.json tokenizer.json --name acme/ner",
    "reg add model.onnx model.onnx.golden.json --name acme/ner",
    "reg add --member detector=det.onnx --member recognizer=rec.onnx --name acme/ocr",
    "reg add model.onnx --name acme/ner --license Apache-2.0 --task token-classification --description 'Names in letters'",
    "reg add model.onnx model_int8.onnx --parent model.onnx --name acme/ner",
    "reg add model.ort model.required_operators_and_types.config --name acme/ner --version 1.0.0",
    "reg import ./openmed-export --name acme/pii-small --version 1.0.0",
    "reg import hf://onnx-community/bert-base-NER-ONNX --name acme/ner",
    "reg import oci://ghcr.io/acme/pii-small:1.2.0",
    "reg import ./pulled --name acme/pii-small",
)


def _task(text: str) -> str:
    from onnxreg.converters.tasks.task import HEADS
    from onnxreg.converters.tasks.task_catalog import find

    other = (head.task for head in HEADS if head.way and text in (head.task, *head.aliases))
    return next(other, None) or find(text, "leave --task out").id


def add(
    session: Session,
    name: str = option("The model's name: NAME or ORG/NAME.", default=...),
    files: list[Path] | None = argument("Models (.onnx, .ort) and their companions.", "[FILE]..."),
    members: list[str] | None = option(
        "A model that works together with others, under this name; may be repeated.",
        "--member",
        metavar="NAME=FILE",
    ),
    version: Version | None = VERSION,
    format: str | None = option("The format's name; default: the format that is read from the file."),
    precision: str | None = option("The precision, if the weights do not show it."),
    parent: Path | None = option(
        "The file from which the other files were made; a proof compares each of them with it."
    ),
    license: str | None = LICENSE,
    task: str | None = option(
        "What the model is for, such as token-classification; default: as config.json says.",
        parser=_task,
        metavar="TASK",
    ),
    description: str | None = DESCRIPTION,
) -> None:
    """Register existing .onnx or .ort files; the contract and the operators are read from them.

    The models of a version are alternatives with the same inputs and outputs. Models that work together are members:
    --member detector=det.onnx --member recognizer=rec.onnx (docs/pipelines.md).

    With --parent, a verdict for each other file says if its weights are the rounded weights of the parent.

    If a version with the same manifest exists, the command adds nothing, and reports the existing version. With a new
    --version, it publishes the manifest once more, under this number.

    With --json: {ref, name, version, digest, manifest, states, yanked, output}. states maps a file's path to its
    certification state. yanked is null or {version, reason}. output is null. With --parent there is a key proofs:
    [{path, parent, verdict, reasons}].
    """
    named = _members(members)
    if not files and not named:
        raise InputError("no file is named", "name at least one model file")
    from onnxreg.converters.importers.confine import Child

    with Child() as child:
        registry = session.open(create=None)
        with registry.workspace() as workspace:
            draft, _ = child.adopt(
                source=[*(files or ()), *named],
                workspace=workspace,
                name=name,
                format=format,
                precision=precision,
                members=named,
                parent=parent,
            )
            statements = {"license": license, "task": task, "description": description}
            stated = {key: text for key, text in statements.items() if text is not None}
            draft = replace(draft, fields={**draft.fields, **stated})
            published = registry.add(draft, version)
    for warning in draft.warnings:
        session.warn(f"warning: {warning}")
    proofs = [] if parent is None else _prove(session, registry, published)
    more: dict[str, Any] = {} if parent is None else {"proofs": proofs}
    report_published(session, published, remarks=_proof_lines(proofs), **more)


def _members(texts: list[str] | None) -> dict[Path, str]:
    from onnxreg.schema.manifest.family import check_member

    members: dict[Path, str] = {}
    for name, file in pairs(texts, "--member NAME=FILE", "the name is of your choice, such as detector"):
        if members.setdefault(Path(file), check_member(name)) != name:
            raise InputError(f"{file} is {members[Path(file)]} and {name}", "a file is of one member")
    return members


def import_(
    session: Session,
    source: str = argument(
        "A directory (of OpenMed, of --output, or a model repository), hf://ORG/NAME[@REVISION], or oci://HOST/REPOSITORY:TAG.",
        "SOURCE",
    ),
    name: str | None = option("The model's name: NAME or ORG/NAME; required unless from oci://."),
    version: Version | None = VERSION,
    statements: bool | None = option(
        "From oci://: record the signatures and evaluations of the version, too; each is a line, signed by your key "
        "if one is set. By default they are recorded if no key is set. If a key is set, one of the two options is required."
    ),
) -> None:
    """Make a version from a directory of OpenMed or the Hub, or an OCI registry.

    SOURCE is a directory that OpenMed wrote, a model repository in a usual layout (docs/hub.md), a directory that `reg
    pull --output` wrote, or a version that `reg push` put into an OCI registry.

    Digests, sizes, contracts and operators are computed again. Differences from what SOURCE states are listed. If the
    directory has the parent of an artifact, a verdict says if the artifact is the parent with rounded weights.

    With --json: the document of `reg add` with two more keys, differences: [{path, claimed, found}] and proofs. If
    SOURCE is oci://, proofs is missing.
    """
    if source.startswith("oci://"):
        from onnxreg.registry.oci import fetch_version

        with session.progress(f"importing {source}") as moving:
            registry = session.open(create=None)
            published = fetch_version(registry.publisher(version), source, name, moving, statements)
        report_published(session, published, differences=[])
        return
    if name is None:
        raise InputError("the model's name is missing", "add --name ORG/NAME")
    from onnxreg.converters.importers.confine import adopt_source

    progress = not (session.quiet or session.as_json) and sys.stderr.isatty()
    registry = session.open(create=None)
    with registry.workspace() as workspace:
        draft, differences = adopt_source(source, workspace, name=name, progress=progress)
        published = registry.add(draft, version)
    for warning in draft.warnings:
        session.warn(f"warning: {warning}")
    documents = [fields(item, "path claimed found=actual") for item in differences]
    proofs = _prove(session, registry, published)
    rows = [(item["path"], shortened(item["claimed"]), shortened(item["found"])) for item in documents]
    claims = ["", "what was claimed otherwise:", *table(("FIELD", "CLAIMED", "FOUND"), rows)] if rows else []
    remarks = [*_proof_lines(proofs), *claims]
    report_published(session, published, remarks=remarks, differences=documents, proofs=proofs)


def _prove(session: Session, registry: "Registry", published: "Release") -> list[dict[str, Any]]:
    """Compare each artifact of a new version with its parent. Return the proofs. After an error, warn and return []."""
    if not any(artifact.parent for artifact in published.manifest.artifacts):
        return []
    from onnxreg.cli.services import prove_version

    try:
        with session.progress("comparing with the parent") as progress:
            proofs = list(prove_version(registry.store, published, progress=progress))
    except RegError as error:
        session.warn(f"warning: no proof: {error.message}")
        return []
    return [fields(proof, "path parent verdict=report.verdict reasons=report.reasons") for proof in proofs]


def _proof_lines(proofs: list[dict[str, Any]]) -> Iterator[str]:
    for proof in proofs:
        reason = f": {printable(proof['reasons'][0])}" if proof["reasons"] else ""
        yield f"{proof['path']} is {proof['verdict']} from {proof['parent']} (reg prove){reason}"

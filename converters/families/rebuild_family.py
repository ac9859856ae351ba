"""A family made again from the files that its manifest records the digests of."""

from pathlib import Path
from typing import Any

from onnxreg.converters.engine.read_recipe import RecipeDocument
from onnxreg.converters.engine.recorded_files import check_code
from onnxreg.converters.families import factory_backbone
from onnxreg.converters.families.export_family import make_family
from onnxreg.converters.families.family_document import DOCUMENT, read, record, source_digest
from onnxreg.converters.tasks.code.consent import Consent
from onnxreg.schema.core.errors import Advice, InputError, NotFoundError
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.tolerance import differences
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

FILE = "family.yaml"
"""The document's name in a directory that is named in its place."""


def rebuild(
    manifest: Manifest,
    what: str,
    document: str | None,
    workspace: Path,
    progress: Progress,
    consent: Consent,
) -> Draft:
    """Make the members of a family again, which `what` names; limits are not judged again, and nothing is timed.

    Args:
        document: the path of the family's document, or of the directory that holds it; its paths are relative to it.
        consent: the code that may run, if it is what was recorded.

    Raises NotFoundError where the manifest records no document, InputError where that or a file is another than recorded, and
    what `make_family` raises.
    """
    recorded = _recorded(manifest, what)
    if document is None:
        raise InputError(f"{what} is a family, made from a document", Advice("name-family"))
    path = Path(document) / FILE if Path(document).is_dir() else Path(document)
    asked = read(RecipeDocument.read(path), manifest.name)
    if asked is None:
        raise InputError(f"{path.name} describes no family", f"give the document that {what} was made from")
    progress.step("checking the document and its files")
    _check(manifest, recorded, asked, path)
    return make_family(asked, path.parent, workspace, progress, consent).draft


def _recorded(manifest: Manifest, what: str) -> dict[str, Any]:
    recipe = manifest.recipe
    if recipe is None or DOCUMENT not in recipe.parameters:
        raise NotFoundError(
            f"{what} has no recipe to run again: it does not record the document of its family",
            "export that document again: equal files give an equal manifest, whose digest says so",
        )
    found: dict[str, Any] = recipe.to_json()["parameters"][DOCUMENT]
    return found


def _check(manifest: Manifest, recorded: dict[str, Any], asked: FamilyFile, path: Path) -> None:
    """InputError for the first thing that is another than was recorded."""
    if other := next(differences(recorded, record(asked, path.parent)), None):
        where, before, here = other
        raise InputError(
            f"{path.name} is not what {manifest.name} was made from: {where} is {here}, recorded is {before}"
        )
    factory = factory_backbone.find(asked.backbone, path.parent)
    if factory is not None and manifest.recipe is not None:
        check_code(manifest.recipe.code, factory.code, manifest.name)
    source = source_digest(asked, path.parent)
    if manifest.source is None or manifest.source.digest != source:
        known = None if manifest.source is None else manifest.source.digest
        raise InputError(
            f"the checkpoints of {path.name} are not those that {manifest.name} was made from: {source}, recorded is {known}",
            "give the files as they were exported",
        )

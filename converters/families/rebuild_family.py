"""A family made again from the files that its manifest records the digests of."""

from pathlib import Path
from typing import Any

from onnxreg.converters.engine.read_recipe import RecipeDocument
from onnxreg.converters.engine.recorded_files import check_code
from onnxreg.converters.families.family_plan import DOCUMENT, FamilyPlan, plan_family, read_family
from onnxreg.converters.tasks.code.consent import Consent
from onnxreg.schema.core.errors import Advice, InputError, NotFoundError
from onnxreg.schema.core.tolerance import differences
from onnxreg.schema.manifest.manifest import Manifest

FILE = "family.yaml"
"""Name of the document in a directory that is given in its place."""


def plan_rebuild(manifest: Manifest, label: str, source: str | None, consent: Consent) -> FamilyPlan:
    """Plan the family that a manifest records.

    Raises NotFoundError if the manifest records no document, InputError if the document or a file differs
    from the recorded one.

    Args:
        label: name of the version in messages.
        source: the path of the family's document, or of the directory that has it.
        consent: the code that may run, if it is the recorded code.
    """
    recorded = _recorded(manifest, label)
    if source is None:
        raise InputError(f"{label} is a family, made from a document", Advice("name-family"))
    path = Path(source) / FILE if Path(source).is_dir() else Path(source)
    document = RecipeDocument.read(path)
    if not document.is_family:
        raise InputError(f"{path.name} describes no family", f"give the document that {label} was made from")
    plan = plan_family(read_family(document, manifest.name), path.parent, consent)
    _check(manifest, recorded, plan, path.name)
    return plan


def _recorded(manifest: Manifest, label: str) -> dict[str, Any]:
    recipe = manifest.recipe
    if recipe is None or DOCUMENT not in recipe.parameters:
        raise NotFoundError(
            f"{label} has no recipe to run again: it does not record the document of its family",
            "export that document again: equal files give an equal manifest, whose digest says so",
        )
    recorded: dict[str, Any] = recipe.to_json()["parameters"][DOCUMENT]
    return recorded


def _check(manifest: Manifest, recorded: dict[str, Any], plan: FamilyPlan, file: str) -> None:
    """Raise InputError for the first difference from the record."""
    if other := next(differences(recorded, plan.recorded), None):
        key, before, now = other
        raise InputError(
            f"{file} is not what {manifest.name} was made from: {key} is {now}, recorded is {before}"
        )
    if plan.factory is not None and manifest.recipe is not None:
        check_code(manifest.recipe.code, plan.factory.code, manifest.name)
    source = None if manifest.source is None else manifest.source.digest
    if source != plan.source:
        raise InputError(
            f"the checkpoints of {file} are not those that {manifest.name} was made from: "
            f"{plan.source}, recorded is {source}",
            "give the files as they were exported",
        )

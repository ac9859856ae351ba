"""Running the recipe that a version recorded, from the source that it recorded and no other."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from onnxreg.converters.evaluation.suite import load as load_suite
from onnxreg.converters.profiles import catalog
from onnxreg.converters.recipes.contract import Contract
from onnxreg.converters.recipes.execute import execute
from onnxreg.converters.recipes.order import place_order
from onnxreg.converters.sourcefiles import digest_files, locate, taking_part
from onnxreg.schema.digest import Digest
from onnxreg.schema.draft import Draft
from onnxreg.schema.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.reading import mapping, text
from onnxreg.schema.recipe import Recipe
from onnxreg.schema.recipe_file import RecipeFile

RECIPE = "recipe"
"""The profile of a recipe that is none of a profile."""


@dataclass(frozen=True)
class Materials:
    """What a rebuild is given: the checkpoint (None: the hub's, as recorded), the evaluation suite, leave to run code."""

    source: str | None = None
    suite: Path | None = None
    trust_remote_code: bool = False


def rebuild(
    manifest: Manifest,
    what: str,
    materials: Materials,
    workspace: Path,
    report: Callable[[str], None] = lambda step: None,
) -> Draft:
    """Run the recipe of a manifest into `workspace`. `what` is how people call the version.

    Raises NotFoundError where it has no recipe that can be run, InputError where source or suite are others than those
    recorded, and whatever the profile's export raises.
    """
    recipe, asked = _recipe(manifest, what)
    if recipe.trust_remote_code and not materials.trust_remote_code:
        raise InputError(
            f"{what} was made with the checkpoint's own code", "read that code, then pass --trust-remote-code"
        )
    suite = _check_suite(manifest, recipe, what, materials.suite)
    report("checking the source")
    source = _check_source(manifest, recipe, what, materials.source)
    contract = _contract(recipe, suite)
    trusted = recipe.trust_remote_code
    order = place_order(asked, source, manifest.name, trust_remote_code=trusted, contract=contract)
    return execute(order.recorded_as(manifest.source), workspace, report=report)


def _recipe(manifest: Manifest, what: str) -> tuple[Recipe, RecipeFile]:
    recipe = manifest.recipe
    if recipe is None or "recipe" not in recipe.parameters:
        told = "it records none" if recipe is None else f"it was made by {recipe.profile}"
        hint = "what reg add and reg import adopt cannot be rebuilt; what reg export makes can"
        if manifest.model_family is not None:
            hint = "export its document again: equal files give an equal manifest, whose digest says so"
        raise NotFoundError(f"{what} has no recipe to run again: {told}", hint)
    try:
        asked = RecipeFile.from_json(recipe.parameters["recipe"], f"the recipe of {what}")
    except InputError as error:
        raise IntegrityError(error.message) from error
    if (
        recipe.profile != RECIPE
        and (known := catalog.find(recipe.profile).recipe().profile_version) != recipe.profile_version
    ):
        raise InputError(
            f"{what} was made by {recipe.profile} v{recipe.profile_version}, this build has v{known}",
            "install the onnxreg that made it",
        )
    return recipe, asked


def _contract(recipe: Recipe, suite: Path | None) -> Contract:
    if recipe.profile == RECIPE:
        return Contract()
    try:
        return catalog.find(recipe.profile).contract(recipe.parameters, suite)
    except InputError as error:
        raise IntegrityError(
            f"the recipe is none of the {recipe.profile} profile: {error.message}"
        ) from error


def _check_suite(manifest: Manifest, recipe: Recipe, what: str, given: Path | None) -> Path | None:
    """The suite, where the version was evaluated on one. InputError where it is another, or missing, or not needed."""
    recorded = recorded_suite(manifest, recipe)
    if recorded is None and given is not None:
        raise InputError(f"{what} was not evaluated", "leave --eval-suite out")
    if recorded is not None and given is None:
        raise InputError(f"{what} was evaluated on the suite {recorded}", "name that file: --eval-suite FILE")
    if given is not None and (found := load_suite(given).digest) != recorded:
        raise InputError(f"{given} is another suite: {found}; recorded is {recorded}")
    return given


def recorded_suite(manifest: Manifest, recipe: Recipe) -> Digest | None:
    """The digest of the suite that a version was evaluated on. IntegrityError where the recipe is malformed."""
    try:
        told = mapping(recipe.parameters.get("evaluation", {})).get("suite")
        if told is not None:
            return Digest.parse(text(told))
    except InputError as error:
        raise IntegrityError(f"the recipe names no suite that can be read: {error.message}") from error
    found = (item.certification.evidence for item in manifest.artifacts)
    return next((each.suite for each in found if each is not None and each.suite is not None), None)


def _check_source(manifest: Manifest, recipe: Recipe, what: str, given: str | None) -> str:
    """The directory of the checkpoint, whose files are those recorded."""
    recorded = manifest.source
    if recorded is None or recorded.digest is None:
        raise NotFoundError(f"{what} does not say what it was made from", "it cannot be rebuilt")
    if given is None and recorded.revision is None:
        raise InputError(f"{what} was made from a directory", "name the checkpoint: --source DIR")
    code = recipe.trust_remote_code
    directory = locate(given or f"{recorded.id}@{recorded.revision}", code).directory
    names = taking_part(directory, code)
    if not names:
        raise InputError(
            f"there is no checkpoint in {given}", "give the directory that save_pretrained wrote"
        )
    found = digest_files(directory, names)
    if found != recorded.digest:
        raise InputError(
            f"this is another source than {what} was made from: {', '.join(names)} "
            f"have the digest {found}, recorded is {recorded.digest}",
            f"give the files of {recorded.id} as they were exported",
        )
    return str(directory)

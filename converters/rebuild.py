"""Running the recipe that a version recorded, from the source that it recorded and no other."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnxreg.converters.android.android_profile import INT8
from onnxreg.converters.android.android_recipe import evaluation_of
from onnxreg.converters.engine.plan import ExportPlan, ProfilePromises, plan_export
from onnxreg.converters.engine.read_recipe import RecipeDocument
from onnxreg.converters.engine.recorded_files import check_code, check_data, with_data
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.evaluation.metrics.spans import MinimumEvidence
from onnxreg.converters.evaluation.suite import read_bytes
from onnxreg.converters.families.export_family import make_family
from onnxreg.converters.families.family_plan import DOCUMENT, FamilyPlan, plan_family, read_family
from onnxreg.converters.profiles import profile_catalog
from onnxreg.converters.source.location import HUB_ID
from onnxreg.converters.tasks.code import Consent
from onnxreg.schema.compare.rebuild_outcome import differences
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, about
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.inputs.recipe_file import RecipeFile
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.parts import Recipe

RECIPE = "recipe"
"""The profile of a recipe that belongs to no profile."""


@dataclass(frozen=True)
class Materials:
    """The inputs of a rebuild: the source (None: as recorded), the evaluation suite, consent to code.

    The source of a family is its document, or the directory that holds it as `family.yaml`; that of a version
    whose module a function made is the directory that holds its code and its checkpoint, or that function.
    `trust_remote_code` is for code that a checkpoint of transformers brings, `allow_code` for functions by
    name, as `plan_export` takes them.

    `data` are files that the recipe records by digest: a step's data by the step's name, what an option of
    the task names as `options.<key>`.
    """

    source: str | None = None
    suite: Path | None = None
    trust_remote_code: bool = False
    data: Mapping[str, Path] = field(default_factory=dict)
    allow_code: Collection[str] = ()

    @property
    def folder(self) -> Path | None:
        """The source, if it is a directory."""
        return None if self.source is None or not Path(self.source).is_dir() else Path(self.source)

    @property
    def consent(self) -> Consent:
        return Consent.of(self.allow_code, self.source, is_recorded=True)


def rebuild(
    manifest: Manifest,
    label: str,
    materials: Materials,
    workspace: Path,
    progress: Progress = SILENT,
) -> Draft:
    """Run the recipe of a manifest into `workspace`. `label` is how people call the version.

    Raises NotFoundError if it has no recipe that can be run, InputError if source, suite or data are not the
    recorded ones, and what the export raises. Limits of a family are not judged again, and nothing is timed.
    """
    if manifest.model_family is not None and not manifest.stages:
        progress.step("checking the document and its files")
        return make_family(_plan_family(manifest, label, materials), workspace, progress)[0]
    return execute(_plan(manifest, label, materials, progress), workspace, progress=progress)


def _plan(manifest: Manifest, label: str, materials: Materials, progress: Progress) -> ExportPlan:
    """The plan of the recorded recipe, its source and data compared with the recorded ones."""
    recipe = _recipe(manifest, label)
    if recipe.trust_remote_code and not materials.trust_remote_code:
        raise InputError(
            f"{label} was made with the checkpoint's own code",
            "read that code, then pass --trust-remote-code",
        )
    suite = _check_suite(manifest, recipe, label, materials.suite)
    recorded = _read(recipe.parameters["recipe"], label).to_json()
    requested = _read(with_data(recorded, materials.data, label, materials.folder), label)
    if suite is not None:
        requested = _with_suite(requested, recipe, suite)
    _check_profile(recipe, label)
    progress.step("checking the source")
    source = _source(manifest, label, materials.source)
    promises = _promises(recipe, suite)
    trusted = recipe.trust_remote_code
    plan = plan_export(
        requested,
        source,
        manifest.name,
        trust_remote_code=trusted,
        promises=promises,
        allow_code=materials.consent,
    )
    plan = replace(plan, search=_search(recipe, label))
    check_code(recipe.code, plan.source.code, label)
    _check_source(plan, manifest, label)
    check_data(recorded, plan.recorded_recipe(), label)
    return plan.recorded_as(manifest.source)


def parent_digests(manifest: Manifest, label: str) -> dict[str, Digest]:
    """The files whose scales the steps of a version took, by step.

    Raises IntegrityError if its recipe is malformed.
    """
    recipe = manifest.recipe
    is_family = manifest.model_family is not None and not manifest.stages
    if is_family or recipe is None or "recipe" not in recipe.parameters:
        return {}
    steps = _read(recipe.parameters["recipe"], label).steps
    try:
        return {step.name: Digest.parse(step.scales_from) for step in steps if step.scales_from is not None}
    except InputError as error:
        raise IntegrityError(f"the recipe of {label} names a file, not the digest of one") from error


def _plan_family(manifest: Manifest, label: str, materials: Materials) -> FamilyPlan:
    if materials.suite is not None or materials.data:
        raise InputError(
            f"{label} is a family: its document names all rows",
            "name the document alone: --source family.yaml",
        )
    return plan_rebuild(manifest, label, materials.source, materials.consent)


def _recipe(manifest: Manifest, label: str) -> Recipe:
    recipe = manifest.recipe
    if recipe is None or "recipe" not in recipe.parameters:
        reason = "it records none" if recipe is None else f"it was made by {recipe.profile}"
        hint = "what reg add and reg import adopt cannot be rebuilt; what reg export makes can"
        raise NotFoundError(f"{label} has no recipe to run again: {reason}", hint)
    return recipe


def _read(value: Any, label: str) -> RecipeFile:
    try:
        return RecipeFile.from_json(value, f"the recipe of {label}")
    except InputError as error:
        raise IntegrityError(error.message) from error


def _search(recipe: Recipe, label: str) -> Mapping[str, Any] | None:
    """The record of the search that made a version, if one did. IntegrityError if it is malformed."""
    with about(f"the search of {label} cannot be read", IntegrityError):
        return convert(recipe.parameters.get("search") or {}, dict[str, Any], "it") or None


def _check_profile(recipe: Recipe, label: str) -> None:
    if recipe.profile == RECIPE:
        return
    if (current := profile_catalog.find(recipe.profile).recipe().profile_version) != recipe.profile_version:
        raise InputError(
            f"{label} was made by {recipe.profile} v{recipe.profile_version}, this build has v{current}",
            "install the onnxreg that made it",
        )


def _promises(recipe: Recipe, suite: Path | None) -> ProfilePromises:
    if recipe.profile == RECIPE:
        return ProfilePromises()
    with about(f"the recipe does not belong to the {recipe.profile} profile", IntegrityError):
        return profile_catalog.find(recipe.profile).contract(recipe.parameters, suite)


def _check_suite(manifest: Manifest, recipe: Recipe, label: str, path: Path | None) -> Path | None:
    """Check the suite, if the version was evaluated on one. InputError if it is wrong, missing or not needed."""
    recorded = recorded_suite(manifest, recipe)
    if recorded is None and path is not None:
        raise InputError(f"{label} was not evaluated", "leave --eval-suite out")
    if recorded is not None and path is None:
        raise InputError(
            f"{label} was evaluated on the suite {recorded}", "name that file: --eval-suite FILE"
        )
    if path is not None and (digest := Digest.of(read_bytes(path))) != recorded:
        raise InputError(f"{path} is another suite: {digest}; recorded is {recorded}")
    return path


def _with_suite(requested: RecipeFile, recipe: Recipe, suite: Path) -> RecipeFile:
    """Put the suite's path into the recipe.

    Before recipes had an evaluation, the android profile judged its INT8 file alone.
    """
    path = str(suite.absolute())
    if requested.evaluation is not None:
        return requested.with_keys(evaluation={**requested.evaluation.to_json(), "suite": path})
    settings = convert(recipe.parameters.get("evaluation", {}), dict[str, Any])
    value = evaluation_of(path, MinimumEvidence.read(settings))
    return requested.with_keys(evaluation={**value, "artifacts": [INT8]})


def recorded_suite(manifest: Manifest, recipe: Recipe) -> Digest | None:
    """The digest of the suite that a version was evaluated on. IntegrityError if the recipe is malformed."""
    with about("the recipe names no suite that can be read", IntegrityError):
        requested = convert(recipe.parameters.get("recipe", {}), dict[str, Any]).get("evaluation", {})
        suite = convert(recipe.parameters.get("evaluation", requested), dict[str, Any]).get("suite")
        if suite is not None:
            return Digest.parse(suite)
    evidences = (item.certification.evidence for item in manifest.artifacts)
    return next((evidence.suite for evidence in evidences if evidence and evidence.suite), None)


def _source(manifest: Manifest, label: str, source: str | None) -> str:
    recorded = manifest.source
    if recorded is None or recorded.digest is None:
        raise NotFoundError(f"{label} does not say what it was made from", "it cannot be rebuilt")
    if source is None and recorded.revision is None:
        raise InputError(f"{label} was made from a directory or file", "name it: --source PATH")
    return source or _on_hub(f"{recorded.id}@{recorded.revision}", label)


def _on_hub(name: str, label: str) -> str:
    """Return the recorded source on the hub. InputError for any other text, and for a path."""
    if not HUB_ID.fullmatch(name) or Path(name).exists():
        raise InputError(
            f"{label} records {name[:200]!r} as its source, "
            "which is a path here or cannot be a model on the hub",
            "name the files that it was made from: --source PATH",
        )
    return name


def _check_source(plan: ExportPlan, manifest: Manifest, label: str) -> None:
    """The task has hashed the source: its files must be those recorded."""
    recorded = manifest.source
    if recorded is not None and plan.source.digest != recorded.digest:
        names = ", ".join(sorted(path.name for path in plan.source.files or () if path.is_file()))
        raise InputError(
            f"the source differs from the one that {label} was made from: {names or 'its files'} "
            f"have digest {plan.source.digest}, expected {recorded.digest}",
            f"give the files of {recorded.id} as they were exported",
        )


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
        raise InputError(f"{label} is a family, made from a document", "name it: --source family.yaml")
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

"""Running the recipe that a version recorded, from the source that it recorded and no other.

A manifest holds no paths: the data of steps, and files that options of the task name, are recorded as digests. To
run the recipe again, name these files; they must have the recorded digests.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.plan import ExportPlan, ProfilePromises, plan_export
from onnxreg.converters.engine.read_recipe import RecipeDocument
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.evaluation.suite import read_bytes
from onnxreg.converters.families.export_family import make_family
from onnxreg.converters.families.family_plan import DOCUMENT, FamilyPlan, plan_family, read_family
from onnxreg.converters.profiles import profile_catalog
from onnxreg.converters.source.location import HUB_ID
from onnxreg.converters.source.source_files import below, digest_file
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.code import Consent
from onnxreg.schema.compare.rebuild_outcome import differences
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, about
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.inputs.recipe_file import RecipeFile
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.parts import Code, Recipe

RECIPE = "recipe"
"""The profile of a recipe that belongs to no profile."""
FAMILY_FILE = "family.yaml"
"""Name of a family's document in a directory that is given in its place."""
OPTION_PREFIX = "options."
STEP_FILES = ("data", "scales_from")
"""Keys of a step that name a file; a step has one of them at most."""
UNRECORDED_KEYS = ("source", "name")
"""Keys of a recipe that depend on the machine, and that a manifest never has."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Materials:
    """The inputs of a rebuild: the source (None: as recorded), the evaluation suite, consent to code.

    The source of a family is its document, or the directory that holds it as `family.yaml`; that of a version
    whose module a function made is the directory that holds its code, or that function. `trust_remote_code` is for
    code that a checkpoint of transformers brings, `allow_code` for functions by name, as `plan_export` takes them.

    `data` are files that the recipe records by digest: a step's data by the step's name, what an option of
    the task names as `options.<key>`.
    """

    source: str | None = None
    suite: Path | None = None
    trust_remote_code: bool = False
    data: Mapping[str, Path] = field(default_factory=dict)
    allow_code: Collection[str] = ()


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
    if _is_family(manifest):
        progress.step("checking the document and its files")
        return make_family(_plan_family(manifest, label, materials), workspace, progress)[0]
    return execute(_plan(manifest, label, materials, progress), workspace, progress=progress)


def parent_digests(manifest: Manifest, label: str) -> dict[str, Digest]:
    """The files whose scales the steps of a version took, by step.

    Raises IntegrityError if its recipe is malformed.
    """
    recipe = manifest.recipe
    if _is_family(manifest) or recipe is None or "recipe" not in recipe.parameters:
        return {}
    steps = _read(recipe.parameters["recipe"], label).steps
    with about(f"the recipe of {label} names a file, not the digest of one", IntegrityError):
        return {step.name: Digest.parse(step.scales_from) for step in steps if step.scales_from is not None}


def recorded_suite(recipe: Recipe) -> Digest | None:
    """The digest of the suite that a version was evaluated on. IntegrityError if the recipe is malformed."""
    with about("the recipe names no suite that can be read", IntegrityError):
        requested = convert(recipe.parameters.get("recipe", {}), dict[str, Any]).get("evaluation", {})
        suite = convert(requested, dict[str, Any]).get("suite")
        return None if suite is None else Digest.parse(suite)


def _is_family(manifest: Manifest) -> bool:
    return manifest.model_family is not None and not manifest.stages


def _plan(manifest: Manifest, label: str, materials: Materials, progress: Progress) -> ExportPlan:
    """The plan of the recorded recipe, its source and data compared with the recorded ones."""
    recipe = manifest.recipe
    if recipe is None or "recipe" not in recipe.parameters:
        reason = "it records none" if recipe is None else f"it was made by {recipe.profile}"
        hint = "what reg add and reg import adopt cannot be rebuilt; what reg export makes can"
        raise NotFoundError(f"{label} has no recipe to run again: {reason}", hint)
    if recipe.trust_remote_code and not materials.trust_remote_code:
        raise InputError(
            f"{label} was made with the checkpoint's own code",
            "read that code, then pass --trust-remote-code",
        )
    _check_suite(recipe, label, materials.suite)
    recorded = _read(recipe.parameters["recipe"], label).to_json()
    value = _with_data(recorded, materials, label)
    if materials.suite is not None:
        value["evaluation"] = {**value["evaluation"], "suite": str(materials.suite.absolute())}
    promises = ProfilePromises()
    if recipe.profile != RECIPE:
        profile = profile_catalog.find(recipe.profile)
        if (version := profile.recipe().profile_version) != recipe.profile_version:
            raise InputError(
                f"{label} was made by {recipe.profile} v{recipe.profile_version}, this build has v{version}",
                "install the onnxreg that made it",
            )
        with about(f"the recipe does not belong to the {recipe.profile} profile", IntegrityError):
            promises = profile.contract(recipe.parameters, materials.suite)
    progress.step("checking the source")
    plan = plan_export(
        _read(value, label),
        _source(manifest, label, materials.source),
        manifest.name,
        trust_remote_code=recipe.trust_remote_code,
        promises=promises,
        allow_code=Consent.of(materials.allow_code, materials.source, is_recorded=True),
    )
    with about(f"the search of {label} cannot be read", IntegrityError):
        search = convert(recipe.parameters.get("search") or {}, dict[str, Any], "it") or None
    _check_code(recipe.code, plan.source.code, label)
    origin = manifest.source
    if origin is not None and plan.source.digest != origin.digest:
        names = ", ".join(sorted(path.name for path in plan.source.files or () if path.is_file()))
        raise InputError(
            f"the source differs from the one that {label} was made from: {names or 'its files'} "
            f"have digest {plan.source.digest}, expected {origin.digest}",
            f"give the files of {origin.id} as they were exported",
        )
    digests = dict(_digests(plan.recorded_recipe()))
    for name, digest in _digests(recorded):
        if digests.get(name) != digest:
            raise InputError(
                f"the data {name} are not those that {label} was made with: {digests.get(name)}, recorded is {digest}"
            )
    return replace(plan, search=search).recorded_as(origin)


def _read(value: Any, label: str) -> RecipeFile:
    try:
        return RecipeFile.from_json(value, f"the recipe of {label}")
    except InputError as error:
        raise IntegrityError(error.message) from error


def _check_suite(recipe: Recipe, label: str, path: Path | None) -> None:
    """Raise InputError if the suite is wrong, missing or not needed."""
    recorded = recorded_suite(recipe)
    if recorded is None and path is not None:
        raise InputError(f"{label} was not evaluated", "leave --eval-suite out")
    if recorded is not None and path is None:
        raise InputError(
            f"{label} was evaluated on the suite {recorded}", "name that file: --eval-suite FILE"
        )
    if path is not None and (digest := Digest.of(read_bytes(path))) != recorded:
        raise InputError(f"{path} is another suite: {digest}; recorded is {recorded}")


def _source(manifest: Manifest, label: str, source: str | None) -> str:
    """The source that the user names, else the recorded one on the hub; InputError for a record that is not one."""
    recorded = manifest.source
    if recorded is None or recorded.digest is None:
        raise NotFoundError(f"{label} does not say what it was made from", "it cannot be rebuilt")
    if source is not None:
        return source
    if recorded.revision is None:
        raise InputError(f"{label} was made from a directory or file", "name it: --source PATH")
    name = f"{recorded.id}@{recorded.revision}"
    if not HUB_ID.fullmatch(name) or Path(name).exists():
        raise InputError(
            f"{label} records {name[:200]!r} as its source, "
            "which is a path here or cannot be a model on the hub",
            "name the files that it was made from: --source PATH",
        )
    return name


def _with_data(recorded: Mapping[str, Any], materials: Materials, label: str) -> dict[str, Any]:
    """Return the recipe in JSON form with paths in place of digests. No path comes from the recorded recipe.

    A file that an option records may be in the directory that is the source.

    Raises InputError for a missing file and for one that the recipe does not use; IntegrityError if the
    recipe has a path in place of a digest.
    """
    recorded = {key: value for key, value in recorded.items() if key not in UNRECORDED_KEYS}
    options = recorded.get("options", {})
    references = {OPTION_PREFIX + key: options.get(key) for key in task_catalog.find(recorded["task"]).paths}
    references["evaluation"] = recorded.get("evaluation", {}).get("suite")
    references |= {step["name"]: step[key] for step in recorded["steps"] for key in STEP_FILES if key in step}
    for name, value in references.items():
        if value is not None and not (isinstance(value, str) and _DIGEST.fullmatch(value)):
            raise IntegrityError(f"the recipe of {label} names a file, not the digest of one: {name}")
    digests, files = dict(_digests(recorded)), dict(materials.data)
    sought = {value: name for name, value in digests.items() if name.startswith(OPTION_PREFIX)}
    if sought and materials.source is not None and Path(materials.source).is_dir():
        for path in sorted(below(Path(materials.source))):
            if path.is_file() and (option := sought.get(str(digest_file(path)))) is not None:
                files.setdefault(option, path)
    if missing := next((name for name in digests if name not in files), None):
        raise InputError(
            f"{label} was made with data that its recipe names by digest: {missing}, {digests[missing]}",
            f"name that file: --data {missing}=PATH",
        )
    if unknown := sorted(files.keys() - digests.keys()):
        names = ", ".join(digests) or "nothing"
        raise InputError(f"{label} was made without data called {unknown[0]}", f"its recipe names {names}")
    steps = [
        {**step, **{key: str(files[step["name"]].absolute()) for key in STEP_FILES if key in step}}
        for step in recorded["steps"]
    ]
    placed = {
        key: str(files[OPTION_PREFIX + key].absolute()) for key in options if OPTION_PREFIX + key in digests
    }
    return {**recorded, "steps": steps, "options": {**options, **placed}}


def _digests(recipe: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the digests in a recipe by the names of their files."""
    for step in recipe["steps"]:
        for key in STEP_FILES:
            if key in step:
                yield step["name"], step[key]
    for key, value in recipe.get("options", {}).items():
        if isinstance(value, str) and _DIGEST.fullmatch(value):
            yield OPTION_PREFIX + key, value


def _check_code(recorded: Code | None, current: Code | None, label: str) -> None:
    """Raise InputError if the function that makes the module is not the recorded one.

    The digest of the source has the code of a file; that of an installed function must be on record.
    """
    if current in (None, recorded) or (recorded is None and current.distribution is None):
        return
    described = [
        "nothing"
        if code is None
        else f"{code.name} of {code.digest or f'{code.distribution} {code.version}'}"
        for code in (recorded, current)
    ]
    hint = "give the code as it was exported: --source DIR"
    if recorded is not None and recorded.distribution is not None:
        hint = f"install {recorded.distribution} {recorded.version}, if you trust it"
    raise InputError(f"{label} was made by {described[0]}, here it is {described[1]}", hint)


def _plan_family(manifest: Manifest, label: str, materials: Materials) -> FamilyPlan:
    """Plan the family that a manifest records.

    Raises NotFoundError if it records no document, InputError if the document or a file differs from the record.
    """
    if materials.suite is not None or materials.data:
        raise InputError(
            f"{label} is a family: its document names all rows",
            "name the document alone: --source family.yaml",
        )
    recipe, source = manifest.recipe, materials.source
    if recipe is None or DOCUMENT not in recipe.parameters:
        raise NotFoundError(
            f"{label} has no recipe to run again: it does not record the document of its family",
            "export that document again: equal files give an equal manifest, whose digest says so",
        )
    if source is None:
        raise InputError(f"{label} is a family, made from a document", "name it: --source family.yaml")
    path = Path(source) / FAMILY_FILE if Path(source).is_dir() else Path(source)
    document = RecipeDocument.read(path)
    if not document.is_family:
        raise InputError(f"{path.name} describes no family", f"give the document that {label} was made from")
    consent = Consent.of(materials.allow_code, source, is_recorded=True)
    plan = plan_family(read_family(document, manifest.name), path.parent, consent)
    if other := next(differences(recipe.to_json()["parameters"][DOCUMENT], plan.recorded), None):
        key, before, now = other
        raise InputError(
            f"{path.name} is not what {manifest.name} was made from: {key} is {now}, recorded is {before}"
        )
    if plan.factory is not None:
        _check_code(recipe.code, plan.factory.code, manifest.name)
    digest = None if manifest.source is None else manifest.source.digest
    if digest != plan.source:
        raise InputError(
            f"the checkpoints of {path.name} are not those that {manifest.name} was made from: "
            f"{plan.source}, recorded is {digest}",
            "give the files as they were exported",
        )
    return plan

"""Run a version's recorded recipe again. A manifest has digests instead of paths, so the user names the files again."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.plan import OWN_RECIPE, ExportPlan
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.families import export_family
from onnxreg.converters.profiles import profile_catalog
from onnxreg.converters.request import ExportRequest
from onnxreg.converters.source.source_files import HUB_ID, below, digest_file
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.code import Consent
from onnxreg.schema.compare import json_changes
from onnxreg.schema.core.canonical import Digest, convert
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, about
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.inputs.recipe_file import RecipeFile
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Code, Manifest, Source

SUITE = "the evaluation suite"


@dataclass(frozen=True)
class Materials:
    """The inputs of a rebuild. `source` replaces the recorded source; for a model family, it is a `family.yaml`.

    `data["STEP"]` is the file or folder that the step STEP reads, and `data["options.KEY"]` the file of the task's
    option KEY. `stored` returns the path of a file in the registry. `allow_code` is as in `plan_export`.
    """

    source: str | None = None
    suite: Path | None = None
    trust_remote_code: bool = False
    data: Mapping[str, Path] = field(default_factory=dict)
    allow_code: Collection[str] = ()
    stored: Callable[[Digest], Path | None] = lambda digest: None


def rebuild(
    manifest: Manifest, label: str, materials: Materials, workspace: Path, progress: Progress = SILENT
) -> Draft:
    """Run a manifest's recipe again in `workspace`. Messages call the version `label`.

    Raises NotFoundError if there is no recipe, and InputError if the source, suite or data are not those recorded.
    """
    progress.step("checking the source")
    if manifest.model_family is not None and not manifest.stages:
        return export_family.make_family(_plan_family(manifest, label, materials), workspace, progress)[0]
    return execute(_plan(manifest, label, materials), workspace, progress=progress)


def _plan(manifest: Manifest, label: str, materials: Materials) -> ExportPlan:
    recipe, origin = manifest.recipe, manifest.source
    if recipe is None or "recipe" not in recipe.parameters:
        reason = "it records none" if recipe is None else f"it was made by {recipe.profile}"
        hint = "what reg add and reg import adopt cannot be rebuilt; what reg export makes can"
        raise NotFoundError(f"{label} has no recipe to run again: {reason}", hint)
    if origin is None or origin.digest is None:
        raise NotFoundError(f"{label} does not say what it was made from", "it cannot be rebuilt")
    if recipe.trust_remote_code and not materials.trust_remote_code:
        hint = "read that code, then pass --trust-remote-code"
        raise InputError(f"{label} was made with the checkpoint's own code", hint)
    with about(f"the recipe of {label}", IntegrityError):
        recorded = RecipeFile.from_json(recipe.parameters["recipe"], "it").to_json()
        recorded = {key: item for key, item in recorded.items() if key not in ("source", "name")}
        search = convert(recipe.parameters.get("search") or {}, dict[str, Any], "its search") or None
    files = _files(recorded)
    with about(f"the recipe of {label} names a file, not the digest of one", IntegrityError):
        digests = {name: Digest.parse(owner[key]) for name, (owner, key) in files.items()}
    name, number = recipe.profile, recipe.profile_version
    if name != OWN_RECIPE and (version := profile_catalog.find(name).recipe().profile_version) != number:
        message = f"{label} was made by {name} v{number}, this build has v{version}"
        raise InputError(message, "install the onnxreg that made it")
    _fill_in(recorded, digests, materials, label)
    document = RecipeFile.from_json(recorded, f"the recipe of {label}")
    source = _recorded_source(origin, label) if materials.source is None else materials.source
    consent = Consent.of(materials.allow_code, materials.source, is_recorded=True)
    trusted = recipe.trust_remote_code
    request = ExportRequest(
        source, manifest.name, recipe=document, trust_remote_code=trusted, allow_code=consent
    )
    plan = request.plan()
    assert isinstance(plan, ExportPlan), "a recipe is no family"
    _check_code(recipe.code, plan.source.code, label)
    if plan.source.digest != origin.digest:
        names = ", ".join(sorted(path.name for path in plan.source.files or () if path.is_file()))
        message = f"the source differs from the one that {label} was made from: {names or 'its files'} have"
        hint = f"give the files of {origin.id} as they were exported"
        raise InputError(f"{message} digest {plan.source.digest}, expected {origin.digest}", hint)
    for name, (owner, key) in _files(plan.recorded_recipe()).items():
        if (now := owner[key]) != digests[name]:
            raise InputError(f"{name} is not what {label} was made with: {now}, recorded is {digests[name]}")
    return replace(plan, search=search, source=replace(plan.source, origin=origin))


def _files(recipe: Mapping[str, Any]) -> dict[str, tuple[dict[str, Any], str]]:
    """Find the digests of files in a recipe (JSON). Return (object, key) for each file: `object[key]` is its digest."""
    options, evaluation = recipe.get("options", {}), recipe.get("evaluation")
    keys = [key for key in task_catalog.find(recipe["task"]).paths if options.get(key) is not None]
    steps = {step["name"]: (step, "data") for step in recipe["steps"] if "data" in step}
    suite = {} if evaluation is None else {SUITE: (evaluation, "suite")}
    return {**suite, **steps, **{f"options.{key}": (options, key) for key in keys}}


def _fill_in(recorded: Any, digests: Mapping[str, Digest], materials: Materials, label: str) -> None:
    files = {**materials.data, **({} if materials.suite is None else {SUITE: materials.suite})}
    if unused := sorted(files.keys() - digests.keys()):
        hint = f"it has {', '.join(digests) or 'no files'}"
        raise InputError(f"{label} was made without {unused[0]}", hint)
    options = {digest: name for name, digest in digests.items() if name.startswith("options.")}
    if options and materials.source is not None and Path(materials.source).is_dir():
        for file in sorted(below(Path(materials.source))):
            if (option := options.get(digest_file(file))) is not None:
                files.setdefault(option, file)
    for name, (owner, key) in _files(recorded).items():
        path = files.get(name) or materials.stored(digests[name])
        if path is None:
            option = "--eval-suite FILE" if name == SUITE else f"--data {name}=PATH"
            message = f"{label} was made with a file that is recorded by digest: {name}, {digests[name]}"
            raise InputError(message, f"name that file: {option}")
        owner[key] = str(path.absolute())


def _recorded_source(recorded: Source, label: str) -> str:
    if recorded.revision is None:
        raise InputError(f"{label} was made from a directory or file", "name it: --source PATH")
    name = f"{recorded.id}@{recorded.revision}"
    if not HUB_ID.fullmatch(name) or Path(name).exists():
        message = f"{label} records {name[:200]!r} as its source, which is a path here or cannot be a model on the hub"
        raise InputError(message, "name the files that it was made from: --source PATH")
    return name


def _check_code(recorded: Code | None, current: Code | None, label: str) -> None:
    if current in (None, recorded) or (recorded is None and current.distribution is None):
        return
    made_by, here = (
        f"{code.name} of {code.digest or f'{code.distribution} {code.version}'}" if code else "nothing"
        for code in (recorded, current)
    )
    hint = "give the code as it was exported: --source DIR"
    if recorded is not None and recorded.distribution is not None:
        hint = f"install {recorded.distribution} {recorded.version}, if you trust it"
    raise InputError(f"{label} was made by {made_by}, here it is {here}", hint)


def _plan_family(manifest: Manifest, label: str, materials: Materials) -> export_family.FamilyPlan:
    recipe, source, by_name = manifest.recipe, materials.source, "name it: --source family.yaml"
    if materials.suite is not None or materials.data:
        raise InputError(f"{label} is a family: its document names all rows", by_name)
    if recipe is None or export_family.DOCUMENT not in recipe.parameters:
        hint = "export that document again: equal files give an equal manifest"
        raise NotFoundError(f"{label} does not record the document of its family", hint)
    if source is None:
        raise InputError(f"{label} is a family, made from a document", by_name)
    path = Path(source, "family.yaml") if Path(source).is_dir() else Path(source)
    consent = Consent.of(materials.allow_code, source, is_recorded=True)
    plan = ExportRequest(name=manifest.name, recipe=path, allow_code=consent).plan()
    if not isinstance(plan, export_family.FamilyPlan):
        raise InputError(f"{path.name} describes no family", f"give the document that {label} was made from")
    document = recipe.to_json()["parameters"][export_family.DOCUMENT]
    for other in json_changes.compare(document, plan.recorded, {}):
        change = f"{other.at.path} is {other.new}, recorded is {other.old}"
        raise InputError(f"{path.name} is not what {manifest.name} was made from: {change}")
    if plan.factory is not None:
        _check_code(recipe.code, plan.factory.code, manifest.name)
    digest = None if manifest.source is None else manifest.source.digest
    if digest != plan.source:
        message = f"the checkpoints of {path.name} are not those that {manifest.name} was made from"
        raise InputError(f"{message}: {plan.source}, not {digest}", "give the files as they were exported")
    return plan

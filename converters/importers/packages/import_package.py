"""`reg import` of a model package of ONNX Runtime: its digests are checked, its graphs read, its claims compared."""

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.importers.add_files import graph_fields
from onnxreg.converters.importers.draft_json import Difference
from onnxreg.converters.importers.import_files import Intake
from onnxreg.converters.importers.judge_files import (
    check_format,
    check_labels,
    default_format,
    describe,
    read_model,
)
from onnxreg.converters.importers.packages.package_survey import (
    PackageFacts,
    PackageSurvey,
    PackageTree,
    SurveyedBuild,
    survey_package,
)
from onnxreg.converters.onnx.facts import GraphFacts, with_kv_caches
from onnxreg.converters.runtime import golden
from onnxreg.converters.source.scrub import scrub
from onnxreg.converters.source.source_files import role_of
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import check_distinct
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.formats.ort_package import MANIFEST, NAMESPACE, WEIGHTS_FOLDER
from onnxreg.schema.formats.package_layout import LOADABLE
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.rules import FILENAME
from onnxreg.schema.query.device import provider

PROFILE = "ort-package"


def is_package(directory: Path) -> bool:
    """Return True if a directory is to be read as a model package."""
    return (directory / MANIFEST).is_file() and not (directory / FILENAME).exists()


def import_package(directory: Path, workspace: Path, *, name: str) -> tuple[Draft, list[Difference]]:
    """Adopt a portable model package of schema 1: each model file becomes an artifact, each shared asset companions.

    A format and precision that `reg package` stated are kept if the graph bears them out; the returned differences say
    where it does not, and which files the package does not name. Files keep their path within the variant or asset; where
    two would be one, those of variants keep their path within the package, and if need be those of assets too.

    Args:
        directory: the package; it is not changed.
        workspace: an empty directory, filled with the files of the version.
        name: the model's name.

    Raises:
        InputError: no package of this schema; a link, a path outside, a file that is missing or no graph.
        IntegrityError: a shared asset, or a file that the package lists, has other bytes than its digest says.
    """
    check_name(name)
    tree = PackageTree(directory)
    package = survey_package(tree)
    intake = Intake(workspace, name, hard=True)
    differences: list[Difference] = []
    companions = tuple(
        DraftFile(role_of(path), intake.take(directory / at, path)) for path, at in _companions(package)
    )
    described = describe(workspace, companions)
    artifacts = []
    for build, main in _main_paths(package):
        artifact, facts = _artifact(tree, intake, build, main, differences)
        check_labels(described, facts, main)
        artifacts.append(artifact)
    left_out = "not named by the package; left out"
    differences += [Difference(path, None, left_out) for path in package.left_out]
    described["recipe"] = _recipe(package, name, intake.scrubbed, differences)
    draft = Draft(name, workspace, tuple(artifacts), companions, described)
    return with_kv_caches(draft), differences


def _companions(package: PackageSurvey) -> list[tuple[str, str]]:
    """Each shared file's path in the version, and in the package."""
    files = _own_files(package, _has_plain_paths(package))
    plain = _has_distinct_paths(files | set(package.companions))
    return [(path if plain else at, at) for path, at in package.companions]


def _main_paths(package: PackageSurvey) -> list[tuple[SurveyedBuild, str]]:
    """Each build and its main file's path in the version."""
    return [(build, _inner(build) if _has_plain_paths(package) else build.main) for build in package.builds]


def _has_plain_paths(package: PackageSurvey) -> bool:
    """Return True if the files of variants can keep their path there: no two of the version would be one."""
    return _has_distinct_paths(_own_files(package, plain=True) | set(package.companions))


def _own_files(package: PackageSurvey, plain: bool) -> set[tuple[str, str]]:
    """The files of all variants, by their path there or in the package; each with its path in the package."""
    files: set[tuple[str, str]] = set()
    for build in package.builds:
        main = _inner(build) if plain else build.main
        files.add((main, build.main))
        files |= {(path if plain else at, at) for path, at in build.other_files.items()}
        files |= {(_beside(main, location), at) for location, at in build.weights.items()}
    return files


def _has_distinct_paths(files: set[tuple[str, str]]) -> bool:
    try:
        check_distinct([FILENAME, *(path for path, _ in files)])
    except ValueError:
        return False
    return True


def _inner(build: SurveyedBuild) -> str:
    return build.main.removeprefix(f"{build.home}/")


def _beside(main: str, location: str) -> str:
    return (PurePosixPath(main).parent / location).as_posix()


def _artifact(
    tree: PackageTree, intake: Intake, build: SurveyedBuild, main: str, differences: list[Difference]
) -> tuple[DraftArtifact, GraphFacts]:
    intake.take(tree.root / build.main, main)
    sidecars = _sidecars(tree, intake, build, main)
    facts = _facts(intake.workspace, main, sidecars)
    format = _format(build, facts, main, differences)
    fields = graph_fields(facts, format)
    providers = [variant.document.ep for variant in build.variants if variant.document.ep]
    elsewhere = [ep for ep in dict.fromkeys(providers) if provider(ep) != "cpu"]
    if elsewhere:
        fields["metadata"]["execution_providers"] = elsewhere
    claimed = _claimed(build.variants)
    if claimed:
        fields["claimed"], scrubbed = scrub(claimed, intake.name, tree.root)
        intake.scrubbed += [f"{MANIFEST}:{at}" for at in scrubbed]
    return DraftArtifact(format, facts.precision, main, tuple(sidecars), fields=fields), facts


def _sidecars(tree: PackageTree, intake: Intake, build: SurveyedBuild, main: str) -> list[DraftFile]:
    """Take what belongs to a model file. Models beside it are read too, and their external data is known by that."""
    roles: dict[str, str] = {}
    for location, at in build.weights.items():
        roles[intake.take(tree.root / at, _beside(main, location))] = "external-data"
    for path, at in sorted(build.other_files.items()):
        target = path if main == _inner(build) else at
        roles[intake.take(tree.root / at, target)] = _role(path, main)
    for path in [path for path, role in roles.items() if role == "model"]:
        facts = _facts(intake.workspace, path, ())
        roles |= {_beside(path, location): "external-data" for location in facts.external_data}
    return [DraftFile(role, path) for path, role in roles.items()]


def _role(path: str, main: str) -> str:
    if path.endswith(LOADABLE):
        return "model"
    name = PurePosixPath(path).name
    return golden.ROLE if name == f"{PurePosixPath(main).name}.golden.json" else role_of(path)


def _facts(workspace: Path, main: str, sidecars: Iterable[DraftFile]) -> GraphFacts:
    """Read the facts of a model file.

    Raise InputError if it or its golden vectors cannot be taken.
    """
    by_role = {file.role: workspace / file.path for file in sidecars}
    if golden.ROLE in by_role:
        golden.decode(by_role[golden.ROLE].read_bytes(), by_role[golden.ROLE].name)
    return read_model(workspace / main, by_role.get("operator-config"))


def _format(build: SurveyedBuild, facts: GraphFacts, main: str, differences: list[Difference]) -> str:
    """The format that `reg package` stated, if the graph is that; else the one that the file itself justifies."""
    default = default_format(facts)
    metadata = build.variants[0].document.additional_metadata
    extension = metadata.get(NAMESPACE) if isinstance(metadata, dict) else None
    statement = extension if isinstance(extension, dict) else {}
    precision = statement.get("precision", facts.precision)
    if precision != facts.precision:
        differences.append(Difference(f"{main}.precision", precision, facts.precision))
    format = statement.get("format")
    if not isinstance(format, str):
        return default
    try:
        check_format(format, facts, main)
    except InputError:
        differences.append(Difference(f"{main}.format", format, default))
        return default
    return format


def _claimed(variants: Iterable[PackageFacts]) -> dict[str, Any]:
    """The claims of variants that no file can prove, by variant."""
    claims = {variant.name: _claims(variant) for variant in variants}
    return {name: claim for name, claim in claims.items() if claim}


def _claims(variant: PackageFacts) -> dict[str, Any]:
    options = variant.runtime.get("session_options")
    session_options = dict(options) if isinstance(options, dict) else {}
    session_options.pop(WEIGHTS_FOLDER, None)
    device = variant.document.device
    claims: Mapping[str, Any] = {
        "device": None if device == "cpu" else device,
        "compatibility_string": variant.document.compatibility_string,
        "session_options": session_options,
        "provider_options": variant.runtime.get("provider_options"),
    }
    return {key: value for key, value in claims.items() if value}


def _recipe(
    package: PackageSurvey, name: str, scrubbed: list[str], differences: list[Difference]
) -> dict[str, Any]:
    params = {}
    if package.manifest.package_name:
        params["package"], _ = scrub(package.manifest.package_name, name)
    if package.extension is not None:
        params["from"] = f"{package.extension.name}@{package.extension.manifest}"
    result = {"scrubbed": sorted(scrubbed), "differences": [difference.path for difference in differences]}
    step = {"name": "import", "pass": "import", "version": 1, "params": params, "result": result}
    return {"profile": PROFILE, "profile_version": 1, "steps": [step], "tools": {}}

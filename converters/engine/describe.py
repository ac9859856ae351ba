"""Makes the draft of a version: moves each output to its path, reads the file back, checks it and describes it."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.engine.measure import StepResult, checks, limits_of
from onnxreg.converters.engine.plan import ExportPlan, ProfileOutput
from onnxreg.converters.engine.steps import GOLDEN_PREFIX
from onnxreg.converters.onnx.facts import with_kv_caches
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.file_passes import GoldenVectors, Outputs
from onnxreg.converters.runtime import golden
from onnxreg.converters.source.source_files import link_or_copy, role_of
from onnxreg.converters.source.toolchain import tool_versions
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import RecipeOutput
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.family import pipeline_of
from onnxreg.schema.manifest.parts import Recipe, Step

TOLERANCES = {"float32": 1e-3, "float16": 1e-2, "int4": 1e-1}
"""The distance from the golden vectors allowed to another runtime, by precision: a share of the largest value."""
OTHER_TOLERANCE = 5e-2


def draft_of(
    plan: ExportPlan, subject: ExportSubject, results: Mapping[str, StepResult], workspace: Path
) -> Draft:
    """Describe every output, in the order of the recipe.

    Raises ConversionError, naming the file, if an output breaks the contract or fails a check.
    """
    outputs = [output for output in plan.outputs if results[output.step].files]
    if not outputs:
        raise ConversionError("nothing was made: every output was skipped")
    paths: dict[str, list[str]] = {}
    for output in outputs:
        result, folder = results[output.step], PurePosixPath(output.path or "").parent
        paths[output.step] = [(folder / name).as_posix() for name in result.files]
        for name, path in zip(result.files, paths[output.step], strict=True):
            _place(result.directory / name, workspace, path)
    for file in subject.companions:
        _place(subject.directory / file.path, workspace, file.path)
    steps, artifacts = [result.step for result in results.values()], list[DraftArtifact]()
    for output in outputs:
        artifact, golden_step = _describe(plan, subject, results[output.step], output, paths, workspace)
        artifacts.append(artifact)
        steps += [] if golden_step is None else [golden_step]
    fields = {
        **subject.fields,
        **plan.recipe.statements,
        "source": subject.origin.to_json(),
        "source_model_id": subject.origin.id,
        "recipe": _recipe(plan, subject, steps).to_json(),
    }
    members = {paths[output.step][0]: output.member for output in outputs if output.member is not None}
    if members:
        fields["model_family"] = pipeline_of(members)
    return with_kv_caches(Draft(plan.name, workspace, tuple(artifacts), subject.companions, fields))


def _place(source: Path, workspace: Path, path: str) -> None:
    try:
        link_or_copy(source, workspace / path)
    except FileExistsError as error:
        raise InputError(
            f"two files of the export would be {path}",
            "give its outputs directories of their own: path: a/...",
        ) from error


def _describe(
    plan: ExportPlan,
    subject: ExportSubject,
    result: StepResult,
    output: RecipeOutput,
    paths: Mapping[str, list[str]],
    workspace: Path,
) -> tuple[DraftArtifact, Step | None]:
    """Check an output; return the artifact, and the step that wrote golden vectors for it, if the recipe has one."""
    path, *sidecar_paths = paths[output.step]
    facts, line = result.facts, (result, *result.ancestors)
    steps = tuple(item.step for item in reversed(line))
    promised = ProfileOutput(path, facts, steps)
    plan.profile.check(promised, subject)
    size = sum((workspace / file).stat().st_size for file in paths[output.step])
    entries = checks(result, limits_of(plan.recipe.checks, path), path, size)
    golden_step = _write_golden(output, result, workspace / path, entries)
    quantizing = next((step for step in reversed(steps) if "quantized_bytes" in step.result), steps[-1])
    fields = {**facts.fields({"pass": quantizing.pass_, **quantizing.params}), "checks": entries}
    if not all(item.reproducible for item in line):
        fields["reproducible"] = False
    extra = dict(plan.profile.fields(promised))
    fields["metadata"] = {**fields["metadata"], **extra.pop("metadata", {})}
    fields["checks"] += extra.pop("checks", [])
    external = {(Path(path).parent / location).as_posix() for location in facts.external_data}
    roles = ("external-data" if file in external else role_of(file) for file in sidecar_paths)
    sidecars = list(map(DraftFile, roles, sidecar_paths))
    if golden_step is not None:
        sidecars.append(DraftFile(golden.ROLE, f"{path}.golden.json"))
    parent = next((paths[item.node.name][0] for item in result.ancestors if item.node.name in paths), None)
    fields |= extra
    format_name = output.format or facts.format
    artifact = DraftArtifact(format_name, facts.precision, path, tuple(sidecars), parent, fields=fields)
    return artifact, golden_step


def _write_golden(
    output: RecipeOutput, result: StepResult, path: Path, entries: list[dict[str, Any]]
) -> Step | None:
    """Write the golden vectors of a graph, with a tolerance of at least the graph's own distance from the source."""
    tolerance = output.golden
    if tolerance is None:
        tolerance = TOLERANCES.get(result.facts.precision, OTHER_TOLERANCE)
    arrays = result.runs.golden
    if not tolerance or not arrays:
        return None
    least = max((check["value"] for check in entries if check["metric"] == "max_abs_diff"), default=0.0)
    outputs = Outputs(path, {case: result.source.golden[case] for case in arrays}, arrays)
    work = GoldenVectors(tolerance=tolerance, least=least)
    return run(f"{GOLDEN_PREFIX}{output.step}", work, outputs, output.step)[1]


def _recipe(plan: ExportPlan, subject: ExportSubject, steps: list[Step]) -> Recipe:
    used = {tool for node in plan.nodes.values() for tool in node.kind.tools}
    used |= set() if plan.source.adapter is None else {*plan.source.packages}
    value = {
        "profile": plan.recipe.profile,
        "profile_version": plan.recipe.profile_version,
        "steps": [step.to_json() for step in steps],
        "tools": tool_versions(tuple(sorted(used))),
        "trust_remote_code": plan.task.trust_remote_code,
        **({} if plan.source.code is None else {"code": plan.source.code.to_json()}),
        "parameters": {
            "recipe": plan.recorded_recipe(),
            **({"got": dict(subject.resolved_options)} if subject.resolved_options else {}),
            **({} if plan.search is None else {"search": dict(plan.search)}),
        },
    }
    return Recipe.from_json(value)

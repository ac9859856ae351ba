"""The draft of a version: each output placed, read back, checked and described."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.engine import measure
from onnxreg.converters.engine.cache import link_or_copy
from onnxreg.converters.engine.plan import ExportPlan, ProfileOutput
from onnxreg.converters.engine.step import StepResult
from onnxreg.converters.engine.steps import GOLDEN_PREFIX
from onnxreg.converters.onnx.facts import GraphFacts, with_kv_caches
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.golden_vectors import GoldenVectors, Outputs
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.runtime import golden
from onnxreg.converters.source.source_files import role_of
from onnxreg.converters.source.toolchain import tool_versions
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import RecipeOutput
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.family import pipeline_of
from onnxreg.schema.manifest.parts import Recipe, Step

SCRATCH_DIRECTORY, SUBJECT_DIRECTORY, FILES_DIRECTORY = ".steps", "subject", "files"
"""The working directory of an execution in its workspace, the directory of the subject in it, and that of its companions."""
PRESENT = "present."
"""Prefix of a decoder's keys and values: two outputs for each layer, of which no check is recorded."""
TOLERANCE_BY_PRECISION = {
    "float32": 1e-3,
    "float16": 1e-2,
    "int8": 5e-2,
    "uint8": 5e-2,
    "int8-weights": 5e-2,
    "int4": 1e-1,
}
"""Greatest distance of another runtime from an artifact's golden vectors, in parts of its largest value."""
FORMAT_BY_PRECISION = {
    "int8": "onnx-int8",
    "uint8": "onnx-int8",
    "int8-weights": "onnx-int8",
    "int4": "onnx-int4",
}
"""Default format of an ONNX file by the precision of its weights; `onnx` for all others."""


@dataclass(frozen=True)
class DescribedOutput:
    """An artifact, and the step that wrote its golden vectors, if there are any."""

    artifact: DraftArtifact
    step: Step | None


def draft_of(
    plan: ExportPlan, subject: ExportSubject, results: Mapping[str, StepResult], workspace: Path
) -> Draft:
    """Describe every output, in the order of the recipe.

    Raises ConversionError, naming the file, if one breaks the contract or a check.
    """
    outputs = [output for output in plan.outputs if results[output.step].has_files]
    if not outputs:
        raise ConversionError("nothing was made: every output was skipped")
    paths = {output.step: place_files(results[output.step], output, workspace) for output in outputs}
    described = [_describe(plan, subject, results, output, paths, workspace) for output in outputs]
    steps = [result.step for result in results.values()]
    steps += [item.step for item in described if item.step is not None]
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
    for file in subject.companions:
        _lay(
            workspace / SCRATCH_DIRECTORY / SUBJECT_DIRECTORY / FILES_DIRECTORY / file.path,
            workspace,
            file.path,
        )
    artifacts = tuple(item.artifact for item in described)
    return with_kv_caches(Draft(plan.name, workspace, artifacts, subject.companions, fields))


def place_files(result: StepResult, output: RecipeOutput, workspace: Path) -> tuple[str, ...]:
    """Give the files of a result their places in the workspace; returns their paths, the main one first."""
    folder = PurePosixPath(output.path or "").parent
    paths = {name: (folder / name).as_posix() for name in result.step_files.files}
    for name, path in paths.items():
        _lay(result.step_files.directory / name, workspace, path)
    return tuple(paths.values())


def _lay(source: Path, workspace: Path, path: str) -> None:
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
    results: Mapping[str, StepResult],
    output_spec: RecipeOutput,
    paths: Mapping[str, tuple[str, ...]],
    workspace: Path,
) -> DescribedOutput:
    node, result = plan.nodes[output_spec.step], results[output_spec.step]
    path, *sidecar_paths = paths[output_spec.step]
    lineage = node.lineage()
    output = ProfileOutput(
        path,
        tuple(sidecar_paths),
        result.facts,
        tuple(results[ancestor.name].step for ancestor in reversed(lineage)),
    )
    plan.promises.check(output, subject)
    checks = list(_checks(plan, subject, result, path, workspace, [path, *sidecar_paths]))
    vectors = _write_golden(output_spec, result, workspace / path, checks)
    parent = next((paths[ancestor.name][0] for ancestor in lineage[1:] if ancestor.name in paths), None)
    fields = _fields(output, result)
    fields["checks"] = checks
    extra = dict(plan.promises.fields(output))
    fields["metadata"] = {**fields["metadata"], **extra.pop("metadata", {})}
    fields["checks"] += extra.pop("checks", [])
    sidecars = [_sidecar(sidecar_path, path, result.facts) for sidecar_path in sidecar_paths]
    if vectors is not None:
        sidecars.append(DraftFile(golden.ROLE, f"{path}.golden.json"))
    format_name = output_spec.format or format_of(path, result.facts.precision)
    artifact = DraftArtifact(
        format_name, result.facts.precision, path, tuple(sidecars), parent, fields={**fields, **extra}
    )
    return DescribedOutput(artifact, vectors)


def _checks(
    plan: ExportPlan,
    subject: ExportSubject,
    result: StepResult,
    path: str,
    workspace: Path,
    files: list[str],
) -> Iterator[dict[str, Any]]:
    limits = measure.limits_of(plan.recipe.checks, path)
    first = result.expected[0] if result.feeds else {}
    float_outputs = [
        name for name, array in first.items() if array.dtype.kind == "f" and not name.startswith(PRESENT)
    ]
    measure.refuse_unmeasured(limits, bool(float_outputs), path)
    if result.feeds:
        if measure.is_bounded(limits):
            samples.compare(result.expected, result.outputs, path)
        agreements = {
            name: measure.agreement(result.expected, result.outputs, name) for name in float_outputs
        }
        yield from measure.parity_checks(agreements, samples.digest(result.feeds), limits, path)
    if "bytes" in limits:
        size = sum((workspace / file).stat().st_size for file in files)
        yield measure.judge({"name": "size"}, "bytes", size, limits["bytes"], path)


def _write_golden(
    output_spec: RecipeOutput, result: StepResult, path: Path, checks: list[dict[str, Any]]
) -> Step | None:
    """Write the golden vectors of a graph; their tolerance is at least its own distance from the source."""
    tolerance = (
        TOLERANCE_BY_PRECISION.get(result.facts.precision, 5e-2)
        if output_spec.golden is None
        else output_spec.golden
    )
    if not tolerance or not result.has_files or not result.golden:
        return None
    cases = {case: result.sample.golden[case] for case in result.golden}
    least = max((check["value"] for check in checks if check["metric"] == "max_abs_diff"), default=0.0)
    work = GoldenVectors(tolerance=tolerance, least=least)
    subject = Outputs(path, cases, result.golden)
    return run(f"{GOLDEN_PREFIX}{output_spec.step}", work, subject, output_spec.step)[1]


def _fields(output: ProfileOutput, result: StepResult) -> dict[str, Any]:
    quantizing_step = next(
        (step for step in reversed(output.steps) if "quantized_bytes" in step.result), output.steps[-1]
    )
    fields = graph_fields(output.facts, quantizing_step)
    if not all(ancestor.step_files.reproducible for ancestor in (result, *result.ancestors)):
        fields["reproducible"] = False
    return fields


def graph_fields(facts: GraphFacts, quantizing_step: Step | None) -> dict[str, Any]:
    """Return the keys of `manifest.Artifact` that are read from a graph, in JSON form.

    Args:
        quantizing_step: the step that is recorded for quantized weights; None if no pass made them.
    """
    fields = facts.fields()
    if facts.weights.weights_quantized:
        step = quantizing_step
        requested = {} if step is None else {"pass": step.pass_, **step.params}
        fields["quantization"] = {"requested": requested, "measured": facts.weights.to_json()}
    return fields


def _sidecar(path: str, main: str, facts: GraphFacts) -> DraftFile:
    external = {(Path(main).parent / location).as_posix() for location in facts.external_data}
    if path in external:
        return DraftFile("external-data", path)
    return DraftFile("operator-config" if path.endswith(".config") else role_of(path), path)


def format_of(path: str, precision: str) -> str:
    """Return the default format of a file by its name and the precision of its weights."""
    return "ort" if path.endswith(".ort") else FORMAT_BY_PRECISION.get(precision, "onnx")


def _recipe(plan: ExportPlan, subject: ExportSubject, steps: list[Step]) -> Recipe:
    used = sorted({tool for node in plan.nodes.values() for tool in node.kind.tools})
    value = {
        "profile": plan.recipe.profile,
        "profile_version": plan.recipe.profile_version,
        "steps": [step.to_json() for step in steps],
        "tools": tool_versions(used),
        "trust_remote_code": plan.task.trust_remote_code,
        **({} if plan.source.code is None else {"code": plan.source.code.to_json()}),
        "parameters": {
            "recipe": plan.recorded_recipe(),
            **({"got": dict(subject.resolved_options)} if subject.resolved_options else {}),
            **({} if plan.search is None else {"search": dict(plan.search)}),
        },
    }
    return Recipe.from_json(value)

"""The draft of a version: each output placed, read back, checked and described."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.engine import measure, output_checks
from onnxreg.converters.engine.cache import lend
from onnxreg.converters.engine.plan import ExportPlan
from onnxreg.converters.engine.profile_contract import ProfileOutput
from onnxreg.converters.engine.step_result import StepResult
from onnxreg.converters.engine.steps import GOLDEN
from onnxreg.converters.engine.subjects import FILES
from onnxreg.converters.onnx.facts import GraphFacts, inspect_model, inspect_ort
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.onnx.validity import check_model
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.golden_vectors import GoldenVectors, Outputs
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.runtime import golden
from onnxreg.converters.source.file_roles import role_of
from onnxreg.converters.source.toolchain import tool_versions
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import AskedOutput
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.pipeline import pipeline_of
from onnxreg.schema.manifest.recorded_recipe import Recipe, Step

SCRATCH, SUBJECT = ".steps", "subject"
"""Where an execution works in its workspace, and where in that the subject lies."""
TOLERANCES = {"float32": 1e-3, "float16": 1e-2, "int8": 5e-2, "uint8": 5e-2, "int4": 1e-1}
"""How far another runtime may be from an artifact's golden vectors, in parts of its largest value, by precision."""
FORMATS = {"int8": "onnx-int8", "uint8": "onnx-int8", "int4": "onnx-int4"}
"""The format of an ONNX file by the precision of its weights, where the recipe names none; else it is `onnx`."""


@dataclass(frozen=True)
class DescribedOutput:
    """An artifact, and the step that wrote its golden vectors, if there are any."""

    artifact: DraftArtifact
    step: Step | None


def draft_of(
    order: ExportPlan, subject: ExportSubject, results: Mapping[str, StepResult], workspace: Path
) -> Draft:
    """Describe every output that was made, in the order of the recipe.

    Raises ConversionError, naming the file, where one breaks the contract or a check.
    """
    outputs = [output for output in order.outputs if results[output.step].is_there]
    if not outputs:
        raise ConversionError("nothing was made: every output was skipped")
    paths = {output.step: place(results[output.step], output, workspace) for output in outputs}
    described = [_describe(order, subject, results, output, paths, workspace) for output in outputs]
    steps = [result.step for result in results.values()]
    steps += [each.step for each in described if each.step is not None]
    fields = {
        **subject.fields,
        "source": subject.origin.to_json(),
        "source_model_id": subject.origin.id,
        "recipe": _recipe(order, subject, steps).to_json(),
    }
    members = {paths[output.step][0]: output.member for output in outputs if output.member is not None}
    if members:
        fields["model_family"] = pipeline_of(members)
    for file in subject.companions:
        _lay(workspace / SCRATCH / SUBJECT / FILES / file.path, workspace, file.path)
    return Draft(
        order.name, workspace, tuple(each.artifact for each in described), subject.companions, fields
    )


def place(result: StepResult, output: AskedOutput, workspace: Path) -> tuple[str, ...]:
    """Give the files of a result their places in the workspace; returns their paths, the main one first."""
    folder = PurePosixPath(output.path or "").parent
    paths = {name: (folder / name).as_posix() for name in result.made.files}
    for name, path in paths.items():
        _lay(result.made.directory / name, workspace, path)
    return tuple(paths.values())


def _lay(source: Path, workspace: Path, path: str) -> None:
    try:
        lend(source, workspace / path)
    except FileExistsError as error:
        raise InputError(
            f"two files of the export would be {path}",
            "give its outputs directories of their own: path: a/...",
        ) from error


def _describe(
    order: ExportPlan,
    subject: ExportSubject,
    results: Mapping[str, StepResult],
    asked: AskedOutput,
    paths: Mapping[str, tuple[str, ...]],
    workspace: Path,
) -> DescribedOutput:
    node, result = order.nodes[asked.step], results[asked.step]
    path, *others = paths[asked.step]
    facts = _read(workspace, path, others, checked=node.kind.takes != "checkpoint")
    above = node.above()
    output = ProfileOutput(
        path, tuple(others), facts, tuple(results[one.name].step for one in reversed(above))
    )
    order.contract.check(output, subject)
    checks = list(_checks(order, subject, result, path, workspace, [path, *others]))
    vectors = _write_golden(asked, result, facts, workspace / path, checks)
    parent = next((paths[one.name][0] for one in above[1:] if one.name in paths), None)
    fields = _fields(output, result)
    fields["checks"] = checks
    extra = dict(order.contract.fields(output))
    fields["metadata"] = {**fields["metadata"], **extra.pop("metadata", {})}
    fields["checks"] += extra.pop("checks", [])
    sidecars = [_sidecar(other, path, facts) for other in others]
    if vectors is not None:
        sidecars.append(DraftFile(golden.ROLE, f"{path}.golden.json"))
    format_name = asked.format or _format(path, facts)
    artifact = DraftArtifact(
        format_name, facts.precision, path, tuple(sidecars), parent, fields={**fields, **extra}
    )
    return DescribedOutput(artifact, vectors)


def _read(workspace: Path, path: str, others: list[str], checked: bool) -> GraphFacts:
    """The facts of a graph, read back from where it lies. ConversionError where the checker refuses it.

    Args:
        checked: whether the graph is for the checker; decoders have operators that only ONNX Runtime knows.
    """
    if path.endswith(".ort"):
        config = next((workspace / other for other in others if other.endswith(".config")), None)
        return inspect_ort(workspace / path, config)
    model = load_onnx(workspace / path)
    try:
        if checked:
            check_model(model, workspace / path)
    except InputError as error:
        raise ConversionError(error.message) from error
    return inspect_model(model, workspace / path)


def _checks(
    order: ExportPlan,
    subject: ExportSubject,
    result: StepResult,
    path: str,
    workspace: Path,
    files: list[str],
) -> Iterator[dict[str, Any]]:
    asked = output_checks.asked_of(order.recipe.checks, path)
    first = result.expected[0] if result.feeds else {}
    numbers = [name for name, array in first.items() if array.dtype.kind == "f"]
    output_checks.refuse_unmeasured(asked, bool(numbers), subject.labelled is not None, path)
    if result.feeds:
        found = {name: measure.agreement(result.expected, result.outputs, name) for name in numbers}
        yield from output_checks.parity_checks(found, samples.digest(result.feeds), asked, path)
    if (data := subject.labelled) is not None:
        source = subject.got["accuracy"]
        yield from output_checks.accuracy_checks(result.accuracy, source, data, asked, path)
    if "bytes" in asked:
        size = sum((workspace / file).stat().st_size for file in files)
        yield output_checks.judge({"name": "size"}, "bytes", size, asked["bytes"], path)


def _write_golden(
    asked: AskedOutput, result: StepResult, facts: GraphFacts, path: Path, checks: list[dict[str, Any]]
) -> Step | None:
    """The golden vectors of a graph. They tell no runtime apart by less than the graph itself is from the source."""
    tolerance = TOLERANCES.get(facts.precision, 5e-2) if asked.golden is None else asked.golden
    if not tolerance or not result.is_there or not result.golden:
        return None
    cases = {case: result.sample.golden[case] for case in result.golden}
    least = max((check["value"] for check in checks if check["metric"] == "max_abs_diff"), default=0.0)
    work = GoldenVectors(tolerance=tolerance, least=least)
    subject = Outputs(path, cases, result.golden)
    return run(f"{GOLDEN}{asked.step}", work, subject, asked.step)[1]


def _fields(output: ProfileOutput, result: StepResult) -> dict[str, Any]:
    fields = output.facts.fields()
    if not all(one.made.reproducible for one in (result, *result.above)):
        fields["reproducible"] = False
    if output.facts.weights.weights_quantized:
        asked = next(
            (step for step in reversed(output.steps) if "quantized_bytes" in step.result), output.steps[-1]
        )
        requested = {"pass": asked.pass_, **asked.params}
        fields["quantization"] = {"requested": requested, "measured": output.facts.weights.to_json()}
    return fields


def _sidecar(path: str, main: str, facts: GraphFacts) -> DraftFile:
    external = {(Path(main).parent / location).as_posix() for location in facts.external_data}
    if path in external:
        return DraftFile("external-data", path)
    return DraftFile("operator-config" if path.endswith(".config") else role_of(path), path)


def _format(path: str, facts: GraphFacts) -> str:
    return "ort" if path.endswith(".ort") else FORMATS.get(facts.precision, "onnx")


def _recipe(order: ExportPlan, subject: ExportSubject, steps: list[Step]) -> Recipe:
    used = sorted({tool for node in order.nodes.values() for tool in node.kind.tools})
    value = {
        "profile": order.recipe.profile,
        "profile_version": order.recipe.profile_version,
        "steps": [step.to_json() for step in steps],
        "tools": tool_versions(used),
        "trust_remote_code": order.task.trust_remote_code,
        **({} if order.found.code is None else {"code": order.found.code.to_json()}),
        "parameters": {"recipe": order.asked(), **({"got": dict(subject.got)} if subject.got else {})},
    }
    return Recipe.from_json(value)

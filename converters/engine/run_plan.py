"""Run a plan: load the source, run each step, measure its result while the next step runs, and make the draft."""

import gc
import json
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from onnxreg.converters.engine import measure
from onnxreg.converters.engine.cache import Key, StepCache
from onnxreg.converters.engine.measure import StepResult, checks, limits_of
from onnxreg.converters.engine.plan import GOLDEN_PREFIX, ExportPlan, ProfileOutput, StepNode
from onnxreg.converters.onnx.facts import with_kv_caches
from onnxreg.converters.onnx.onnx_graph import external_files, load_onnx, scrub_metadata
from onnxreg.converters.passes import base, models
from onnxreg.converters.passes.base import GoldenVectors, Outputs
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.passes.model_builder import Decoder
from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.sessions import start_loader, try_load
from onnxreg.converters.source.source_files import GENAI_CONFIG, link_or_copy, role_of
from onnxreg.converters.source.toolchain import tool_versions, tools
from onnxreg.converters.tasks.task import ExportSubject, Part
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import ConversionError, HostError, InputError
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.inputs.recipe_file import RecipeOutput
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.family import pipeline_of
from onnxreg.schema.manifest.manifest import Recipe, Step

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.evaluate import EvaluationPlan, SourceEvaluation

SCRATCH_DIRECTORY, NOTE_FILE = ".steps", "made.json"
"""The working directory in the workspace, and the cached file with a step's record."""
CRASHED = (
    "leave this output out, or make it by other passes; what the other steps made is kept for the next export"
)
TOLERANCES = {"float32": 1e-3, "float16": 1e-2, "int4": 1e-1}
"""The tolerance of golden vectors by precision, as a share of the largest output."""
OTHER_TOLERANCE = 5e-2


def execute(
    plan: ExportPlan,
    workspace: Path,
    cache: StepCache | None = None,
    progress: Progress = SILENT,
    subject: ExportSubject | None = None,
    evaluation: "SourceEvaluation | None" = None,
) -> Draft:
    """Run a plan in `workspace`, and return the draft of a version. A step whose result is in `cache` does not run.

    `subject` is the loaded source; `evaluation` is the prepared evaluation. By default, they are made from the plan.
    Raises the errors of the task and the passes, and ConversionError if a graph does not run or differs too much.
    """
    scratch = workspace / SCRATCH_DIRECTORY
    (scratch / "steps").mkdir(parents=True)
    execution = _Execution(plan, scratch, subject, cache, progress)
    if plan.evaluation is not None and evaluation is None:
        evaluation = prepare(plan, plan.evaluation, execution.subject, cache)
    results = execution.run()
    progress.step("describing what was made")
    draft = draft_of(plan, execution.subject, results, workspace)
    if execution.subject.proof is not None:
        progress.step("running the graphs together")
        draft = execution.subject.proof(draft)
    if evaluation is not None:
        from onnxreg.converters.evaluation.evaluate import evaluate

        draft = evaluate(evaluation, draft, progress)
    shutil.rmtree(scratch)
    return draft


def prepare(
    plan: ExportPlan, evaluation: "EvaluationPlan", subject: ExportSubject, cache: StepCache | None
) -> "SourceEvaluation":
    """Prepare an evaluation on the loaded source `subject`. Raise InputError if the suite does not fit the source."""
    from onnxreg.converters.evaluation.evaluate import SourceEvaluation

    return SourceEvaluation(evaluation, subject, plan.task.trust_remote_code, cache, plan.subject)


def load_subject(plan: ExportPlan, directory: Path) -> ExportSubject:
    """Load the source of a plan. Create `directory`, and save the source's companions in it.

    Raises the errors of the task's `load`. Raises InputError if the source changed meanwhile, and ConversionError if
    the source's outputs have NaN or infinity.
    """
    import numpy as np

    directory.mkdir()
    subject = replace(plan.task.load(plan.source, plan.name, directory), directory=directory)
    plan.check_unchanged()
    for outputs in chain.from_iterable(measure.drop_padding(p.expected, p) for p in subject.parts.values()):
        for name, array in outputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                message = f"the source itself gives NaN or infinity in {name}"
                raise ConversionError(message, "check its weights")
    return subject


class _Execution:
    """Runs the steps of a plan. A second thread measures their results."""

    def __init__(
        self,
        plan: ExportPlan,
        scratch: Path,
        subject: ExportSubject | None,
        cache: StepCache | None,
        progress: Progress,
    ) -> None:
        self._plan, self._directory, self._cache, self._progress = plan, scratch / "steps", cache, progress
        self._keeps_source = subject is not None or plan.evaluation is not None
        if subject is None:
            progress.step("loading the source")
            start_loader()
        self.subject = subject or load_subject(plan, scratch / "subject")
        self._published = {output.step for output in plan.outputs}
        self._names = {name: node.file_name() for name, node in plan.nodes.items()} | dict(plan.file_names)
        self._unbounded: set[str] = set()
        for output in plan.outputs:
            node = plan.nodes[output.step]
            self._names[node.name] = node.file_name(output)
            if not measure.is_bounded(measure.limits_of(plan.recipe.checks, str(output.path))):
                self._unbounded |= {ancestor.name for ancestor in node.lineage()}
        self._last_step = list(plan.nodes)[-1]
        self._last_start = [node.name for node in plan.nodes.values() if node.parent is None][-1]
        self._results: dict[str, StepResult] = {}
        self._is_frozen = False

    def run(self) -> dict[str, StepResult]:
        measured: list[Future[None]] = []
        try:
            with ThreadPoolExecutor(1) as executor:
                for name, node in self._plan.nodes.items():
                    result, key = self._make(node)
                    self._results[name] = result
                    measured.append(executor.submit(self._measure, result, key))
                self._progress.step("measuring what was made")
                for future in measured:
                    future.result()
        finally:
            if self._is_frozen:
                gc.unfreeze()
        return self._results

    def _source_of(self, node: StepNode) -> Part:
        line = node.lineage()
        part = next(filter(None, (one.step.params.get("part") for one in line)), "")
        if part not in self.subject.parts:
            names = ", ".join(filter(None, self.subject.parts)) or "none"
            message = f"step {line[-1].name}: the source has no part {part or None}"
            raise InputError(message, f"its parts: {names}")
        return self.subject.parts[part]

    def _make(self, node: StepNode) -> tuple[StepResult, Key | None]:
        """Run a step, or take its result from the cache. Also return the key for caching a new result, or None."""
        directory = self._directory / node.name
        ancestors = tuple(self._results[ancestor.name] for ancestor in node.lineage()[1:])
        parent, source = ancestors[0] if ancestors else None, self._source_of(node)
        second = None if node.second is None else self._results[node.second.name]

        def result(step: Step, files: Sequence[str] = ()) -> StepResult:
            return StepResult(node, directory, step, tuple(files), ancestors, source, second)

        def skipped(reason: str) -> StepResult:
            return result(base.record(node.name, node.make(), node.step.input or "", skipped=reason))

        for taken in (parent, second):
            if taken is not None and taken.step.skipped:
                return skipped(taken.step.skipped), None
        key = {
            "pass": node.identity,
            "input": self._plan.subject if parent is None else dict(parent.digests),
            **({} if second is None else {"second": dict(second.digests)}),
            "file": self._names[node.name],
            "sample": source.dataset,
            "bounded": node.name not in self._unbounded,
            "tools": tools(),
        }
        directory.mkdir()
        start = source.start if parent is None else parent.main
        if self._cache is not None and self._cache.find("steps", key, directory):
            note = canonical.decode((directory / NOTE_FILE).read_bytes(), NOTE_FILE)
            step = note["step"] | {"name": node.name}  # the cached step may have another name
            if node.step.input is not None:
                step["input"] = node.step.input
            return result(Step.from_json(step), note["files"]), None
        self._progress.step(f"running {node.name}")
        try:
            with models.scratch_in(self._directory):
                target = directory / self._names[node.name]
                outcome = result(*_apply(node, start, target, None if second is None else second.main))
        except HostError as error:
            if not node.step.optional:
                raise
            return skipped(error.message), None
        if parent is None and isinstance(start, Path):
            self._plan.check_unchanged()
        if parent is not None and GENAI_CONFIG in parent.files and node.kind.takes == "graph":
            outcome.files = (*outcome.files, *_copy_settings(parent, outcome))
        return outcome, key

    def _measure(self, result: StepResult, key: Key | None) -> None:
        name = result.node.name
        is_published = name in self._published and bool(result.files)
        if key is not None and result.files and result.node.kind.takes != "checkpoint":
            label = f"{result.main.name}, which {result.node.kind.id} made"
            try_load(result.main, label, CRASHED, lambda: is_published and result.facts)
        result.compare(name not in self._unbounded)
        if key is not None and self._cache is not None:
            note: dict[str, Any] = {"step": result.step.to_json(), "files": list(result.files)}
            (result.directory / NOTE_FILE).write_bytes(canonical.encode(note, NOTE_FILE))
            self._cache.keep("steps", key, result.directory, result.digests)
        if is_published:
            _ = result.facts, result.runs.feeds and result.expected  # computed here, while the next step runs
        if name == self._last_start and not self._keeps_source:  # free the memory of the source
            self.subject = replace(self.subject, loaded=None)
            for part in self.subject.parts.values():
                part.start = None
        if name == self._last_step and self._plan.evaluation is None:
            return
        gc.collect()  # traced modules and graphs are cycles with weights, which would last through the next steps
        if name == self._last_start and not gc.get_freeze_count():  # what the caller froze stays frozen
            gc.freeze()  # the collections after the other steps look at their objects only
            self._is_frozen = True


def _apply(node: StepNode, subject: Any, target: Path, second: Path | None) -> tuple[Step, tuple[str, ...]]:
    """Run a step, and write the graph to `target`. Return the record and all file names, the graph's name first."""
    takes = node.kind.takes
    if not _can_take(takes, subject):
        label = "the source" if node.parent is None else f"the result of {node.step.input}"
        raise InputError(
            f"step {node.name}: {node.kind.id} takes a {takes}, and {label} is not one",
            "a decoder's checkpoint is built by the pass ModelBuilder"
            if _can_take("checkpoint", subject)
            else "a step names what it takes: input: STEP; without it that is the source",
        )

    run = partial(base.run, node.name, source=node.step.input)
    if takes == "module":
        graph, step = run(node.make(), subject)
        names = models.save(graph, target)
        for value in graph.graph.initializers.values():  # a graph is a cycle, which would keep the weights
            value.const_value = None
        return step, names
    if takes == "checkpoint":  # the tool creates the directory and names the files
        target.parent.rmdir()
        directory, step = run(node.make(), Decoder(subject, target.parent))
        paths = (path.name for path in directory.iterdir())
        return step, tuple(sorted(paths, key=lambda name: (not name.endswith(".onnx"), name)))
    if takes == "graph":
        second_graph = None if second is None else models.load(second)
        graph, step = run(node.make(second_graph), models.load(subject, scrubbed=True))
        return step, models.save(graph, target)
    model = load_onnx(subject)
    external = external_files(model, subject)
    take = shutil.copyfile if node.parent is None else link_or_copy  # linked files become read-only
    copy = target if takes == "original" else target.with_suffix(".onnx")
    if scrub_metadata(model, subject.parent):
        copy.write_bytes(model.SerializeToString(deterministic=True))
    else:
        take(subject, copy)
    for name in external:  # the graph refers to this name
        take(subject.parent / name, target.parent / name)
    if takes == "original":
        return run(node.make(), subject)[1], (target.name, *external)
    files, step = run(node.make(), copy)  # the pass writes beside its input
    for name in (copy.name, *external):
        (target.parent / name).unlink()
    return step, (files.path.name, files.config.name)


def _can_take(takes: base.Takes, subject: Any) -> bool:
    if takes == "module":
        return isinstance(subject, TorchModel)
    if takes == "checkpoint":
        return isinstance(subject, Path) and subject.is_dir()
    return takes in ("graph", "file", "original") and isinstance(subject, Path) and subject.is_file()


def _copy_settings(parent: StepResult, result: StepResult) -> list[str]:
    """Copy a decoder's settings and tokenizer to the decoder that a step made from it. Return the file names."""
    graphs = {parent.main.name, *external_files(load_onnx(parent.main), parent.main)}
    names = [name for name in parent.files if name not in graphs]
    for name in names:
        link_or_copy(parent.directory / name, result.directory / name)
    settings = result.directory / GENAI_CONFIG
    value = json.loads(settings.read_text("utf-8"))
    value["model"]["decoder"]["filename"] = result.main.name
    settings.unlink()
    settings.write_text(json.dumps(value, indent=4), "utf-8")
    return names


def draft_of(
    plan: ExportPlan, subject: ExportSubject, results: Mapping[str, StepResult], workspace: Path
) -> Draft:
    """Move each output to its path, describe it, and make the draft. Raise ConversionError if a check fails."""
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
        hint = "give its outputs directories of their own: path: a/..."
        raise InputError(f"two files of the export would be {path}", hint) from error


def _describe(
    plan: ExportPlan,
    subject: ExportSubject,
    result: StepResult,
    output: RecipeOutput,
    paths: Mapping[str, list[str]],
    workspace: Path,
) -> tuple[DraftArtifact, Step | None]:
    """Check and describe an output. Return the artifact, and the step that wrote golden vectors, or None."""
    path, *sidecar_paths = paths[output.step]
    facts, line = result.facts, (result, *result.ancestors)
    steps = tuple(item.step for item in reversed(line))
    extra: dict[str, Any] = {}
    if plan.profile is not None:
        promised = ProfileOutput(path, facts, steps)
        plan.profile.check(promised, subject)
        extra = dict(plan.profile.fields(promised))
    size = sum((workspace / file).stat().st_size for file in paths[output.step])
    entries = checks(result, limits_of(plan.recipe.checks, path), path, size)
    golden_step = _write_golden(output, result, workspace / path, entries)
    quantizing = next((step for step in reversed(steps) if "quantized_bytes" in step.result), steps[-1])
    fields = {**facts.fields({"pass": quantizing.pass_, **quantizing.params}), "checks": entries}
    if any(step.result.get("canonical") is False for step in steps):
        fields["reproducible"] = False
    fields["metadata"] = {**fields["metadata"], **extra.pop("metadata", {})}
    fields["checks"] += extra.pop("checks", [])
    roles = ("external-data" if name in facts.external_data else role_of(name) for name in result.files[1:])
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
    """Write a graph's golden vectors, if it has any. No tolerance is below the output's distance from the source."""
    tolerance = output.golden
    if tolerance is None:
        tolerance = TOLERANCES.get(result.facts.precision, OTHER_TOLERANCE)
    arrays = result.runs.golden
    if not tolerance or not arrays:
        return None
    distances = {one["name"]: one["value"] for one in entries if one["metric"] == "max_abs_diff"}
    by_output = {name.removeprefix("parity of "): value for name, value in distances.items()}
    least = by_output if len(by_output) > 1 else distances.get("parity", 0.0)
    outputs = Outputs(path, {case: result.source.golden[case] for case in arrays}, arrays)
    work = GoldenVectors(tolerance=tolerance, least=least)
    return base.run(f"{GOLDEN_PREFIX}{output.step}", work, outputs, output.step)[1]


def _recipe(plan: ExportPlan, subject: ExportSubject, steps: list[Step]) -> Recipe:
    used = {tool for node in plan.nodes.values() for tool in node.kind.tools}
    used |= {*plan.source.packages} if plan.source.code is None else set()
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

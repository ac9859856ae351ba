"""Export a model family: from its document to the draft of a version."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from onnxreg.converters.engine.measure import Outputs, make_check
from onnxreg.converters.evaluation.evaluate import (
    EvaluationPlan,
    SourceEvaluation,
    evaluate,
    plan_evaluation,
    time_judged,
)
from onnxreg.converters.evaluation.latency import PAIRS, LatencyTable, measure_chains
from onnxreg.converters.evaluation.rows import LabelledRow
from onnxreg.converters.families import detector as ood
from onnxreg.converters.families.backbone import INPUT, LoadedBackbone, load_backbone
from onnxreg.converters.families.heads import Head, head_files, head_graph, member_of, plain, read_heads
from onnxreg.converters.onnx.facts import inspect_file
from onnxreg.converters.passes import base, conversion, models, samples
from onnxreg.converters.passes.conversion import OnnxConversion
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import CONFIG, digest_file, scrub, weight_files
from onnxreg.converters.source.toolchain import require, tool_versions
from onnxreg.converters.tasks import code
from onnxreg.converters.tasks.code import NO_CONSENT, Consent, Factory
from onnxreg.converters.tasks.task import ExportSubject, Part
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest, directory_digest
from onnxreg.schema.core.errors import (
    ConversionError,
    GateError,
    InputError,
    NotFoundError,
    RegError,
    about,
    suggest,
)
from onnxreg.schema.core.ref import check_distinct
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.inputs.family_file import FACTORY_KEYS, FamilyFile
from onnxreg.schema.inputs.recipe_file import Benchmark
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.manifest.family import ModelFamily, Role, classes_digest
from onnxreg.schema.manifest.manifest import Preprocessing, Recipe, Source, Step

DOCUMENT = "family"
TASK = "image-classification"


@dataclass(frozen=True)
class FamilyPlan:
    """A checked family. Paths in the document are relative to `directory`.

    `consent` names the code that may run. `factory` makes the backbone; it is None if transformers loads the backbone.
    `recorded` is the document with defaults, and with digests in place of paths. `source` is the digest of all
    checkpoints. `certificates` has an evaluation plan for each member with a suite.
    """

    document: FamilyFile
    directory: Path
    consent: Consent
    factory: Factory | None
    recorded: Mapping[str, Any]
    source: Digest
    certificates: Mapping[str, EvaluationPlan] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.document.name

    def warnings(self) -> Sequence[str]:
        return [f"{member}: {text}" for member, plan in self.certificates.items() for text in plan.warnings()]

    def check_unchanged(self) -> None:
        now = plan_family(self.document, self.directory, self.consent)
        if (now.recorded, now.source) != (self.recorded, self.source):
            hint = "export again once nothing writes to them"
            raise InputError("a checkpoint or a file of rows was changed while it was read", hint)


def plan_family(document: FamilyFile, directory: Path, consent: Consent = NO_CONSENT) -> FamilyPlan:
    """Find and hash a family's checkpoints and files of rows. No model runs.

    Raises NotFoundError or InputError if a file cannot be read, or if a factory's argument is a path of this machine.
    """
    require("torch", "transformers", "safetensors", "onnxruntime")
    spec, function = document.backbone, None
    if spec.factory is not None:
        if paths := scrub(spec.model_dump(mode="json", include={"arguments"}), "")[1]:
            raise InputError(f"backbone: {paths[0]} names a place on this machine, and would be published")
        function = code.find(spec.factory, directory)
    checkpoint = directory / spec.checkpoint
    if not (checkpoint.is_dir() if function is None else checkpoint.is_file()):
        kind = "directory" if function is None else "file"
        raise NotFoundError(f"backbone: there is no checkpoint {kind} {spec.checkpoint}")
    certificates = {
        member: plan_evaluation(request, TASK, directory, ())
        for member, request in sorted(document.certify.items())
    }

    left_out = {"checkpoint", *(FACTORY_KEYS if function is None else ())}
    excluded: Any = {"name": True, "certify": True, "heads": {"folder"}, "backbone": left_out}
    recorded = document.model_dump(mode="json", exclude=excluded)
    if certificates:
        recorded["certify"] = {member: plan.recorded() for member, plan in certificates.items()}
    if recorded["preprocessing"] is None:
        del recorded["preprocessing"]
    if function is not None:
        recorded["backbone"]["factory"] = function.name
    rows = ("fit", "calibrate", "outliers")
    for section, key in [(recorded, "evaluation"), *((recorded["ood"], key) for key in rows)]:
        if section and section[key] is not None:
            section[key] = str(samples.digest([golden.read_rows(directory / section[key])]))

    if function is None:
        names = (CONFIG, *weight_files(checkpoint))
        files = {name: digest_file(checkpoint / name) for name in names if (checkpoint / name).is_file()}
    else:
        files = {"checkpoint": digest_file(checkpoint), **function.digests}
    heads = filter(Path.is_file, head_files(document.heads, directory))
    digests = {f"backbone/{name}": file_digest for name, file_digest in files.items()}
    source = directory_digest(digests | {f"heads/{path.name}": digest_file(path) for path in heads})
    plain: dict[str, Any] = canonical.decode(canonical.encode(recorded))
    return FamilyPlan(document, directory, consent, function, plain, source, certificates)


BACKBONE: Literal["backbone"] = "backbone"
DETECTOR: Literal["ood"] = "ood"
PLAIN = "float32"
SUFFIXES = {PLAIN: "-fp32", "float16": "-fp16", "int8": "-int8"}
COMPARED_IMAGES, COMPARED_EMBEDDINGS = 32, 64
"""The maximum number of rows on which a graph is compared: images for the backbone, embeddings for other members."""
MAX_NAMED_LIMITS = 5
BENCHMARK = Benchmark(runs=40, threads=1, batches=(1,))


@dataclass(frozen=True)
class MemberFile:
    """The graph of a member in one precision, at `path` in the workspace. `checks` are in the manifest's JSON form.

    `parent` is the path of the float32 graph from which this graph was made. `step` is the record of the pass.
    """

    member: str
    role: Role
    precision: str
    path: str
    checks: tuple[dict[str, Any], ...]
    parent: str | None = None
    step: Step | None = None


def export_family(
    plan: FamilyPlan, workspace: Path, progress: Progress = SILENT
) -> tuple[Draft, list[LatencyTable]]:
    """Make a family, measure its latency and check its limits. Return the draft and the tables of latencies.

    Raises GateError if a limit is not met, and the errors of `make_family`.
    """
    import numpy as np

    draft, files, evaluations = make_family(plan, workspace, progress)
    progress.step("measuring the latency")
    image = np.zeros([1, *load_session(workspace / files[0].path).get_inputs()[0].shape[1:]], np.float32)
    heads = [file for file in files if file.role == "head"]
    first = {file.precision: file.path for file in heads if file.member == heads[0].member}
    detector = [file.path for file in files if file.role == DETECTOR]
    chains = [
        [file.path, *filter(None, [first.get(file.precision, first.get(PLAIN))]), *detector]
        for file in files
        if file.role == BACKBONE
    ]
    latency = measure_chains(workspace, chains, {INPUT: image}, BENCHMARK)
    check_limits(plan.document, files, latency)
    judged = chain.from_iterable(time_judged(one, draft, progress=progress) for one in evaluations)
    tables = latency, LatencyTable(PAIRS, tuple(judged))
    return draft, [table for table in tables if table.latencies]


def check_limits(document: FamilyFile, files: Sequence[MemberFile], latency: LatencyTable) -> None:
    failed = [
        f"{file.member} ({file.precision}): {check['name']}: {check['metric']} is {check['value']:g}, "
        f"the limit {check['limit']:g}"
        for file in files
        for check in file.checks
        if check["verdict"] == "fail"
    ]
    most = document.limits.latency_p95
    failed += [
        f"{' + '.join(item.paths)}: p95 is {item.p95:g} ms, the limit {most:g}"
        for item in latency.latencies
        if most is not None and item.p95 > most
    ]
    if failed:
        more = f"; and {len(failed) - MAX_NAMED_LIMITS} more" if len(failed) > MAX_NAMED_LIMITS else ""
        message = f"nothing was published, limits do not hold: {'; '.join(failed[:MAX_NAMED_LIMITS])}{more}"
        hint = "fix the members, or relax the limits under `limits` (null removes one)"
        raise GateError(message, hint)


def make_family(
    plan: FamilyPlan, workspace: Path, progress: Progress = SILENT
) -> tuple[Draft, list[MemberFile], list[SourceEvaluation]]:
    """Make and judge all members of a family in `workspace`. Return the draft, the files and the evaluations.

    Raises InputError or NotFoundError if a file is unusable, and ConversionError if a graph differs from its
    checkpoint. Each message names the member.
    """
    import numpy as np

    document = plan.document
    progress.step("loading the backbone and the heads")
    backbone = load_backbone(document.backbone, plan.directory, plan.factory, plan.consent)
    heads = read_heads(document.heads, plan.directory, backbone.classes, backbone.width)
    paths = _paths(document, heads)
    for member in plan.certificates:
        if member not in (names := [BACKBONE, *(head.name for head in heads.values())]):
            message = f"certify names {member}, which is neither the backbone nor a head"
            raise InputError(message, suggest(member, names))
    values = document.preprocessing
    preprocessing = None if values is None else Preprocessing.of_input(values, backbone.shape)

    write = partial(_write, document, workspace, paths)
    progress.step("exporting the backbone")
    export = OnnxConversion(use_dynamo_exporter="auto", target_opset=document.opset)
    with _named(BACKBONE):
        exported, step = base.run(BACKBONE, export, backbone.subject)
    images = document.evaluation and _images(plan, backbone)
    feeds = samples.draw(exported) if images is None else ({INPUT: images},)
    expected = conversion.run(backbone.subject, feeds)
    files = list(write(BACKBONE, BACKBONE, exported, feeds, expected, step))
    sessions = {file.precision: load_session(workspace / file.path) for file in files}
    takes, gives, activation = document.backbone.embedding, document.heads.logits, document.heads.activation

    @cache
    def embedded(path: str, precision: str = PLAIN) -> ood.Rows:
        return ood.embed(sessions[precision], takes, plan.directory / path, path == document.evaluation)

    if document.evaluation is None:
        rows = np.random.default_rng(0).normal(size=(COMPARED_EMBEDDINGS, backbone.width)).astype(np.float32)
    else:
        rows = embedded(document.evaluation).embeddings[:COMPARED_EMBEDDINGS]
    feeds = ({takes: rows},)

    progress.step(f"exporting {len(heads)} heads")
    for head in heads.values():
        model = head_graph(head, activation, takes, gives, document.opset)
        files += write(head.name, "head", model, feeds, [{gives: head.logits(rows, activation)}])

    record: dict[str, Any] = {}
    if document.ood is not None:
        fitted, calibration = map(embedded, (document.ood.fit, document.ood.calibrate))
        detector = ood.fit(fitted, calibration, document.ood.percentile, document.ood.shrinkage)
        distances = detector.covariance.distances(rows)
        expected = [{ood.DISTANCE: distances, ood.VERDICT: distances <= detector.threshold}]
        graph = ood.detector_graph(detector, takes, document.opset)
        (file,) = write(DETECTOR, DETECTOR, graph, feeds, expected)
        session = load_session(workspace / file.path)
        checks = [ood.rejection(session, calibration, "false rejection, calibration", "false_rejection_rate")]
        least_share = document.limits.ood_true_positive
        tests = [
            (document.evaluation, "false rejection", "false_rejection_rate", None),
            (document.ood.outliers, "rejection of outliers", "true_positive_rate", least_share),
        ]
        for precision in sessions:
            for path, name, metric, least in tests:
                if path is None:
                    continue
                measured = embedded(path, precision)
                if measured.stored and precision != PLAIN:
                    continue
                measured.check_apart(fitted)
                measured.check_apart(calibration)
                full_name = name if measured.stored else f"{name}, {precision} backbone"
                checks.append(ood.rejection(session, measured, full_name, metric, least))
        record = detector.record(round(checks[0]["value"] * checks[0]["samples"]))
        files.append(replace(file, checks=(*file.checks, *checks)))

    progress.step("describing what was made")
    draft = _draft(plan, backbone, heads, files, record, preprocessing, workspace)
    evaluations = [
        _evaluation(document, member, own, files, workspace) for member, own in plan.certificates.items()
    ]
    for evaluation in evaluations:
        draft = evaluate(evaluation, draft, progress)
    plan.check_unchanged()
    return draft, files, evaluations


def _images(plan: FamilyPlan, backbone: LoadedBackbone) -> Any:
    path = plan.directory / str(plan.document.evaluation)
    arrays = golden.read_rows(path)
    if INPUT not in arrays:
        raise InputError(f"{path.name} has no array called {INPUT}", f"it has {', '.join(sorted(arrays))}")
    return ood.as_float32(arrays[INPUT], backbone.shape, f"{path.name}: {INPUT}")[:COMPARED_IMAGES]


def _paths(document: FamilyFile, heads: Mapping[str, Head]) -> dict[str, list[tuple[str, str]]]:
    """Return (precision, path) for each file of each member. Raise InputError if two paths collide."""
    stems: dict[str, tuple[str, Sequence[str]]] = {
        BACKBONE: (document.backbone.file, document.variants.backbone)
    }
    for class_id in heads:
        if member_of(class_id) in stems:
            hint = "let class ids differ in letters and digits"
            raise InputError(f"two heads would be called {member_of(class_id)}", hint)
        stems[member_of(class_id)] = (f"{document.heads.file}/{plain(class_id)}", document.variants.head)
    paths = {
        name: [(precision, f"{stem}{SUFFIXES[precision]}.onnx") for precision in (PLAIN, *precisions)]
        for name, (stem, precisions) in stems.items()
    }
    if document.ood is not None:
        paths[DETECTOR] = [(PLAIN, f"{DETECTOR}.onnx")]
    hint = "let backbone.file and heads.file differ, and class ids in more than case; list a precision once"
    with about("two files of members collide", hint=hint):
        check_distinct(path for _, path in chain.from_iterable(paths.values()))
    return paths


@contextmanager
def _named(member: str) -> Iterator[None]:
    """A context that puts the member's name before an error's message."""
    try:
        yield
    except RegError as error:
        if error.message.startswith(member):
            raise
        raise type(error)(f"{member}: {error.message}", error.hint) from error


def _write(
    document: FamilyFile,
    workspace: Path,
    paths: Mapping[str, Sequence[tuple[str, str]]],
    member: str,
    role: Role,
    plain_graph: Any,
    feeds: Sequence[Feed],
    origin: Outputs,
    step: Step | None = None,
) -> Iterator[MemberFile]:
    """Write a member in float32 and in other precisions. Compare float32 with `origin`, and the others with float32."""
    limits, parent, expected, dataset = document.limits, None, origin, str(samples.digest(feeds))
    with _named(member):
        for precision, path in paths[member]:
            model, label = plain_graph, member
            if parent is not None:
                label = f"{member} in {precision}"
                work = OnnxFloatToFloat16(feeds) if precision == "float16" else OnnxDynamicQuantization()
                model, step = base.run(precision, work, plain_graph.clone(), PLAIN)
            outputs = samples.all_outputs(model, feeds, label)
            checks = []
            for name, distance in samples.compare(expected, outputs, label).items():
                array = expected[0][name]
                about = {"name": f"parity of {name}", "samples": distance.positions, "dataset": dataset}
                if array.dtype.kind == "b":
                    checks.append(make_check(about, "agreement", float((outputs[0][name] == array).mean())))
                    continue
                limit = getattr(limits.parity, precision)
                scale = 1.0 if parent is None else max(1.0, distance.largest)
                most = None if limit is None else limit * scale
                checks.append(make_check(about, "max_abs_diff", distance.max_abs_diff, most))
                if name in (document.backbone.logits, document.heads.logits):
                    checks.append(make_check(about, "argmax_agreement", distance.argmax_agreement))
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            if len(models.save(model, workspace / path)) != 1:
                raise ConversionError(f"{path} does not fit into one file: a family holds graphs below 2 GB")
            largest = getattr(getattr(limits.size, role), precision, None)
            size = (workspace / path).stat().st_size
            checks.append({"name": "load", "metric": "loads", "value": 1.0, "verdict": "pass"})
            checks.append(make_check({"name": "size"}, "bytes", size, largest))
            yield MemberFile(member, role, precision, path, tuple(checks), parent, step)
            if parent is None:
                parent, expected = path, outputs


def _draft(
    plan: FamilyPlan,
    backbone: LoadedBackbone,
    heads: Mapping[str, Head],
    files: Sequence[MemberFile],
    record: Mapping[str, Any],
    preprocessing: Preprocessing | None,
    workspace: Path,
) -> Draft:
    document = plan.document
    artifacts = []
    for file in files:
        facts, step = inspect_file(workspace / file.path), file.step
        requested = {} if step is None else {"pass": step.pass_, **step.params}
        fields, kind = {**facts.fields(requested), "checks": list(file.checks)}, facts.format
        artifacts.append(DraftArtifact(kind, file.precision, file.path, parent=file.parent, fields=fields))

    classes: dict[str, tuple[str, Sequence[str]]] = {BACKBONE: (document.backbone.logits, backbone.classes)}
    classes |= {head.name: (document.heads.logits, head.classes) for head in heads.values()}
    members = []
    for name, role in {file.member: file.role for file in files}.items():
        member: dict[str, Any] = {"name": name, "role": role}
        member["artifacts"] = [file.path for file in files if file.member == name]
        if name in classes:
            output, ids = classes[name]
            member["classes"] = {"output": output, "ids": list(ids), "digest": str(classes_digest(ids))}
        members.append(member)
    embedding = document.backbone.embedding
    edges = [
        {"source": BACKBONE, "output": embedding, "target": role, "input": embedding}
        for role in ("head", DETECTOR)
        if any(file.role == role for file in files)
    ]
    routing = {id_: heads[id_].name if id_ in heads else None for id_ in backbone.classes}
    value = {"members": members, "edges": edges, "routing": routing}
    family = ModelFamily.from_json(value, f"the family of {plan.name}")

    steps: dict[str, dict[str, Any]] = {}
    for file in files:  # one step for each role and precision: hundreds of heads are made in one way
        name = f"{file.role}-{file.precision}"
        if name not in steps:
            origin = {"pass": f"family-{file.role}", "version": 1, "params": {}}
            if file.step is not None:
                recorded = file.step.to_json()
                origin = {key: recorded[key] for key in ("pass", "version", "params")}
                origin["result"] = recorded.get("result", {}) if file.role == BACKBONE else {}
            parent = {"input": f"{file.role}-{PLAIN}"} if file.parent else {}
            steps[name] = {"name": name, "result": {}, **origin, **parent}
        steps[name]["result"]["graphs"] = steps[name]["result"].get("graphs", 0) + 1
        if file.role == DETECTOR:
            steps[name]["result"] |= record
    recipe = {
        "profile": DOCUMENT,
        "profile_version": 1,
        "steps": list(steps.values()),
        "tools": tool_versions(() if plan.factory is None else plan.factory.packages),
        "parameters": {DOCUMENT: dict(plan.recorded)},
        **({} if plan.factory is None else {"code": plan.factory.code.to_json()}),
    }
    optional = {
        "family": backbone.model_type,
        "license": document.license,
        "description": document.description,
        "preprocessing": preprocessing and preprocessing.to_json(),
    }
    fields = {
        "task": TASK,
        "model_family": family.to_json(),
        "source": {"id": plan.name, "digest": str(plan.source)},
        "source_model_id": plan.name,
        "recipe": Recipe.from_json(recipe).to_json(),
        **{key: value for key, value in optional.items() if value},
    }
    return Draft(plan.name, workspace, tuple(sorted(artifacts, key=lambda item: item.path)), (), fields)


def _evaluation(
    document: FamilyFile, member: str, plan: EvaluationPlan, files: Sequence[MemberFile], workspace: Path
) -> SourceEvaluation:
    """Make the evaluation of a member's files of reduced precision; a head gets the float32 backbone's embeddings."""
    variants = [file for file in files if file.member == member]
    paths = tuple(file.path for file in variants if file.precision != PLAIN)
    if not paths:
        hint = "name one under variants, or leave its suite out"
        raise InputError(f"certify names {member}, which has no other precision than float32", hint)
    takes, gives, embedding = INPUT, document.backbone.logits, document.backbone.embedding
    if member != BACKBONE:
        takes, gives, session = embedding, document.heads.logits, load_session(workspace / files[0].path)
        items = [
            LabelledRow({takes: samples.outputs(session, item.feed, BACKBONE)[embedding]}, item.label)
            if INPUT in item.feed
            else item
            for item in plan.suite.items
        ]
        plan = replace(plan, suite=replace(plan.suite, items=tuple(items)))
    start = workspace / variants[0].path
    subject = ExportSubject(
        Source(id=member, digest=digest_file(start)),
        {"": Part(start, [{takes: None}], [{gives: None}])},
        fields={"task": TASK},
    )
    plan = replace(plan, request=plan.request.model_copy(update={"artifacts": paths}))
    return SourceEvaluation(plan, subject)

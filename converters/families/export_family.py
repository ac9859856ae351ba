"""The export of a family: its members are made, measured, compared with the limits, and described."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.latency import LatencyTable, measure_chains
from onnxreg.converters.evaluation.evaluate import evaluate
from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan
from onnxreg.converters.evaluation.tasks.labelled_rows import LabelledRow
from onnxreg.converters.families import judge_family
from onnxreg.converters.families.backbone import EMBEDDING, LOGITS
from onnxreg.converters.families.build_members import (
    BACKBONE,
    DETECTOR,
    LoadedFamily,
    judge_backbone,
    load_family,
    make_backbone,
    make_detector,
    make_fused,
    make_heads,
)
from onnxreg.converters.families.detector import Detector, fit
from onnxreg.converters.families.draft_family import draft_of
from onnxreg.converters.families.family_plan import TASK, FamilyPlan, MemberPlans
from onnxreg.converters.families.head_graphs import INPUT, OUTPUT
from onnxreg.converters.families.precisions import PLAIN, MemberFile
from onnxreg.converters.families.rows import Embedder
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.tasks.task import ExportSubject, Sample
from onnxreg.schema.core.errors import GateError, InputError, suggest
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.inputs.recipe_file import Benchmark
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Source

COMPARED_EMBEDDINGS = 64
"""Embeddings that the precisions of heads and the detector are compared on."""
MAX_NAMED_LIMITS = 5
"""Failed limits that an error names."""
BENCHMARK = Benchmark(runs=40, threads=1, batches=(1,))


def export_family(
    plan: FamilyPlan, workspace: Path, progress: Progress = SILENT
) -> tuple[Draft, LatencyTable]:
    """Make a family that keeps its limits, and time it.

    Raises GateError if a limit does not hold, and what `make_family` raises. Then the workspace is not valid.
    """
    draft, files = make_family(plan, workspace, progress)
    progress.step("measuring the latency")
    latency = _measure_latency(workspace, files)
    check_limits(plan.document, files, latency)
    return draft, latency


def make_family(
    plan: FamilyPlan, workspace: Path, progress: Progress = SILENT
) -> tuple[Draft, list[MemberFile]]:
    """Make every member of a family in `workspace`, whether its limits hold or not.

    Raises InputError or NotFoundError, naming the member, for a checkpoint or rows that cannot be used,
    ConversionError if a graph differs from its checkpoint.
    """
    progress.step("loading the backbone and the heads")
    family = load_family(plan)
    check_members(plan.certificates, [head.name for head in family.heads.values()])
    progress.step("exporting the backbone")
    backbone = make_backbone(family, workspace)
    embedders = {
        file.precision: Embedder(load_session(workspace / file.path), plan.directory) for file in backbone
    }
    rows, held_out = _drawn(family.backbone.width), None
    if plan.document.evaluation is not None:
        outputs = [item.embed_images(plan.document.evaluation).outputs for item in embedders.values()]
        backbone = judge_backbone(family, backbone, [arrays[LOGITS] for arrays in outputs])
        held_out = outputs[0][EMBEDDING]
        rows = held_out[:COMPARED_EMBEDDINGS]
    progress.step(f"exporting {len(family.heads)} heads")
    heads = list(make_heads(family, workspace, rows, held_out))
    fused = make_fused(family, workspace, [precisions[0] for precisions in heads], rows)
    detector, detector_files = _make_detector(family, workspace, embedders, rows)
    files = [*backbone, *chain.from_iterable(heads), *fused, *detector_files]
    progress.step("describing what was made")
    draft = draft_of(plan, family, detector, files, workspace)
    draft = certify_members(plan.certificates, draft, files, workspace, progress)
    plan.check_unchanged()
    return draft, files


def _drawn(width: int) -> Any:
    """Draw seeded embeddings, for a family without held-out rows."""
    import numpy as np

    return np.random.default_rng(0).normal(size=(COMPARED_EMBEDDINGS, width)).astype(np.float32)


def _make_detector(
    family: LoadedFamily, workspace: Path, embedders: Mapping[str, Embedder], compared: Any
) -> tuple[Detector | None, list[MemberFile]]:
    """Fit the detector on embeddings in float32, and measure what its graph rejects behind each backbone.

    Args:
        embedders: by precision.
        compared: embeddings that its graph is compared with float64 on.
    """
    document = family.document
    if document.ood is None:
        return None, []
    rows, calibration = (embedders[PLAIN].embed(path) for path in (document.ood.fit, document.ood.calibrate))
    fitted = fit(rows, calibration, document.ood.percentile, document.ood.shrinkage)
    detector, file = make_detector(document, workspace, fitted, compared, calibration.embeddings)
    session = load_session(workspace / file.path)
    checks = [judge_family.calibration(detector)]
    for precision, embedder in embedders.items():
        held_out = None if document.evaluation is None else embedder.embed_images(document.evaluation)
        outliers = None if document.ood.outliers is None else embedder.embed(document.ood.outliers)
        for measured in (held_out, outliers):
            if measured is not None:
                measured.check_apart(rows)
                measured.check_apart(calibration)
        if precision != PLAIN and outliers is not None and outliers.stored:
            outliers = None
        checks += judge_family.detection(session, precision, held_out, outliers, document.limits)
    return detector, [file.with_checks(checks)]


def _measure_latency(workspace: Path, files: Sequence[MemberFile]) -> LatencyTable:
    """Time one row through each precision of the family."""
    import numpy as np

    session = load_session(workspace / files[0].path)
    image = {"input": np.zeros([1, *session.get_inputs()[0].shape[1:]], np.float32)}
    return measure_chains(workspace, _chains(files), image, BENCHMARK)


def _chains(files: Sequence[MemberFile]) -> Iterator[list[str]]:
    """Yield the paths of each backbone, of a head in its precision or in float32, and of the detector."""
    heads = [file for file in files if file.role == "head"]
    first = {file.precision: file.path for file in heads if file.member == heads[0].member}
    detector = [file.path for file in files if file.role == DETECTOR]
    for trunk in (file for file in files if file.role == BACKBONE):
        head = first.get(trunk.precision, first.get(PLAIN))
        yield [trunk.path, *([] if head is None else [head]), *detector]


def check_limits(document: FamilyFile, files: Sequence[MemberFile], latency: LatencyTable) -> None:
    """Raise GateError, naming members, if a limit does not hold."""
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
        raise GateError(
            f"nothing was published, limits do not hold: {'; '.join(failed[:MAX_NAMED_LIMITS])}{more}",
            "fix the members, or relax the limits under `limits` (null removes one)",
        )


IMAGE = "input"
"""The input of the backbone, and the array of images in a suite."""


def check_members(plans: MemberPlans, heads: Iterable[str]) -> None:
    """Raise InputError if a suite is for a member that the family does not have, or that does not classify."""
    names = [BACKBONE, *heads]
    for member in plans:
        if member not in names:
            raise InputError(
                f"certify names {member}, which is neither the backbone nor a head", suggest(member, names)
            )


def certify_members(
    plans: MemberPlans, draft: Draft, files: Iterable[MemberFile], workspace: Path, progress: Progress
) -> Draft:
    """Judge the members of a draft; return it with their verdicts, checks and certificates.

    A suite has images, or, for a head, embeddings. A head gets the embeddings of the float32 backbone, so that its
    verdict is about its own bytes alone. Raises InputError if a suite does not fit its member, or the member has no
    other precision than float32; ConversionError if a graph does not run.
    """
    own = list(files)
    backbone = next(file for file in own if file.member == BACKBONE and file.precision == PLAIN)
    for member, plan in plans.items():
        variants = [file for file in own if file.member == member]
        plain = next(file for file in variants if file.precision == PLAIN)
        if member != BACKBONE:
            plan = _embedded(plan, workspace / backbone.path)
        paths = tuple(file.path for file in variants if file.precision != PLAIN)
        if not paths:
            raise InputError(
                f"certify names {member}, which has no other precision than float32",
                "name one under variants, or leave its suite out",
            )
        draft, _ = evaluate(
            replace(plan, artifacts=paths), draft, _subject(member, workspace / plain.path), progress=progress
        )
    return draft


def _subject(member: str, path: Path) -> ExportSubject:
    """The float32 graph of a member as the source that its other precisions are compared with."""
    takes, gives = (IMAGE, LOGITS) if member == BACKBONE else (INPUT, OUTPUT)
    sample = Sample(feeds=[{takes: None}], expected=[{gives: None}])
    return ExportSubject(
        Source(id=member, digest=digest_file(path)), sample, start=path, fields={"task": TASK}
    )


def _embedded(plan: EvaluationPlan, backbone: Path) -> EvaluationPlan:
    """The plan with embeddings in place of images. Its suite keeps its digest: that of the file."""
    session: Any = None
    items = []
    for item in plan.suite.items:
        if IMAGE in item.feed:
            session = session or load_session(backbone)
            embedding = samples.outputs(session, item.feed, BACKBONE)[EMBEDDING]
            item = LabelledRow({INPUT: embedding}, item.label, item.output)
        items.append(item)
    return replace(plan, suite=replace(plan.suite, items=tuple(items)))

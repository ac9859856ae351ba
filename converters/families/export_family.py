"""The export of a family: its members are made, measured, compared with the limits, and described."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.latency import LatencyTable, measure_chains
from onnxreg.converters.families import judge_family
from onnxreg.converters.families.backbone import EMBEDDING, LOGITS
from onnxreg.converters.families.build_members import (
    BACKBONE,
    DETECTOR,
    judge_backbone,
    make_backbone,
    make_detector,
    make_fused,
    make_heads,
)
from onnxreg.converters.families.certify_members import certify_members, check_members
from onnxreg.converters.families.detector import Detector, fit
from onnxreg.converters.families.draft_family import draft_of
from onnxreg.converters.families.family_plan import FamilyPlan
from onnxreg.converters.families.fitting_evidence import Embedder
from onnxreg.converters.families.load_family import LoadedFamily, load_family
from onnxreg.converters.families.precisions import PLAIN, MemberFile
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.schema.core.errors import GateError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.inputs.recipe_file import Benchmark
from onnxreg.schema.manifest.draft import Draft

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

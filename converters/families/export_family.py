"""A family exported: its members made and measured, held against the limits, and put together as one draft."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from onnxreg.converters.families import factory_backbone, family_latency, judge_family
from onnxreg.converters.families.backbone import EMBEDDING, LOGITS, LoadedBackbone, load_backbone
from onnxreg.converters.families.build_members import (
    MemberBuild,
    judge_backbone,
    make_backbone,
    make_detector,
    make_fused,
    make_heads,
)
from onnxreg.converters.families.detector import Detector, fit
from onnxreg.converters.families.draft_family import Parts, assemble
from onnxreg.converters.families.family_document import record, source_digest
from onnxreg.converters.families.family_latency import Latency
from onnxreg.converters.families.find_checkpoints import checkpoint_of, read_heads
from onnxreg.converters.families.fitting_evidence import Embedder, HeldOut
from onnxreg.converters.families.member_paths import check_paths
from onnxreg.converters.families.precisions import PLAIN, MemberFile
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks.code.consent import NO_CONSENT, Consent
from onnxreg.schema.core.errors import GateError, InputError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.inputs.family_file import BackboneSpec, FamilyFile
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.preprocessing import Preprocessing

SAMPLED = 64
"""Embeddings that the variants of heads and the detector are compared on."""
NAMED = 5
"""Failed limits that an error names."""


@dataclass(frozen=True)
class ExportedFamily:
    """A draft and its graphs, by role; `heads` are in the backbone's order, each with float32 first.

    `latencies` are those of one row through backbone, head and detector here, for each kind of backbone.
    """

    draft: Draft
    backbone: Sequence[MemberFile]
    heads: Sequence[Sequence[MemberFile]]
    ood: Sequence[MemberFile]
    made: Sequence[MemberFile]
    latencies: tuple[Latency, ...] = ()


def export_family(
    asked: FamilyFile,
    directory: Path,
    workspace: Path,
    progress: Progress = SILENT,
    consent: Consent = NO_CONSENT,
) -> ExportedFamily:
    """Make a family that keeps its limits.

    Raises GateError where a stated limit does not hold, and as `make_family`. Then nothing in the workspace counts.
    """
    family = make_family(asked, directory, workspace, progress, consent)
    progress.step("measuring the latency")
    latencies = tuple(_time(workspace, family))
    check_limits(asked, family.made, latencies)
    return replace(family, latencies=latencies)


def make_family(
    asked: FamilyFile,
    directory: Path,
    workspace: Path,
    progress: Progress = SILENT,
    consent: Consent = NO_CONSENT,
) -> ExportedFamily:
    """Make every member of a family in `workspace`, whatever its limits say of it.

    Args:
        directory: what the paths in `asked` are relative to.
        consent: the code that may run.

    Raises InputError or NotFoundError, naming the member, for a checkpoint or rows that cannot be used, ConversionError where a
    graph is not what it was made from.
    """
    require("torch", "transformers", "safetensors", "onnxruntime")
    progress.step("loading the backbone and the heads")
    parts, held_out = _gather(asked, directory, consent)
    work, heads = MemberBuild(asked, workspace, held_out), parts.heads
    progress.step("exporting the backbone")
    backbone = make_backbone(work, parts.backbone)
    embedders = {
        each.precision: Embedder(load_session(workspace / each.path), directory) for each in backbone
    }
    rows, judged_on = _drawn(parts.backbone.width), None
    if asked.evaluation is not None:
        seen = [each.embed_images(asked.evaluation).outputs for each in embedders.values()]
        logits = [each[LOGITS] for each in seen]
        backbone = judge_backbone(work, backbone, logits, parts.backbone.classes)
        judged_on = seen[0][EMBEDDING]
        rows = judged_on[:SAMPLED]
    progress.step(f"exporting {len(heads)} heads")
    separate = list(make_heads(work, heads, rows, judged_on))
    fused = make_fused(work, list(heads.values()), [each[0] for each in separate], rows)
    detector, ood = _detect(work, embedders, rows)
    made = [*backbone, *chain.from_iterable(separate), *fused, *ood]
    progress.step("describing what was made")
    draft = assemble(asked, replace(parts, detector=detector), made, workspace)
    if (record(asked, directory), source_digest(asked, directory)) != (parts.document, parts.source):
        raise InputError(
            "a checkpoint or a file of rows was changed while it was read",
            "export again once nothing writes to them",
        )
    return ExportedFamily(draft, backbone, separate, ood, made)


def _gather(asked: FamilyFile, directory: Path, consent: Consent) -> tuple[Parts, HeldOut | None]:
    """All checkpoints, read, and the held-out rows; what does not fit together is refused before any graph is made."""
    document, source = record(asked, directory), source_digest(asked, directory)
    held_out = None if asked.evaluation is None else HeldOut.read(directory / asked.evaluation)
    backbone = _load(asked.backbone, directory, consent)
    heads = read_heads(asked.heads, directory, backbone.classes, backbone.width)
    check_paths(asked, heads)
    if held_out is not None:
        held_out.check_heads([head.name for head in heads.values()])
    return Parts(backbone, heads, document, source, preprocessing=_preprocessing(asked, backbone)), held_out


def _load(asked: BackboneSpec, directory: Path, consent: Consent) -> LoadedBackbone:
    if (factory := factory_backbone.find(asked, directory)) is not None:
        return factory_backbone.load(asked, directory, factory, consent)
    return load_backbone(checkpoint_of(asked, directory), asked.classes)


def _preprocessing(asked: FamilyFile, backbone: LoadedBackbone) -> Preprocessing | None:
    if asked.preprocessing is None:
        return None
    return Preprocessing.of_input(asked.preprocessing, backbone.shape)


def _drawn(width: int) -> Any:
    """Seeded embeddings, where there are no rows to have real ones of."""
    import numpy as np

    return np.random.default_rng(0).normal(size=(SAMPLED, width)).astype(np.float32)


def _detect(
    work: MemberBuild, embedders: Mapping[str, Embedder], compared: Any
) -> tuple[Detector | None, list[MemberFile]]:
    """The detector, fitted on embeddings in float32, and its graph, with how often it rejects what behind each kind of backbone.

    Args:
        embedders: by precision.
        compared: embeddings that its graph is held against float64 on.
    """
    asked = work.asked
    if asked.ood is None:
        return None, []
    rows, calibration = (embedders[PLAIN].embed(path) for path in (asked.ood.fit, asked.ood.calibrate))
    fitted = fit(rows, calibration, asked.ood.percentile, asked.ood.shrinkage)
    detector, made = make_detector(work, fitted, compared, calibration.embeddings)
    session = load_session(work.workspace / made.path)
    checks = [judge_family.calibration(detector)]
    for precision, embedder in embedders.items():
        held_out = None if asked.evaluation is None else embedder.embed_images(asked.evaluation)
        outliers = None if asked.ood.outliers is None else embedder.embed(asked.ood.outliers)
        for measured in (each for each in (held_out, outliers) if each is not None):
            measured.check_apart(rows)
            measured.check_apart(calibration)
        if precision != PLAIN and outliers is not None and outliers.stored:
            outliers = None
        checks += judge_family.detection(session, precision, held_out, outliers, asked.limits)
    return detector, [replace(made, checks=(*made.checks, *checks))]


def _time(workspace: Path, family: ExportedFamily) -> Iterator[Latency]:
    """Each backbone with a head of its precision, or of float32, and the detector."""
    import numpy as np

    session = load_session(workspace / family.backbone[0].path)
    shape = [1, *session.get_inputs()[0].shape[1:]]
    image = {"input": np.zeros(shape, np.float32)}
    first = next(iter(family.heads), [])
    for trunk in family.backbone:
        head = next((each for each in first if each.precision == trunk.precision), next(iter(first), None))
        chosen = [trunk, *([head] if head else []), *family.ood]
        yield family_latency.measure(workspace, [each.path for each in chosen], image)


def check_limits(asked: FamilyFile, made: Sequence[MemberFile], latencies: Sequence[Latency]) -> None:
    """GateError, naming members, where a stated limit does not hold."""
    failed = [
        f"{each.member} ({each.precision}): {check['name']}: {check['metric']} is {check['value']:g}, the limit {check['limit']:g}"
        for each in made
        for check in each.checks
        if check["verdict"] == "fail"
    ]
    most = asked.limits.latency_p95
    failed += [
        f"{' + '.join(each.paths)}: p95 is {each.p95:g} ms, the limit {most:g}"
        for each in latencies
        if most is not None and each.p95 > most
    ]
    if failed:
        more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        raise GateError(
            f"nothing was published, limits do not hold: {'; '.join(failed[:NAMED])}{more}",
            "fix the members, or relax the limits under `limits` (null removes one)",
        )

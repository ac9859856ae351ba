"""Certificates of the members of a family: each member is judged on a suite of its own, against its float32 graph."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreg.converters.evaluation.evaluate import evaluate
from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan
from onnxreg.converters.evaluation.tasks.labelled_rows import LabelledRow
from onnxreg.converters.families.backbone import EMBEDDING, LOGITS
from onnxreg.converters.families.build_members import BACKBONE
from onnxreg.converters.families.family_plan import TASK, MemberPlans
from onnxreg.converters.families.head_graph import INPUT, OUTPUT
from onnxreg.converters.families.precisions import PLAIN, MemberFile
from onnxreg.converters.passes.tools import proof
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.file_hash import digest_file
from onnxreg.converters.tasks.task import ExportSubject, Sample
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.suggest import suggest
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Source

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
            embedding = proof.outputs(session, item.feed, BACKBONE)[EMBEDDING]
            item = LabelledRow({INPUT: embedding}, item.label, item.output)
        items.append(item)
    return replace(plan, suite=replace(plan.suite, items=tuple(items)))

"""The members of a family by role: each graph is made, compared with its origin, written and judged."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from onnxreg.converters.engine.measure import Outputs
from onnxreg.converters.families import judge_family
from onnxreg.converters.families.backbone import (
    LOGITS,
    LoadedBackbone,
    export_backbone,
    load_backbone,
    load_factory_backbone,
    subject_of,
)
from onnxreg.converters.families.detector import DISTANCE, VERDICT, Detector, detector_graph, detector_tensors
from onnxreg.converters.families.family_files import (
    OOD,
    TENSORS,
    backbone_paths,
    check_paths,
    fused_paths,
    head_paths,
)
from onnxreg.converters.families.family_plan import FamilyPlan
from onnxreg.converters.families.head_checkpoints import HeadCheckpoint, checkpoint_of, read_heads
from onnxreg.converters.families.head_graphs import INDEX, INPUT, MASKED, OUTPUT, fused_graph, head_graph
from onnxreg.converters.families.precisions import (
    PLAIN,
    MemberFile,
    MemberGraph,
    compare_fused,
    write,
    write_precisions,
)
from onnxreg.converters.families.rows import HeldOut, outputs_of
from onnxreg.converters.passes.tools import samples, torch_model
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.parts import Preprocessing


@dataclass(frozen=True)
class LoadedFamily:
    """The backbone, the heads by class id in its order, and the held-out rows, if the document names some."""

    document: FamilyFile
    backbone: LoadedBackbone
    heads: Mapping[str, HeadCheckpoint]
    held_out: HeldOut | None
    preprocessing: Preprocessing | None


def load_family(plan: FamilyPlan) -> LoadedFamily:
    """Load everything, before any graph is made.

    Raises InputError or NotFoundError, naming the member, for a checkpoint or rows that cannot be used.
    """
    document, directory = plan.document, plan.directory
    held_out = None if document.evaluation is None else HeldOut.read(directory / document.evaluation)
    backbone = _load_backbone(plan)
    heads = read_heads(document.heads, directory, backbone.classes, backbone.width)
    check_paths(document, heads)
    if held_out is not None:
        held_out.check_heads([head.name for head in heads.values()])
    values = document.preprocessing
    preprocessing = None if values is None else Preprocessing.of_input(values, backbone.shape)
    return LoadedFamily(document, backbone, heads, held_out, preprocessing)


def _load_backbone(plan: FamilyPlan) -> LoadedBackbone:
    spec = plan.document.backbone
    if plan.factory is not None:
        return load_factory_backbone(spec, plan.directory, plan.factory, plan.consent)
    return load_backbone(checkpoint_of(spec, plan.directory), spec.classes)


BACKBONE: Literal["backbone"] = "backbone"
FUSED: Literal["fused"] = "fused"
DETECTOR: Literal["ood"] = "ood"
COMPARED_IMAGES = 32
"""Held-out images that the precisions of a backbone are compared on."""
ROWS_PER_HEAD = 4
"""Rows that the fused graph is compared on, for each head."""
FUSED_TOLERANCE = 1e-5
"""Largest distance of the fused graph from each head, in parts of the head's largest logit (at least 1)."""


def make_backbone(family: LoadedFamily, workspace: Path) -> list[MemberFile]:
    """Make the backbone in float32 (first) and in its other precisions."""
    document, subject = family.document, subject_of(family.backbone)
    graph, step = export_backbone(subject, document.opset)
    feeds: Sequence[Feed] = (
        samples.draw(graph)
        if family.held_out is None
        else ({"input": family.held_out.images(family.backbone.shape)[:COMPARED_IMAGES]},)
    )
    member = MemberGraph(BACKBONE, BACKBONE, graph, feeds, torch_model.run(subject, feeds), step)
    return write_precisions(member, backbone_paths(document), document.limits, workspace)


def judge_backbone(
    family: LoadedFamily, files: Sequence[MemberFile], logits: Sequence[Any]
) -> list[MemberFile]:
    """Add to each precision of the backbone how well its `logits` name the species of the held-out rows."""
    return _judge(family, files, logits, LOGITS, "species", family.backbone.classes)


def _judge(
    family: LoadedFamily,
    files: Sequence[MemberFile],
    logits: Sequence[Any],
    output: str,
    key: str,
    classes: Sequence[str],
) -> list[MemberFile]:
    assert family.held_out is not None
    truth = judge_family.Truth.of(family.held_out, key, classes, files[0].member)
    judged = judge_family.compared(logits, truth, output, family.document.limits)
    return [file.with_checks(checks) for file, checks in zip(files, judged, strict=True)]


def make_heads(
    family: LoadedFamily, workspace: Path, embeddings: Any, judged_on: Any
) -> Iterator[list[MemberFile]]:
    """Make each head in float32 (first) and in its other precisions.

    Args:
        embeddings: float32 `[n, width]` that the precisions are compared on.
        judged_on: the embeddings of the held-out rows; None without any.
    """
    for class_id, head in family.heads.items():
        files = make_head(family.document, class_id, head, workspace, ({INPUT: embeddings},))
        if family.held_out is not None and head.name in family.held_out.rows:
            sessions = (load_session(workspace / file.path) for file in files)
            logits = [outputs_of(session, judged_on)[OUTPUT] for session in sessions]
            files = _judge(family, files, logits, OUTPUT, head.name, head.classes)
        yield files


def make_head(
    document: FamilyFile, class_id: str, head: HeadCheckpoint, workspace: Path, feeds: Sequence[Feed]
) -> list[MemberFile]:
    """Make a head in float32 (first) and in its other precisions, compared on `feeds`."""
    graph = head_graph(head, document.heads.activation, document.opset)
    expected = [{OUTPUT: head.logits(feed[INPUT], document.heads.activation)} for feed in feeds]
    member = MemberGraph(head.name, "head", graph, feeds, expected)
    return write_precisions(member, head_paths(document, class_id), document.limits, workspace)


def make_fused(
    family: LoadedFamily, workspace: Path, separate: Sequence[MemberFile], embeddings: Any
) -> list[MemberFile]:
    """Make one graph of all heads, in its precisions, and compare it with the separate graphs.

    Args:
        separate: the heads' float32 graphs, in the order of the heads.

    Raises InputError if there is no head.
    """
    import numpy as np

    document, heads = family.document, list(family.heads.values())
    if not document.variants.fused:
        return []
    if not heads:
        raise InputError("fused: there is no head to stack", "leave fused out of the variants")
    rows = embeddings[:ROWS_PER_HEAD]
    index = np.repeat(np.arange(len(heads), dtype=np.int64), len(rows))
    feed: Feed = {INPUT: np.tile(rows, (len(heads), 1)), INDEX: index}
    expected = [{OUTPUT: file.outputs[0][OUTPUT][: len(rows)]} for file in separate]
    files = []
    for precision, path in fused_paths(document):
        graph = fused_graph(heads, document.heads.activation, document.opset, quantized=precision == "int8")
        (outputs,) = samples.all_outputs(graph, [feed], FUSED)
        answers = _by_head(outputs[OUTPUT], heads)
        limit = FUSED_TOLERANCE if precision == PLAIN else document.limits.parity.int8
        checks = compare_fused(expected, answers, feed, limit)
        checks += write(graph, workspace / path, document.limits, FUSED, precision)
        files.append(MemberFile(FUSED, FUSED, precision, path, answers, tuple(checks)))
    return files


def _by_head(logits: Any, heads: Sequence[HeadCheckpoint]) -> Outputs:
    """Select the rows and columns of each head. ConversionError if another column is not masked."""
    import numpy as np

    outputs = []
    for head, rows in zip(heads, np.split(logits, len(heads)), strict=True):
        if not (rows[:, len(head.classes) :] == np.float32(MASKED)).all():
            raise ConversionError("fused: a class that a head does not have is not masked")
        outputs.append({OUTPUT: rows[:, : len(head.classes)]})
    return outputs


def make_detector(
    document: FamilyFile, workspace: Path, fitted: Detector, embeddings: Any, calibration: Any
) -> tuple[Detector, MemberFile]:
    """Make the detector's graph, with its float64 tensors beside it; the detector records what it rejects.

    Args:
        embeddings: float32 `[n, width]` that the graph is compared with float64 on.
        calibration: the embeddings that gave the threshold.
    """
    from safetensors.numpy import save_file

    distances = fitted.distances(embeddings)
    expected = [{DISTANCE: distances, VERDICT: distances <= fitted.threshold}]
    graph = detector_graph(fitted, document.opset)
    member = MemberGraph(DETECTOR, DETECTOR, graph, ({INPUT: embeddings},), expected)
    (file,) = write_precisions(member, [(PLAIN, OOD)], document.limits, workspace)
    session = load_session(workspace / OOD)
    detector = replace(fitted, rejected=judge_family.rejected(session, calibration))
    note = {"record": json.dumps(detector.record(), sort_keys=True)}
    save_file(detector_tensors(detector), workspace / TENSORS, note)
    return detector, replace(file, sidecars=(DraftFile("detector", TENSORS),))

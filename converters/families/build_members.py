"""The members of a family, made one role at a time: each graph is written, held against what it comes from, and judged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from onnxreg.converters.engine.output_checks import make_check
from onnxreg.converters.families import judge_family
from onnxreg.converters.families.backbone import LOGITS, LoadedBackbone, export_backbone, subject_of
from onnxreg.converters.families.detector import DISTANCE, VERDICT, Detector, detector_graph, detector_tensors
from onnxreg.converters.families.fitting_evidence import HeldOut, outputs_of
from onnxreg.converters.families.fused import INDEX, MASKED, fused_graph
from onnxreg.converters.families.head_checkpoints import HeadCheckpoint
from onnxreg.converters.families.head_graph import INPUT, OUTPUT, head_graph
from onnxreg.converters.families.member_paths import OOD, TENSORS, backbone_path, fused_path, head_path
from onnxreg.converters.families.precisions import (
    PLAIN,
    MemberFile,
    Outputs,
    compare,
    compare_fused,
    derive,
    write,
)
from onnxreg.converters.passes.tools import proof, samples, torch_model
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.manifest.draft import DraftFile

BACKBONE: Literal["backbone"] = "backbone"
FUSED: Literal["fused"] = "fused"
DETECTOR: Literal["ood"] = "ood"
SEEN = 32
"""Held-out images that the variants of a backbone are compared on."""
EACH = 4
"""Rows that the fused graph answers for each head."""
EQUAL = 1e-5
"""How far the fused graph may be from each separate head, in parts of its largest logit (at least 1)."""


@dataclass(frozen=True)
class MemberBuild:
    """What is asked for, where the graphs go, and the held-out rows, if there are any."""

    asked: FamilyFile
    workspace: Path
    held_out: HeldOut | None = None


def make_backbone(work: MemberBuild, loaded: LoadedBackbone) -> list[MemberFile]:
    """The backbone in float32 (first) and its other precisions."""
    asked, subject = work.asked, subject_of(loaded)
    graph, step = export_backbone(subject, asked.opset)
    held_out = work.held_out
    images = None if held_out is None else held_out.images(loaded.shape)
    feeds = samples.draw(graph) if images is None else ({"input": images[:SEEN]},)
    outputs = proof.all_outputs(graph, feeds, BACKBONE)
    limits = asked.limits
    expected = torch_model.run(subject, feeds)
    checks = compare(expected, outputs, feeds, BACKBONE, limits.parity.float32, relative=False)
    path = backbone_path(asked, PLAIN)
    checks += write(graph, work.workspace / path, limits, BACKBONE, PLAIN)
    first = MemberFile(BACKBONE, BACKBONE, PLAIN, path, outputs, tuple(checks), step=step)
    return [first] + [
        derive(first, graph, precision, backbone_path(asked, precision), feeds, limits, work.workspace)
        for precision in asked.variants.backbone
    ]


def judge_backbone(
    work: MemberBuild, made: Sequence[MemberFile], logits: Sequence[Any], classes: Sequence[str]
) -> list[MemberFile]:
    """The variants of the backbone with how well they tell the species of the held-out rows, given the logits of each."""
    return _judge(work, made, logits, LOGITS, "species", classes)


def _judge(
    work: MemberBuild,
    made: Sequence[MemberFile],
    logits: Sequence[Any],
    output: str,
    key: str,
    classes: Sequence[str],
) -> list[MemberFile]:
    assert work.held_out is not None
    truth = judge_family.Truth.of(work.held_out, key, classes, made[0].member)
    checks = judge_family.compared(logits, truth, output, work.asked.limits)
    return [replace(each, checks=(*each.checks, *found)) for each, found in zip(made, checks, strict=True)]


def make_heads(
    work: MemberBuild, heads: Mapping[str, HeadCheckpoint], embeddings: Any, judged_on: Any
) -> Iterator[list[MemberFile]]:
    """Each head in float32 (first) and its other precisions, by class id.

    Args:
        embeddings: float32 `[n, width]` that the variants are compared on.
        judged_on: the embeddings of the held-out rows; None without any.
    """
    asked, feeds = work.asked, ({INPUT: embeddings},)
    for class_id, head in heads.items():
        graph = head_graph(head, asked.heads.activation, asked.opset)
        outputs = proof.all_outputs(graph, feeds, head.name)
        expected = [{OUTPUT: head.logits(embeddings, asked.heads.activation)}]
        checks = compare(expected, outputs, feeds, head.name, asked.limits.parity.float32, relative=False)
        path = head_path(asked, class_id, PLAIN)
        checks += write(graph, work.workspace / path, asked.limits, "head", PLAIN)
        first = MemberFile(head.name, "head", PLAIN, path, outputs, tuple(checks))
        made = [first] + [
            derive(
                first,
                graph,
                precision,
                head_path(asked, class_id, precision),
                feeds,
                asked.limits,
                work.workspace,
            )
            for precision in asked.variants.head
        ]
        if work.held_out is not None and head.name in work.held_out.rows:
            sessions = (load_session(work.workspace / each.path) for each in made)
            logits = [outputs_of(session, judged_on)[OUTPUT] for session in sessions]
            made = _judge(work, made, logits, OUTPUT, head.name, head.classes)
        yield made


def make_fused(
    work: MemberBuild, heads: Sequence[HeadCheckpoint], separate: Sequence[MemberFile], embeddings: Any
) -> list[MemberFile]:
    """All heads in one graph, in the precisions that were asked for; its bytes are held against the separate graphs'.

    Args:
        separate: the heads' float32 graphs, in the same order.

    Raises InputError where there is no head.
    """
    import numpy as np

    if not work.asked.variants.fused:
        return []
    if not heads:
        raise InputError("fused: there is no head to stack", "leave fused out of the variants")
    asked, rows = work.asked, embeddings[:EACH]
    index = np.repeat(np.arange(len(heads), dtype=np.int64), len(rows))
    feed: Feed = {INPUT: np.tile(rows, (len(heads), 1)), INDEX: index}
    expected = [{OUTPUT: each.outputs[0][OUTPUT][: len(rows)]} for each in separate]
    made = []
    for precision in asked.variants.fused:
        graph = fused_graph(heads, asked.heads.activation, asked.opset, quantized=precision == "int8")
        (outputs,) = proof.all_outputs(graph, [feed], FUSED)
        answers = _by_head(outputs[OUTPUT], heads)
        limit = EQUAL if precision == PLAIN else asked.limits.parity.int8
        checks = compare_fused(expected, answers, feed, limit)
        path = fused_path(asked, precision)
        checks += write(graph, work.workspace / path, asked.limits, FUSED, precision)
        made.append(MemberFile(FUSED, FUSED, precision, path, answers, tuple(checks)))
    return made


def _by_head(logits: Any, heads: Sequence[HeadCheckpoint]) -> Outputs:
    """The logits of each head, its own rows and columns alone. ConversionError where the other columns are not masked."""
    import numpy as np

    found = []
    for head, rows in zip(heads, np.split(logits, len(heads)), strict=True):
        if not (rows[:, len(head.classes) :] == np.float32(MASKED)).all():
            raise ConversionError("fused: a class that a head does not have is not masked")
        found.append({OUTPUT: rows[:, : len(head.classes)]})
    return found


def make_detector(
    work: MemberBuild, fitted: Detector, embeddings: Any, calibration: Any
) -> tuple[Detector, MemberFile]:
    """The detector as a graph, and its float64 tensors beside it; the detector with what that graph rejects of `calibration`.

    Args:
        embeddings: float32 `[n, width]` that the graph is held against float64 on.
        calibration: the embeddings that gave the threshold.
    """
    import json

    from safetensors.numpy import save_file

    graph = detector_graph(fitted, work.asked.opset)
    feeds = ({INPUT: embeddings},)
    outputs = proof.all_outputs(graph, feeds, DETECTOR)
    exact = fitted.distances(embeddings)
    inside = exact <= fitted.threshold
    expected = [{DISTANCE: exact, VERDICT: inside}]
    limits = work.asked.limits
    checks = compare(expected, outputs, feeds, DETECTOR, limits.parity.float32, relative=False)
    about = {key: checks[0][key] for key in ("samples", "dataset")} | {"name": f"parity of {VERDICT}"}
    checks.append(make_check(about, "agreement", float((outputs[0][VERDICT] == inside).mean())))
    checks += write(graph, work.workspace / OOD, limits, DETECTOR, PLAIN)
    session = load_session(work.workspace / OOD)
    detector = replace(fitted, rejected=judge_family.rejected(session, calibration))
    note = {"record": json.dumps(detector.record(), sort_keys=True)}
    save_file(detector_tensors(detector), work.workspace / TENSORS, note)
    sidecars = (DraftFile("detector", TENSORS),)
    return detector, MemberFile(DETECTOR, DETECTOR, PLAIN, OOD, outputs, tuple(checks), sidecars=sidecars)

"""Each graph of the profile, checked and measured: what its manifest entry will say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters import golden, parity
from onnxreg.converters.android import graphs
from onnxreg.converters.android.contract import check_contract
from onnxreg.converters.android.sample import Sample
from onnxreg.converters.inspection.facts import GraphFacts, inspect_onnx, inspect_ort
from onnxreg.converters.inspection.mobile import android_warnings
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.golden_vectors import GoldenVectors, Outputs, Vectors
from onnxreg.schema.draft import DraftArtifact, DraftFile
from onnxreg.schema.errors import ConversionError
from onnxreg.schema.recipe import Step

PROVIDERS = ["NNAPI", "XNNPACK"]
LIMITS = {graphs.FP32: 1e-3, graphs.ORT: 1e-3}
"""The largest difference to the checkpoint of an artifact in full precision, in parts of its largest logit."""

FLOORS = {graphs.FP16: 0.99, graphs.INT8: 0.5}
"""The least share of sample tokens whose best label is the checkpoint's: below it the file is wrong, not rounded.

The sample is hard (seeded random tokens): a MiniLM tagger reaches 1.0 in fp16 and 0.94 in INT8. Whether INT8 is good
enough is another question, which only an evaluation suite answers.
"""

TOLERANCES = {graphs.FP32: 1e-3, graphs.FP16: 1e-2, graphs.INT8: 5e-2, graphs.ORT: 1e-3}
"""How far another runtime may be from an artifact's golden vectors, in parts of its largest logit: the least that is
allowed; see docs/golden.md."""

_KINDS = {
    graphs.FP32: ("onnx-android", "float32"),
    graphs.FP16: ("onnx-android", "float16"),
    graphs.INT8: ("onnx-int8", "int8"),
    graphs.ORT: ("ort-android", "float32"),
}


@dataclass(frozen=True)
class Measured:
    """An artifact, or None where its step was skipped, with the recipe steps that made it."""

    artifact: DraftArtifact | None
    steps: tuple[Step, ...]


def describe(graph: graphs.Graph, workspace: Path, sample: Sample) -> Measured:
    """Check a written graph against the contract, measure it against the checkpoint, and say what it is.

    Raises ConversionError where it breaks the contract, gives NaN, or is further from the checkpoint than `LIMITS`
    and `FLOORS` allow.
    """
    if graph.path is None:
        return Measured(None, graph.steps)
    facts = _read(graph, workspace / graph.path)
    check_contract(facts, graph.path, sample.labels)
    small = golden.feeds_of(sample.feeds, sample.labels)
    logits = parity.graph_logits(workspace / graph.path, [*sample.feeds, *small.values()])
    agreement = parity.compare(sample.expected, logits[: len(sample.feeds)], sample.feeds, graph.path)
    vectors, step = _write_golden(
        graph, workspace / graph.path, small, logits[len(sample.feeds) :], agreement
    )
    fields = _fields(graph, facts)
    fields["checks"] = [*_checks(graph.path, agreement, sample), *graph.checks]
    format_name, precision = _KINDS[graph.path]
    configs = () if graph.config is None else (DraftFile("operator-config", graph.config),)
    artifact = DraftArtifact(
        format_name,
        precision,
        graph.path,
        sidecars=(*configs, DraftFile(golden.ROLE, vectors.path.name)),
        parent=None if graph.path == graphs.FP32 else graphs.FP32,
        fields=fields,
    )
    return Measured(artifact, (*graph.steps, step))


def _write_golden(
    graph: graphs.Graph,
    path: Path,
    feeds: Mapping[str, parity.Feed],
    logits: Sequence[Any],
    agreement: parity.Agreement,
) -> tuple[Vectors, Step]:
    """The golden vectors of a graph that gave these logits, one array for each feed.

    They tell no runtime apart by less than the graph itself is from the checkpoint.
    """
    outputs = {case: {"logits": found} for case, found in zip(feeds, logits, strict=True)}
    work = GoldenVectors(tolerance=TOLERANCES[path.name], least=float(f"{agreement.max_abs_diff:.6g}"))
    return run(f"golden-{graph.steps[0].name}", work, Outputs(path, feeds, outputs), graph.steps[-1].name)


def _checks(path: str, agreement: parity.Agreement, sample: Sample) -> list[dict[str, Any]]:
    limit = LIMITS[path] * agreement.scale if path in LIMITS else None
    found = parity.checks(agreement, sample.digest, limit, FLOORS.get(path))
    for check in found:
        if check["verdict"] == "fail":
            raise ConversionError(
                f"{path} is not the checkpoint's model: {check['metric']} is {check['value']:.3g}, "
                f"the limit is {check['limit']:.3g}"
            )
    return found


def _read(graph: graphs.Graph, path: Path) -> GraphFacts:
    import onnx

    if graph.config is not None:
        return inspect_ort(path, path.with_name(graph.config))
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        raise ConversionError(f"{path.name} is not valid ONNX: {str(error).splitlines()[0][:200]}") from error
    return inspect_onnx(path)


def _fields(graph: graphs.Graph, facts: GraphFacts) -> dict[str, Any]:
    unsupported, warnings = android_warnings(facts.operator_names)
    fields = facts.fields()
    fields["metadata"] |= {
        "profile": "android",
        "execution_providers": PROVIDERS,
        "unsupported_ops": list(unsupported),
        "warnings": list(warnings),
        **graph.metadata,
    }
    if not graph.reproducible:
        fields["reproducible"] = False
    if graph.requested is not None:
        if not facts.weights.weights_quantized:
            raise ConversionError(f"{graph.path}: quantization reached none of the weights")
        fields["quantization"] = {"requested": graph.requested, "measured": facts.weights.to_json()}
    return fields

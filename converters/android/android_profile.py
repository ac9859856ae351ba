"""The android profile's promises beyond its recipe: tensor contract, version 1's facts, a verdict on INT8."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.plan import ProfileOutput, ProfilePromises
from onnxreg.converters.evaluation.metric import JudgedArtifact
from onnxreg.converters.evaluation.openmed_report import FILENAME, MirroredFields, recall_of, write_report
from onnxreg.converters.onnx.mobile_rules import OPSET, android_warnings, check_contract
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization
from onnxreg.converters.source.source_files import CONFIG
from onnxreg.converters.tasks.checkpoint import SAVE_TOKENIZER, has_tokenizer, write_config
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

FP32, FP16, INT8, ORT = "model.onnx", "model_fp16.onnx", "model_int8.onnx", "model.ort"
PROVIDERS = ["NNAPI", "XNNPACK"]
BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
WEIGHTS_ONLY = {
    "scheme": "weight-only",
    "weight_type": "uint8",
    "op_types": ["MatMul"],
    "calibration": "none",
    "target": "arm64-cpu",
    "output": INT8,
}
"""The keys of manifest version 1 for an INT8 file whose activations stay in floating point."""
VERDICT = ("certification_limit", "certified", "quant_recall_delta", "recall_delta_path")
"""The keys of the verdict that version 1 repeats in the artifact's metadata."""


class AndroidPromises(ProfilePromises):
    """The promises of the profile. If the INT8 file was judged, readers of version 1 get the fields of OpenMed."""

    def check_source(self, source: LocatedSource) -> None:
        if not has_tokenizer(source.location):
            raise InputError("a phone reads texts, and the checkpoint has no tokenizer", SAVE_TOKENIZER)

    def check(self, output: ProfileOutput, subject: ExportSubject) -> None:
        check_contract(output.facts, output.path, len(subject.fields["labels"]))

    def fields(self, output: ProfileOutput) -> Mapping[str, Any]:
        unsupported, warnings = android_warnings(output.facts.operator_names)
        metadata: dict[str, Any] = {
            "profile": "android",
            "execution_providers": PROVIDERS,
            "unsupported_ops": list(unsupported),
            "warnings": list(warnings),
        }
        if output.path == ORT:
            return {"metadata": metadata | _ort_metadata(output)}
        if output.path != INT8:
            return {"metadata": metadata}
        statistics = [step.result["embeddings"] for step in output.steps if "embeddings" in step.result]
        check = {"name": "embeddings", "metric": "min_row_cosine", "verdict": "info"}
        checks = [
            {**check, "samples": item["tables_quantized"], "value": item["min_row_cosine"]}
            for item in statistics[:1]
        ]
        fields = {"metadata": metadata, "checks": checks}
        metadata["format"] = "onnx-int8"
        params = _dynamic_params(step.to_json() for step in output.steps)
        if params is None:
            return fields
        metadata["quantization"] = requested = _quantization(params)
        options = {key: params[key] for key in ("per_channel", "reduce_range")}
        quantization = {"requested": {**requested, **options}, "measured": output.facts.weights.to_json()}
        return {**fields, "quantization": quantization}

    def finish(
        self, draft: Draft, subject: ExportSubject, workspace: Path, judged: Mapping[str, JudgedArtifact]
    ) -> Draft:
        fields = {**draft.fields, **_manifest_fields(subject.resolved_options["max_seq_length"])}
        draft = replace(draft, fields=fields)
        item = judged.get(INT8)
        if item is None or recall_of(item) is None:
            return draft
        return _with_report(draft, item, subject, workspace)


def _with_report(draft: Draft, item: JudgedArtifact, subject: ExportSubject, workspace: Path) -> Draft:
    """Add `recall_delta.json`, and repeat the verdict for version 1 in manifest, metadata and config.json."""
    int8 = next(artifact for artifact in draft.artifacts if artifact.path == INT8)
    recipe = dict(draft.fields["recipe"])
    params = _dynamic_params(recipe["steps"])
    quantization = WEIGHTS_ONLY if params is None else _quantization(params)
    mirrored = write_report(item, int8.verdict, subject.origin, workspace, quantization)
    recipe["parameters"] = {**recipe["parameters"], "evaluation": mirrored.evaluation}
    config = workspace / CONFIG
    config.unlink()
    length = subject.resolved_options["max_seq_length"]
    write_config(config, subject.loaded, draft.name, length, mirrored.config)
    judged_int8 = _mirrored_metadata(int8, mirrored)
    others = [artifact.verdict.state for artifact in draft.artifacts if artifact is not int8]
    top = dict(mirrored.manifest)
    if "refused" in others:  # version 1 has one word for all
        top |= {"certified": False, "quantization": {**top["quantization"], "certified": False}}
    return replace(
        draft,
        artifacts=tuple(judged_int8 if artifact is int8 else artifact for artifact in draft.artifacts),
        companions=(*draft.companions, DraftFile("report", FILENAME)),
        fields={**draft.fields, "recipe": recipe, **top},
    )


def _quantization(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the INT8 file, in the six keys of manifest version 1."""
    return {
        "scheme": "dynamic",
        "weight_type": "qint8",
        "op_types": list(params["op_types_to_quantize"]),
        "calibration": "none",
        "target": "arm64-cpu",
        "output": INT8,
    }


def _dynamic_params(steps: Iterable[Mapping[str, Any]]) -> Any:
    """The parameters of the step that quantizes products dynamically; None if no step does."""
    return next(
        (
            step["params"]
            for step in steps
            if step["pass"] == OnnxDynamicQuantization.id and "skipped" not in step
        ),
        None,
    )


def _ort_metadata(output: ProfileOutput) -> dict[str, Any]:
    config = next(path for path in output.files if path.endswith(".config"))
    return {
        "format": "ort-android",
        "source_onnx_path": FP32,
        "ort_path": ORT,
        "op_config_path": config,
        "op_config_type": "required_operators_and_types",
        **output.steps[-1].params,
    }


def _mirrored_metadata(artifact: DraftArtifact, mirrored: MirroredFields) -> DraftArtifact:
    verdict = mirrored.manifest["quantization"]
    metadata = {**artifact.fields["metadata"], **{key: verdict[key] for key in VERDICT if key in verdict}}
    return replace(
        artifact,
        verdict=replace(artifact.verdict, report=FILENAME),
        fields={**artifact.fields, "metadata": metadata},
    )


def _manifest_fields(max_length: int) -> dict[str, Any]:
    """Version 1's keys, with its hint to runtimes that pad to fixed lengths, none longer than the model can take."""
    buckets = [*(size for size in BUCKETS if size < max_length), max_length]
    axes = ["batch", "sequence"]
    padding = {
        "strategy": "next_configured_bucket_or_exact",
        "axes": {"input": axes, "output": axes},
        "buckets": buckets,
        "min_length": min(buckets),
        "max_length": max_length,
        "overflow": "exact_length",
    }
    return {
        "minimum_opset": OPSET,
        "dynamic_shapes": {
            "batch_axis": "dynamic",
            "sequence_axis": "dynamic",
            "shape_buckets": padding,
        },
        "optimization": {"enabled": False, "minimum_opset": OPSET},
        "validation": {},
        "operator_fallbacks": [],
    }

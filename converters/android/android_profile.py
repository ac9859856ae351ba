"""The android profile's promises beyond its recipe: tensor contract, version 1's facts, a verdict on INT8."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.profile_contract import ProfileOutput, ProfilePromises
from onnxreg.converters.evaluation.certify import RecallEvaluation, certify_int8
from onnxreg.converters.evaluation.rule import Floors
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.onnx.android_contract import OPSET, check_contract
from onnxreg.converters.onnx.mobile_operators import android_warnings
from onnxreg.converters.tasks.checkpoints.companion_files import write_config
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.converters.tasks.text import CONFIG
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

FP32, FP16, INT8, ORT = "model.onnx", "model_fp16.onnx", "model_int8.onnx", "model.ort"
PROVIDERS = ["NNAPI", "XNNPACK"]
BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
VERDICT = ("certification_limit", "certified", "quant_recall_delta", "recall_delta_path")
"""The keys of the verdict that version 1 repeats in the artifact's metadata."""


class AndroidContract(ProfilePromises):
    """The promises of the profile; the INT8 file is judged if there is a suite."""

    def __init__(self, suite: Suite | None = None, floors: Floors | None = None) -> None:
        """Args:
        floors: what a label needs to be judged.
        """
        self._suite = suite
        self._floors = floors or Floors()

    @property
    def keeps_source(self) -> bool:  # type: ignore[override]
        return self._suite is not None

    def key(self) -> Mapping[str, Any]:
        return {} if self._suite is None else self._evaluation_settings(self._suite)

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
        params = output.steps[-1].params
        requested = _quantization(params)
        metadata |= {"format": "onnx-int8", "quantization": requested}
        options = {key: params[key] for key in ("per_channel", "reduce_range")}
        quantization = {"requested": {**requested, **options}, "measured": output.facts.weights.to_json()}
        checks = _embedding_checks(output.steps[-1].result.get("embeddings"))
        return {"metadata": metadata, "quantization": quantization, "checks": checks}

    @property
    def finishing(self) -> str | None:
        return None if self._suite is None else "judging the INT8 file on the evaluation suite"

    def finish(self, draft: Draft, subject: ExportSubject, workspace: Path) -> Draft:
        fields = {**draft.fields, **_manifest_fields(subject.resolved_options["max_seq_length"])}
        if self._suite is None:
            return replace(draft, fields=fields)
        evaluation = certify_int8(
            self._suite,
            subject.loaded,
            workspace / INT8,
            workspace,
            quantization=_quantization(_int8_params(fields["recipe"])),
            max_length=subject.resolved_options["max_seq_length"],
            floors=self._floors,
        )
        recipe = dict(fields["recipe"])
        recipe["parameters"] = {**recipe["parameters"], "evaluation": self._evaluation_settings(self._suite)}
        fields |= {"recipe": recipe, **evaluation.manifest_fields}
        self._write_config(workspace / CONFIG, draft.name, subject, evaluation)
        files = draft.companions
        if evaluation.verdict.report is not None:
            files += (DraftFile("report", evaluation.verdict.report),)
        artifacts = tuple(_judged(artifact, evaluation) for artifact in draft.artifacts)
        return replace(draft, artifacts=artifacts, companions=files, fields=fields)

    def _evaluation_settings(self, suite: Suite) -> dict[str, Any]:
        return {
            "suite": str(suite.digest),
            "min_gold_chars": self._floors.gold_chars,
            "min_parent_recall": self._floors.parent_recall,
        }

    def _write_config(
        self, path: Path, name: str, subject: ExportSubject, evaluation: RecallEvaluation
    ) -> None:
        """Version 1 repeats the verdict in config.json."""
        path.unlink()
        length = subject.resolved_options["max_seq_length"]
        write_config(path, subject.loaded, name, length, evaluation.config_fields)


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


def _int8_params(recipe: Mapping[str, Any]) -> Any:
    return next(step["params"] for step in recipe["steps"] if step["name"] == "int8")


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


def _embedding_checks(statistics: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if statistics is None:
        return []
    check = {"name": "embeddings", "metric": "min_row_cosine", "samples": statistics["tables_quantized"]}
    return [{**check, "value": statistics["min_row_cosine"], "verdict": "info"}]


def _judged(artifact: DraftArtifact, evaluation: RecallEvaluation) -> DraftArtifact:
    """An evaluation is about the INT8 file alone."""
    if artifact.path != INT8:
        return artifact
    fields = dict(artifact.fields)
    fields["checks"] = [*fields["checks"], *evaluation.checks]
    verdict_fields = evaluation.manifest_fields.get("quantization", {})
    fields["metadata"] = {
        **fields["metadata"],
        **{key: verdict_fields[key] for key in VERDICT if key in verdict_fields},
    }
    return replace(artifact, verdict=evaluation.verdict, fields=fields)


def _manifest_fields(max_length: int) -> dict[str, Any]:
    return {
        "minimum_opset": OPSET,
        "dynamic_shapes": _dynamic_shapes(max_length),
        "optimization": {"enabled": False, "minimum_opset": OPSET},
        "validation": {},
        "operator_fallbacks": [],
    }


def _dynamic_shapes(max_length: int) -> dict[str, Any]:
    """Version 1's hint to runtimes that pad to fixed lengths; no bucket is longer than the model can take."""
    buckets = [size for size in BUCKETS if size < max_length]
    axes = ["batch", "sequence"]
    return {
        "batch_axis": "dynamic",
        "sequence_axis": "dynamic",
        "shape_buckets": {
            "strategy": "next_configured_bucket_or_exact",
            "axes": {"input": axes, "output": axes},
            "buckets": [*buckets, max_length],
            "min_length": min([*buckets, max_length]),
            "max_length": max_length,
            "overflow": "exact_length",
        },
    }

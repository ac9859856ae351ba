"""The draft of an android export: artifacts, companions, and the facts of the whole version."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreg.converters.android import companions
from onnxreg.converters.android.artifacts import Measured
from onnxreg.converters.android.contract import OPSET
from onnxreg.converters.android.graphs import INT8
from onnxreg.converters.android.options import AndroidOptions
from onnxreg.converters.evaluation.certify import Evaluation
from onnxreg.converters.modelcard import read_license
from onnxreg.converters.source import LoadedCheckpoint
from onnxreg.converters.toolchain import tool_versions
from onnxreg.schema.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.recipe import Recipe

PROFILE_VERSION = 1
CONFIG, LABELS = "config.json", "id2label.json"
BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def assemble(
    name: str,
    workspace: Path,
    checkpoint: LoadedCheckpoint,
    options: AndroidOptions,
    measured: Sequence[Measured],
    max_length: int,
    evaluation: Evaluation | None,
) -> Draft:
    """Write the companions and put the draft together. `max_length` is the longest input in tokens."""
    extra = {} if evaluation is None else evaluation.config_fields
    scrubbed = companions.write_config(workspace / CONFIG, checkpoint, name, max_length, extra)
    companions.write_labels(workspace / LABELS, checkpoint.labels)
    tokenizer = companions.write_tokenizer(workspace, checkpoint, name)
    files = [DraftFile("config", CONFIG), DraftFile("labels", LABELS)]
    files += [DraftFile("tokenizer", path) for path in tokenizer]
    if evaluation is not None and evaluation.verdict.report is not None:
        files.append(DraftFile("report", evaluation.verdict.report))
    fields = {
        **_model_fields(checkpoint, max_length, tokenizer),
        "recipe": _recipe(options, measured, max_length, scrubbed, evaluation).to_json(),
        **({} if evaluation is None else evaluation.manifest_fields),
    }
    artifacts = tuple(_judged(item.artifact, evaluation) for item in measured if item.artifact is not None)
    return Draft(name, workspace, artifacts, tuple(files), fields)


def _judged(artifact: DraftArtifact, evaluation: Evaluation | None) -> DraftArtifact:
    """An evaluation is about the INT8 file alone."""
    if evaluation is None or artifact.path != INT8:
        return artifact
    fields = dict(artifact.fields)
    fields["checks"] = [*fields["checks"], *evaluation.checks]
    judged = evaluation.manifest_fields.get("quantization", {})
    keys = ("certification_limit", "certified", "quant_recall_delta", "recall_delta_path")
    fields["metadata"] = {**fields["metadata"], **{key: judged[key] for key in keys if key in judged}}
    return replace(artifact, verdict=evaluation.verdict, fields=fields)


def _recipe(
    options: AndroidOptions,
    measured: Sequence[Measured],
    max_length: int,
    scrubbed: Sequence[str],
    evaluation: Evaluation | None,
) -> Recipe:
    value: dict[str, Any] = {
        "profile": "android",
        "profile_version": PROFILE_VERSION,
        "steps": [step.to_json() for item in measured for step in item.steps],
        "tools": tool_versions(),
        "trust_remote_code": options.trust_remote_code,
        "parameters": {
            "opset": options.opset,
            "int8": options.int8,
            "int8_embeddings": options.int8_embeddings,
            "rewrite": options.rewrite,
            "max_seq_length": {"asked": options.max_seq_length, "got": max_length},
        },
    }
    if evaluation is not None:
        value["parameters"]["evaluation"] = {
            "suite": str(evaluation.verdict.suite),
            "min_gold_chars": options.min_gold_chars,
            "min_parent_recall": options.min_parent_recall,
        }
    if scrubbed:
        value["parameters"]["scrubbed"] = [f"{CONFIG}:{key}" for key in scrubbed]
    return Recipe.from_json(value)


def _model_fields(checkpoint: LoadedCheckpoint, max_length: int, tokenizer: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "task": "token-classification",
        "family": checkpoint.config.model_type,
        "source": checkpoint.source.to_json(),
        "source_model_id": checkpoint.source.id,
        "labels": list(checkpoint.labels),
        "config_path": CONFIG,
        "label_map_path": LABELS,
        "minimum_opset": OPSET,
        "max_sequence_length": max_length,
        "dynamic_shapes": _dynamic_shapes(max_length),
        "optimization": {"enabled": False, "minimum_opset": OPSET},
        "validation": {},
        "operator_fallbacks": [],
        "tokenizer": {"path": ".", "files": tokenizer},
    }
    license_name = read_license(checkpoint.directory)
    return fields if license_name is None else {**fields, "license": license_name}


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

"""Digests of what an index file says of a version: what a known head remembers of its summaries."""

import json
from typing import Any

from onnxreg.schema.core.canonical import items, mapping
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.log.state import State

ARTIFACT_FIELDS = ("path", "format", "precision", "digest", "size", "state")
"""The fields of an artifact in a summary that every later build writes alike."""
SUMMARY_FIELDS = (*ARTIFACT_FIELDS, "files", "opset", "ort_format", "operators", "providers", "recall")
"""The fields of an artifact in a summary that every build writes."""
STAGE_FIELD = "member"
"""The stage of a pipeline that an artifact is of.

Other models do not have the key: what is remembered of them stays valid.
"""


def artifacts_digest(state: State, version: str) -> str:
    """The digest of a version's summary: its manifest, its artifacts, and their states."""
    summary = mapping(state.summaries[version])
    artifacts = [
        [item.get(key) for key in ARTIFACT_FIELDS] for item in items(summary.get("artifacts", []), mapping)
    ]
    encoded = json.dumps([summary.get("manifest"), artifacts, summary.get("files")], sort_keys=True)
    return Digest.of(encoded.encode()).hex


def summary_digest(state: State, version: str) -> str:
    """All that every build says of a version in its summary."""
    summary = mapping(state.summaries[version])
    artifacts = items(summary.get("artifacts", []), _artifact)
    facts = [summary.get(key) for key in ("manifest", "size", "files", "task", "family", "license")]
    return Digest.of(json.dumps([facts, artifacts], sort_keys=True).encode()).hex


def _artifact(value: Any) -> list[Any]:
    item = mapping(value)
    keys = SUMMARY_FIELDS if item.get(STAGE_FIELD) is None else (*SUMMARY_FIELDS, STAGE_FIELD)
    return [item.get(key) for key in keys]

"""The metadata of a repository's card on the Hugging Face Hub, as far as a manifest has it.

Source of the keys: the Hub's specification of model cards, and `model-index` of Papers with Code.
"""

import json
from collections.abc import Collection
from typing import Any

from onnxreg.schema.formats.hub_layout import pipeline_tag
from onnxreg.schema.manifest.license import hub_license
from onnxreg.schema.manifest.manifest import Artifact, Manifest

Json = dict[str, Any]


def card_metadata(manifest: Manifest, paths: Collection[str]) -> Json:
    """The keys `license` (with `license_name`), `pipeline_tag`, `base_model` and `model-index`; `paths` are the artifacts to speak of."""
    tag = pipeline_tag(manifest)
    artifacts = [item for item in manifest.artifacts if item.path in paths]
    results = [result for item in artifacts for result in _results(item, tag)]
    origin = manifest.source_model_id or (manifest.source and manifest.source.id)
    return {
        **(hub_license(manifest.license) if manifest.license else {}),
        **({"pipeline_tag": tag} if tag else {}),
        **({"base_model": origin} if origin and "/" in origin else {}),
        **({"model-index": [{"name": manifest.name, "results": results}]} if results else {}),
    }


def loading(repository: str, manifest: Manifest, paths: Collection[str]) -> list[str]:
    """Markdown lines that show how other libraries get the files at these paths of a repository."""
    python = f'folder = snapshot_download({json.dumps(repository)}, ignore_patterns=["blobs/*", "index/*"])'
    lines = ["```python", "from huggingface_hub import snapshot_download", "", python, "```"]
    tag = pipeline_tag(manifest)
    if tag is not None and any(path.startswith("onnx/model") for path in paths):
        name, task = json.dumps(repository), json.dumps(tag)
        module = "import { pipeline } from '@huggingface/transformers'"
        lines += ["", "```js", module, "", f"const run = await pipeline({task}, {name})", "```"]
    return lines


def _results(artifact: Artifact, tag: str | None) -> list[Json]:
    """The measured values of an artifact, one result for each dataset."""
    by_dataset: dict[str, list[Json]] = {}
    for check in artifact.checks:
        if check.dataset is not None and check.value is not None:
            metric = {"type": check.metric, "name": f"{check.label} of {artifact.path}", "value": check.value}
            by_dataset.setdefault(str(check.dataset), []).append(metric)
    return [
        {
            "task": {"type": tag or "other"},
            "dataset": {"type": "evaluation-suite", "name": dataset},
            "metrics": metrics,
        }
        for dataset, metrics in by_dataset.items()
    ]

"""The files of a version as clients of the Hugging Face Hub expect them in a repository.

The files keep their paths. Some also get aliases, which are the paths from which clients load by default:

* transformers.js and sentence-transformers: `onnx/model.onnx` for float32, and for other weights `onnx/model_fp16.onnx`,
  `onnx/model_int8.onnx`, `onnx/model_uint8.onnx`, `onnx/model_q4.onnx` or `onnx/model_quantized.onnx`
  (`DEFAULT_DTYPE_SUFFIX_MAPPING` of transformers.js 3);
* Optimum and OpenMed: the same names at the root, and for OpenMed also `openmed-onnx.json`;
* a stage of a pipeline: the stage's name instead of `model`, such as `onnx/encoder_fp16.onnx`. If all files of the
  stage have one stem, such as `encoder_model`, there is a second alias with this stem: `onnx/encoder_model_fp16.onnx`;
* all these clients: `config.json`, `id2label.json` and the tokenizer at the root.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from posixpath import basename, dirname, join, relpath
from typing import Any

from msgspec import Struct

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.manifest import Artifact, Manifest, StoredFile
from onnxreg.schema.manifest.vocabulary import FILENAME, hub_license

MODEL = "model"  # the stem of aliases, unless the version is a family or a pipeline
# The stems of aliases, by precision.
STEMS = {
    "float32": ("model",),
    "float16": ("model_fp16",),
    "int8": ("model_int8", "model_quantized"),
    "int8-weights": ("model_int8", "model_quantized"),
    "uint8": ("model_uint8", "model_quantized"),
    "int4": ("model_q4",),
    "uint4": ("model_q4",),
}
# The formats whose graphs get aliases in each folder, the preferred format first.
FOLDERS = {
    "onnx": ("transformersjs", "webgpu", "onnx", "onnx-android", "onnx-int8", "onnx-int4"),
    "": ("onnx-android", "onnx", "onnx-int8", "onnx-int4", "transformersjs", "webgpu"),
}
# The Hub's names of tasks, if they differ from ours. The tasks have them as aliases.
PIPELINE_TAGS = {"pooling": "sentence-similarity"}


class LayoutFile(Struct, frozen=True):
    """A file of a repository. For an alias, `alias_of` is the path of the original file in the version."""

    path: str
    digest: Digest
    size: int
    alias_of: str | None = None


def layout(
    manifest: Manifest,
    digest: Digest,
    size: int,
    states: Mapping[str, str],
    held_paths: Collection[str] | None = None,
    *,
    refused: bool = False,
) -> dict[str, LayoutFile]:
    """Return the files of a version and their aliases, by path. `digest` and `size` are those of the manifest.

    `states` has the artifacts' states by path. `held_paths` are the paths of the artifacts to return (None: all).
    Refused artifacts are left out. If `refused` is set, they are returned too, but get no aliases. An alias never takes
    the path of another file.
    """
    present = [item for item in manifest.artifacts if held_paths is None or item.path in held_paths]
    sound = [item for item in present if states.get(item.path) != "refused"]
    own_files = [entry for artifact in (present if refused else sound) for entry in artifact.all_files()]
    files: dict[str, LayoutFile] = {}
    for entry in (*own_files, *manifest.files):
        files.setdefault(entry.path, LayoutFile(entry.path, entry.digest, entry.size))
    files[FILENAME] = LayoutFile(FILENAME, digest, size)
    graphs = [(sound, MODEL)] if manifest.model_family is None else []
    for stage in dict.fromkeys(name for name in manifest.stages.values() if ":" not in name):
        items = [item for item in sound if manifest.stages[item.path] == stage]
        stems = {stem_of(item.path) for item in items} - {MODEL, stage}
        graphs += [(items, name) for name in (stage, *(stems if len(stems) == 1 else ()))]
    for aliases in (*_companions(manifest), *(group for item in graphs for group in _graphs(*item, states))):
        is_inside = not any(".." in item.path.split("/") for item in aliases)
        if is_inside and all(files.get(item.path, item).digest == item.digest for item in aliases):
            for item in aliases:
                files.setdefault(item.path, item)
    return files


def _companions(manifest: Manifest) -> Iterator[list[LayoutFile]]:
    folder = manifest.tokenizer.path if manifest.tokenizer else "."
    for entry in manifest.files:
        if entry.role == "tokenizer" and not relpath(entry.path, folder).startswith(".."):
            yield [_alias(entry, relpath(entry.path, folder))]
        elif entry.path in (manifest.config_path, manifest.label_map_path):
            yield [_alias(entry, basename(entry.path))]


def _graphs(
    artifacts: Collection[Artifact], name: str, states: Mapping[str, str]
) -> Iterator[list[LayoutFile]]:
    """Yield the aliases of each graph and its external data. `name` replaces `model` in `onnx/model_int8.onnx`."""
    for folder, formats in FOLDERS.items():
        candidates = [item for item in artifacts if item.format in formats and item.path.endswith(".onnx")]
        candidates.sort(key=lambda item: (states.get(item.path) != "certified", formats.index(item.format)))
        for artifact in candidates:
            data = [entry for entry in artifact.all_files() if entry.role == "external-data"]
            home = dirname(artifact.path) or "."
            for stem in STEMS.get(artifact.precision, ()):
                graph = _alias(artifact, join(folder, f"{name}{stem.removeprefix(MODEL)}.onnx"))
                yield [graph, *(_alias(entry, join(folder, relpath(entry.path, home))) for entry in data)]


def _alias(file: StoredFile, path: str) -> LayoutFile:
    return LayoutFile(path, file.digest, file.size, None if path == file.path else file.path)


def pipeline_tag(manifest: Manifest) -> str | None:
    """Return the name that the Hub has for the model's task. Return None if the manifest has no task."""
    return None if manifest.task is None else PIPELINE_TAGS.get(manifest.task, manifest.task)


# Files beside a graph that its runtime reads: configurations, tokenizers, modules of sentence-transformers.
_COMPANIONS = re.compile(
    r"(?:[0-9]+_[A-Za-z]+/)?[^/]+\.json|[0-9]+_[A-Za-z]+/model\.safetensors|[^/]+\.jinja|[^/]+\.tiktoken|(?:vocab|merges)\.txt"
    r"|(?:sentencepiece\.bpe|spiece|spm|tokenizer|target|source)\.(?:model|spm)"
)
_FOREIGN = re.compile(r".*\.index\.json|openmed-onnx\.json|registry\.json")
_VARIANT = re.compile(
    r"_(?:fp32|fp16|bf16|int8|uint8|int4|quantized|q[1248](?:f16)?|uint8f16|bnb4|optimized|O[1-4]|qint8_\w+|quint8_\w+)$"
)


def is_companion(path: str) -> bool:
    """True if the file at `path`, such as a tokenizer, is read by a runtime together with a graph."""
    return _COMPANIONS.fullmatch(path) is not None and _FOREIGN.fullmatch(path) is None


def stem_of(path: str) -> str:
    """Return a graph's file name without the ending for the type of weights: `model` for `onnx/model_q4f16.onnx`."""
    return _VARIANT.sub("", basename(path).rpartition(".")[0])


def card_metadata(manifest: Manifest, paths: Collection[str]) -> dict[str, Any]:
    """Return a model card's metadata. Its `model-index` has the figures of the artifacts at `paths`."""
    tag, results = pipeline_tag(manifest), []
    for artifact in manifest.artifacts:
        by_dataset: dict[str, list[dict[str, Any]]] = {}
        for check in artifact.checks if artifact.path in paths else ():
            if check.dataset is not None and check.value is not None:
                name = f"{check.label} of {artifact.path}"
                metric = {"type": check.metric, "name": name, "value": check.value}
                by_dataset.setdefault(str(check.dataset), []).append(metric)
        results += [
            {
                "task": {"type": tag or "other"},
                "dataset": {"type": "evaluation-suite", "name": dataset},
                "metrics": metrics,
            }
            for dataset, metrics in by_dataset.items()
        ]
    origin = manifest.source_model_id or (manifest.source and manifest.source.id)
    if origin == manifest.name and not (manifest.source and manifest.source.revision):
        origin = None  # the source is local: its id is the model's own name
    return {
        **(hub_license(manifest.license) if manifest.license else {}),
        **({"pipeline_tag": tag} if tag else {}),
        **({"base_model": origin} if origin and "/" in origin else {}),
        **({"model-index": [{"name": manifest.name, "results": results}]} if results else {}),
    }


def loading(repository: str, manifest: Manifest, paths: Collection[str]) -> list[str]:
    """Return Markdown that shows how other libraries load the files at `paths` of a repository."""
    python = f'folder = snapshot_download({json.dumps(repository)}, ignore_patterns=["blobs/*", "index/*"])'
    lines = ["```python", "from huggingface_hub import snapshot_download", "", python, "```"]
    tag = pipeline_tag(manifest)
    if tag is not None and any(path.startswith("onnx/model") for path in paths):
        name, task = json.dumps(repository), json.dumps(tag)
        module = "import { pipeline } from '@huggingface/transformers'"
        lines += ["", "```js", module, "", f"const run = await pipeline({task}, {name})", "```"]
    return lines

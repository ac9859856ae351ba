"""The KV cache of a decoder: the inputs of its graph that take the keys and values of the tokens before."""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import PurePosixPath
from typing import Any

from onnxreg.converters.onnx.elements import ELEMENTS
from onnxreg.converters.source.scrub import read_json
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

SETTINGS, CONFIG = "genai_config.json", "config.json"
"""The settings of onnxruntime-genai, and those of a checkpoint, in the folder of a graph."""
PAST = re.compile(r"past_key_values\.\d+\.(key|value)")
"""The name of an input of shape `[batch, heads, tokens, head size]`."""
TOKENS = 2
"""The axis of the tokens."""
BITS = {element.name: element.bits for element in ELEMENTS.values()}


def with_kv_caches(draft: Draft) -> Draft:
    """The draft, with the `kv_cache` of each decoder; see `manifest.KvCache`.

    Both numbers must be known: the longest context, and the head size if the graph leaves it open, are those of the
    `genai_config.json` of the draft beside the graph, else of the `config.json`.
    """
    return replace(draft, artifacts=tuple(_with_kv_cache(draft, artifact) for artifact in draft.artifacts))


def _with_kv_cache(draft: Draft, artifact: DraftArtifact) -> DraftArtifact:
    specs = artifact.fields.get("metadata", {}).get("inputs", ())
    past = [spec for spec in specs if PAST.fullmatch(spec["name"])]
    if not past:
        return artifact
    longest, head_size = _settings(draft, artifact)
    bits = [_bits_per_token(spec, head_size) for spec in past]
    if longest is None or None in bits:
        return artifact
    cache = {"bytes_per_token": -(-sum(filter(None, bits)) // 8), "max_tokens": longest}
    return replace(artifact, fields={**artifact.fields, "kv_cache": cache})


def _bits_per_token(spec: Mapping[str, Any], head_size: int | None) -> int | None:
    """The bits of one token in an input; None if they are not known."""
    sizes = [dim.get("value") for dim in spec.get("shape", ())]
    if len(sizes) != TOKENS + 2:
        return None
    batch, heads, size = sizes[0] or 1, sizes[1], sizes[-1] or head_size
    bits = BITS.get(spec["dtype"], 0)
    return prod((batch, heads, size, bits)) or None if heads and size else None


def _settings(draft: Draft, artifact: DraftArtifact) -> tuple[int | None, int | None]:
    """The longest context in tokens, and the head size, as the files beside a graph state them."""
    files = {file.path for file in (*artifact.sidecars, *draft.companions)}
    folder = PurePosixPath(artifact.path).parent
    settings, config = ((folder / name).as_posix() for name in (SETTINGS, CONFIG))
    if settings in files:
        value = read_json(draft.root / settings)
        return _count(value, "model", "context_length"), _count(value, "model", "decoder", "head_size")
    if config in files:
        return _count(read_json(draft.root / config), "max_position_embeddings"), None
    return None, None


def _count(value: Any, *keys: str) -> int | None:
    """The positive number at these keys, else None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if type(value) is int and value > 0 else None

"""`ModelBuilder`: a decoder checkpoint to the files that onnxruntime-genai generates text with."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from onnxreg.converters.onnx.facts import inspect_onnx, weight_type
from onnxreg.converters.onnx.graph_operators import containers
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.passes import base
from onnxreg.converters.passes.tools import causal_model, graph, model_file, samples
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.scrub import read_json, scrub_file
from onnxreg.converters.source.source_files import GENAI_CONFIG, weight_files
from onnxreg.schema.core.errors import ConversionError, InputError, missing_extra

GRAPH = "model.onnx"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
SAMPLE_TOKENS = 6
WEIGHTS = {"int4": "int4", "int8": "int8", "fp16": "float16", "fp32": "float32"}
BITS = {"int4": 4, "int8": 8}
BLOCK_OPERATORS = ("MatMulNBits", "GatherBlockQuantized")
TOLERANCES = {"fp32": 1e-3, "fp16": 5e-2, "int4": None, "int8": None}
"""The largest distance of logits from the checkpoint's, in parts of the largest one."""
LIBRARY_BYTES, PARAMETER_BYTES = 5 * 10**8, 8
"""The peak memory of a build to int4 from bfloat16: of the libraries, and for each parameter of the checkpoint.

Measured: 0.84 GB with 0.041 billion parameters, 3.0 GB with 0.317 billion, 10.5 GB with 1.236 billion.
"""
_LOCAL = ("is_local", "local_files_only")
"""The keys of a tokenizer's files that say that it was loaded from a directory."""


@dataclass(frozen=True)
class Decoder:
    """A checkpoint directory of a causal language model, and the directory, not there yet, that files go to."""

    checkpoint: Path
    target: Path


@dataclass(frozen=True)
class Generator:
    """The directory that holds what was written, and the names of the files."""

    directory: Path
    files: tuple[str, ...]


def peak_memory(checkpoint: Path) -> int | None:
    """Estimate the bytes of memory that a build takes, from the shapes in a checkpoint's safetensors files.

    None for a checkpoint of pickles, whose shapes are not known before they are loaded, and for a damaged
    one, which the build refuses.
    """
    from safetensors import SafetensorError, safe_open

    parameters = 0
    for name in weight_files(checkpoint):
        if name.endswith(".safetensors"):
            with suppress(SafetensorError), safe_open(checkpoint / name, "numpy") as file:
                parameters += sum(prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
    return LIBRARY_BYTES + PARAMETER_BYTES * parameters if parameters else None


class ModelBuilderParams(base.PassParams, title="Params"):
    precision: Literal["int4", "int8", "fp16", "fp32"]
    int4_block_size: Literal[16, 32, 64, 128, 256] = 32
    int4_accuracy_level: Literal[1, 2, 3, 4] | None = None

    @field_validator("precision", mode="before")
    @classmethod
    def _runs_on_a_cpu(cls, value: Any) -> Any:
        if value == "bf16":
            raise ValueError("ONNX Runtime cannot run bf16 on the CPU, so nothing can be compared: use fp16")
        return value


class ModelBuilder(base.Pass[Decoder, Generator]):
    """Build with the model builder of onnxruntime-genai, for the CPU, in a separate process and offline.

    With `int4` and `int8`, blocks of `int4_block_size` weights share a scale; `int4_accuracy_level` is what
    `MatMulNBits` may round activations to (4, int8, if not given). Both are read back from the graph. The logits of the graph are compared with the checkpoint's in PyTorch on seeded tokens, the
    last of which is a step of its own, behind the others' keys and values. Shapes that the builder states of values
    inside the graph are dropped: in float16 they are those of a graph without a past, and ONNX Runtime believes them.
    """

    id = "ModelBuilder"
    version = 4
    takes = "checkpoint"
    tools = ("onnxruntime-genai",)

    Params = ModelBuilderParams

    def requires(self, subject: Decoder) -> None:
        """Raise HostError if the extra is missing, InputError if the source is not a checkpoint."""
        if find_spec("onnxruntime_genai") is None:
            raise missing_extra("onnxruntime-genai", "genai", "building a decoder")
        if not (subject.checkpoint / "config.json").is_file():
            raise InputError(f"{subject.checkpoint.name} is not a checkpoint: it has no config.json")
        if subject.target.exists():
            raise InputError(f"{subject.target.name} exists already")

    def observe(self, subject: Decoder) -> Mapping[str, Any]:
        return {"checkpoint": subject.checkpoint}

    def apply(self, subject: Decoder) -> Generator:
        with model_file.scratch() as scratch:
            built = scratch / "made"
            self._build(subject.checkpoint, built, scratch / "cache")
            if not (built / GRAPH).is_file() or not (built / GENAI_CONFIG).is_file():
                raise ConversionError("onnxruntime-genai said that it was done, and wrote no model")
            _drop_shapes(built / GRAPH)
            _keep_tokenizer(subject.checkpoint, built)
            files = tuple(sorted(path.name for path in built.iterdir()))
            for path in (built / name for name in files):
                scrubbed = scrub_file(path, subject.checkpoint.name, _LOCAL, (subject.checkpoint,))
                if scrubbed is not None:
                    path.write_bytes(scrubbed[0])
            built.rename(subject.target)
        return Generator(subject.target, files)

    def ensures(self, before: Mapping[str, Any], after: Generator) -> dict[str, Any]:
        facts = inspect_onnx(after.directory / GRAPH)
        if weight_type(facts.precision) != WEIGHTS[self.params.precision]:
            raise ConversionError(f"asked for {self.params.precision}, got weights of {facts.precision}")
        return {
            "opset": facts.opset,
            "files": list(after.files),
            "weights": facts.weights.weights_total,
            "weights_quantized": facts.weights.weights_quantized,
            **self._check_blocks(after.directory / GRAPH),
            "parity": _parity(before["checkpoint"], after.directory, TOLERANCES[self.params.precision]),
        }

    def _check_blocks(self, path: Path) -> dict[str, int]:
        """`block_size` and `accuracy_level` of the quantized weights; ConversionError if they are not as asked."""
        if self.params.precision not in BITS:
            return {}
        got = _read_blocks(path)
        expected = {
            "bits": BITS[self.params.precision],
            "block_size": self.params.int4_block_size,
            "accuracy_level": self.params.int4_accuracy_level,
        }
        for name, value in expected.items():
            if len(got[name]) > 1 or (value is not None and got[name] != {value}):
                values = " and ".join(map(str, sorted(got[name]))) or "none"
                raise ConversionError(
                    f"onnxruntime-genai built {name} {values}, asked was {'one value' if value is None else value}"
                )
        return {name: min(got[name]) for name in ("block_size", "accuracy_level")}

    def _build(self, checkpoint: Path, target: Path, cache: Path) -> None:
        params = self.params
        options = ["hf_remote=false", f"block_size={params.int4_block_size}"]
        if params.int4_accuracy_level is not None:
            options.append(f"accuracy_level={params.int4_accuracy_level}")
        paths = ["-i", str(checkpoint.absolute()), "-o", str(target), "-c", str(cache)]
        kind = ["-p", params.precision, "-e", "cpu", "--extra_options", *options]
        process = subprocess.run(
            [sys.executable, "-m", "onnxruntime_genai.models.builder", *paths, *kind],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            reason = (process.stderr.strip() or process.stdout.strip() or "no reason was given").splitlines()[
                -1
            ]
            raise ConversionError(f"onnxruntime-genai could not build the model: {reason[:300]}")


def _read_blocks(path: Path) -> dict[str, set[int]]:
    """The values of `bits`, `block_size` and `accuracy_level` that the quantized weights of a graph have."""
    absent = {"bits": 4, "accuracy_level": 0}
    blocks: dict[str, set[int]] = {"bits": set(), "block_size": set(), "accuracy_level": set()}
    for body in containers(load_onnx(path)):
        for node in (node for node in body.node if node.op_type in BLOCK_OPERATORS):
            stated = {**absent, **{attribute.name: attribute.i for attribute in node.attribute}}
            for name in blocks.keys() - ({"accuracy_level"} if node.op_type != "MatMulNBits" else set()):
                blocks[name].add(stated[name])
    return blocks


def _keep_tokenizer(checkpoint: Path, built: Path) -> None:
    """Put the checkpoint's tokenizer.json, and the name of its class, where transformers 5 may have made others.

    The builder loads and saves the tokenizer, and many classes are built anew from the vocabulary then.
    """
    if not (checkpoint / TOKENIZER).is_file():
        return
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(checkpoint / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(built / TOKENIZER))
    own, config = (
        read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).is_file() else {}
        for folder in (checkpoint, built)
    )
    config.pop("backend", None)
    name = own.get("tokenizer_class", config.get("tokenizer_class"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast" if name == "TokenizersBackend" else name
    (built / TOKENIZER_CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _drop_shapes(path: Path) -> None:
    loaded = load_onnx(path)
    graph.clear_value_info(loaded)
    path.write_bytes(loaded.SerializeToString(deterministic=True))


def _parity(checkpoint: Path, directory: Path, tolerance: float | None) -> dict[str, Any]:
    """Compare the graph's logits on a few seeded tokens with the checkpoint's."""
    import numpy as np

    settings = json.loads((directory / GENAI_CONFIG).read_text("utf-8"))["model"]
    tokens = np.random.default_rng(samples.SEED).integers(0, settings["vocab_size"], (1, SAMPLE_TOKENS))
    got = _logits(load_session(directory / GRAPH), tokens, settings["decoder"]["head_size"])
    expected = _torch_logits(checkpoint, tokens)
    distances = samples.compare([{"logits": expected}], [{"logits": got}], "the decoder", tolerance)
    return {"samples": 1, "dataset": str(samples.digest([{"input_ids": tokens}])), "outputs": distances}


def _logits(session: Any, tokens: Any, head_size: int) -> Any:
    """Run all tokens but the last, then the last with their past: float `[1, TOKENS, words]`."""
    import numpy as np

    past: dict[str, Any] = {}
    steps = []
    for at in (slice(0, SAMPLE_TOKENS - 1), slice(SAMPLE_TOKENS - 1, SAMPLE_TOKENS)):
        feed = {item.name: _input(item, tokens, at, past, head_size) for item in session.get_inputs()}
        arrays = samples.outputs(session, feed, "the decoder")
        steps.append(arrays.pop("logits"))
        past = {name.replace("present", "past_key_values"): array for name, array in arrays.items()}
    return np.concatenate(steps, axis=1)


def _input(item: Any, tokens: Any, at: slice, past: Mapping[str, Any], head_size: int) -> Any:
    """The input of a step at `at`; `past` holds the outputs of the step before, empty for the first."""
    import numpy as np

    if item.name in past:
        return past[item.name]
    if item.name == "input_ids":
        return tokens[:, at]
    if item.name == "position_ids":
        return np.arange(at.start, at.stop)[None]
    sizes = {"batch_size": 1, "past_sequence_length": 0, "kv_cache_dim": head_size}
    return np.ones([sizes.get(axis, at.stop) if isinstance(axis, str) else axis for axis in item.shape])


def _torch_logits(checkpoint: Path, tokens: Any) -> Any:
    import torch

    with torch.no_grad():
        return causal_model.load(checkpoint)(torch.from_numpy(tokens)).logits.numpy()

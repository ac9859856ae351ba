"""`ModelBuilder`: converts a decoder checkpoint to the files of onnxruntime-genai, and compares the graph's outputs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

from onnxreg.converters.onnx.facts import inspect_file, weight_type
from onnxreg.converters.onnx.onnx_graph import containers, load_onnx
from onnxreg.converters.passes import conversion, models, samples
from onnxreg.converters.passes.base import Facts, Pass, PassParams
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.passes.merge_decoders import PAST, PRESENT, SWITCH
from onnxreg.converters.runtime.sessions import load_session, silent_transformers
from onnxreg.converters.source.source_files import GENAI_CONFIG, read_object, scrub_file, weight_files
from onnxreg.converters.source.toolchain import require_memory
from onnxreg.schema.core.errors import ConversionError, InputError, missing_extra

GRAPH = "model.onnx"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
SAMPLE_TOKENS, SAMPLE_LENGTHS = 6, (4, 12)
WEIGHTS = {"int4": "int4", "int8": "int8", "fp16": "float16", "fp32": "float32"}
BITS = {"int4": 4, "int8": 8}
BLOCK_OPERATORS = ("MatMulNBits", "GatherBlockQuantized")
TOLERANCES = {"fp32": 1e-3, "fp16": 5e-2, "int4": None, "int8": None}
"""For each precision, the allowed distance of logits from the checkpoint's, as a share of the largest logit."""
LIBRARY_BYTES, PARAMETER_BYTES = 5 * 10**8, 8
"""The peak memory of a build to int4 from bfloat16: bytes for libraries, and bytes per parameter."""
_LOCAL = ("is_local", "local_files_only")


class Decoder(NamedTuple):
    """The checkpoint directory of a causal language model, and the directory to create."""

    checkpoint: Path
    target: Path


def peak_memory(checkpoint: Path) -> int | None:
    """Estimate the memory that a build takes, in bytes. Return None if there are no safetensors files."""
    from safetensors import SafetensorError, safe_open

    parameters = 0
    for name in weight_files(checkpoint):
        if name.endswith(".safetensors"):
            with suppress(SafetensorError), safe_open(checkpoint / name, "numpy") as file:
                parameters += sum(prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
    return LIBRARY_BYTES + PARAMETER_BYTES * parameters if parameters else None


class ModelBuilder(Pass[Decoder, Path]):
    """Build with the model builder of onnxruntime-genai, for the CPU, in a separate process and offline.

    With `int4` and `int8`, each block of `int4_block_size` weights has a scale. `int4_accuracy_level` is the type to
    which `MatMulNBits` may round activations; the builder's default is 4, which is int8. The graph's logits are
    compared with the checkpoint's on random tokens.
    """

    id = "ModelBuilder"
    version = 4
    takes = "checkpoint"
    tools = ("onnxruntime-genai",)

    class Params(PassParams):
        precision: Literal["int4", "int8", "fp16", "fp32"]
        int4_block_size: Literal[16, 32, 64, 128, 256] = 32
        int4_accuracy_level: Literal[1, 2, 3, 4] | None = None

    def requires(self, subject: Decoder) -> None:
        if find_spec("onnxruntime_genai") is None:
            raise missing_extra("onnxruntime-genai", "genai", "building a decoder")
        if not (subject.checkpoint / "config.json").is_file():
            raise InputError(f"{subject.checkpoint.name} is not a checkpoint: it has no config.json")
        require_memory(peak_memory(subject.checkpoint), "building the decoder")

    def observe(self, subject: Decoder) -> Facts:
        return {"checkpoint": subject.checkpoint}

    def apply(self, subject: Decoder) -> Path:
        with models.scratch_in(subject.target.parent), models.scratch() as scratch:
            built = scratch / "made"
            self._build(subject.checkpoint, built, scratch / "cache")
            if not (built / GRAPH).is_file() or not (built / GENAI_CONFIG).is_file():
                raise ConversionError("onnxruntime-genai said that it was done, and wrote no model")
            loaded = load_onnx(built / GRAPH)
            for body in containers(loaded):
                del body.value_info[:]
            (built / GRAPH).write_bytes(loaded.SerializeToString(deterministic=True))
            _keep_tokenizer(subject.checkpoint, built)
            for path in list(built.iterdir()):
                scrubbed = scrub_file(path, subject.checkpoint.name, _LOCAL, (subject.checkpoint,))
                if scrubbed is not None:
                    path.write_bytes(scrubbed[0])
            built.rename(subject.target)
        return subject.target

    def ensures(self, before: Facts, after: Path) -> dict[str, Any]:
        graph, precision = after / GRAPH, self.params.precision
        facts = inspect_file(graph)
        if weight_type(facts.precision) != WEIGHTS[precision]:
            raise ConversionError(f"asked for {precision}, got weights of {facts.precision}")
        return {
            "opset": facts.opset,
            "files": sorted(path.name for path in after.iterdir()),
            "weights": facts.weights.weights_total,
            "weights_quantized": facts.weights.weights_quantized,
            **(self._blocks(graph) if precision in BITS else {}),
            "parity": _parity(before["checkpoint"], graph, TOLERANCES[precision]),
        }

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
            output = process.stderr.strip() or process.stdout.strip() or "no reason was given"
            message = f"onnxruntime-genai could not build the model: {output.splitlines()[-1][:300]}"
            raise ConversionError(
                message, "without --recipe, reg export makes a graph that onnxruntime-genai runs too"
            )

    def _blocks(self, path: Path) -> dict[str, int]:
        import onnx_ir as ir

        nodes = list(ir.from_proto(load_onnx(path)).graph.all_nodes())
        requested = {
            "bits": (BITS[self.params.precision], BLOCK_OPERATORS, 4),
            "block_size": (self.params.int4_block_size, BLOCK_OPERATORS, 0),
            "accuracy_level": (self.params.int4_accuracy_level, ("MatMulNBits",), 0),
        }
        result = {}
        for name, (value, operators, default) in requested.items():
            values = {node.attributes.get_int(name, default) for node in nodes if node.op_type in operators}
            if len(values) != 1 or value not in (None, *values):
                built = " and ".join(map(str, sorted(values))) or "none"
                raise ConversionError(
                    f"onnxruntime-genai built {name} {built}; requested was {value or 'a single value'}"
                )
            result[name] = values.pop()
        return {name: result[name] for name in ("block_size", "accuracy_level")}


def _keep_tokenizer(checkpoint: Path, built: Path) -> None:
    """Copy the tokenizer's class and tokenizer.json from the checkpoint. Padding and truncation are left out."""
    if not (checkpoint / TOKENIZER).is_file():
        return
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(checkpoint / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(built / TOKENIZER))
    own, config = (read_object(folder / TOKENIZER_CONFIG) for folder in (checkpoint, built))
    config.pop("backend", None)
    name = own.get("tokenizer_class", config.get("tokenizer_class"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast" if name == "TokenizersBackend" else name
    (built / TOKENIZER_CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _parity(checkpoint: Path, path: Path, tolerance: float | None) -> dict[str, Any]:
    """Compare the graph's logits with the checkpoint's on random tokens. Return the record of the comparison."""
    import numpy as np

    session, (words, head_size) = load_session(path), settings_of(path)
    tokens = np.random.default_rng(samples.SEED).integers(0, words, (1, SAMPLE_TOKENS))
    past: Mapping[str, Any] = {}
    steps = []
    for step in (tokens[:, :-1], tokens[:, -1:]):
        feed = step_inputs(step, session.get_inputs(), head_size, past)
        arrays = samples.outputs(session, feed, "the decoder")
        steps.append(arrays.pop("logits"))
        past = {f"{PAST}{name.removeprefix(PRESENT)}": array for name, array in arrays.items()}
    expected = conversion.run(torch_model(checkpoint), [{"input_ids": tokens}])
    outputs = {"logits": np.concatenate(steps, axis=1)}
    distances = samples.compare(expected, [outputs], "the decoder", tolerance)
    return samples.parity([{"input_ids": tokens}], distances)


def settings_of(path: Path) -> tuple[int, int]:
    """Return the size of the vocabulary and the head size, from `genai_config.json` beside the graph.

    Raises ConversionError if this file is missing.
    """
    try:
        model = json.loads((path.parent / GENAI_CONFIG).read_text("utf-8"))["model"]
        return int(model["vocab_size"]), int(model["decoder"]["head_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConversionError(f"{path.name} is a decoder without its {GENAI_CONFIG}") from error


def step_inputs(
    tokens: Any, inputs: Iterable[Any], head_size: int = 0, state: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Make the inputs of a decoder for the next `tokens`, an int64 array `[rows, tokens]`.

    `inputs` are the session's inputs. `head_size` is used if the graph does not state it. `state` are further inputs,
    such as the KV cache; without them, the past is empty.
    """
    import numpy as np

    state, (rows, new) = state or {}, tokens.shape
    before = next((array.shape[2] for name, array in state.items() if name.startswith(PAST)), 0)
    end = before + new
    values = {
        "input_ids": tokens,
        "attention_mask": np.ones((rows, end), np.int64),
        "position_ids": np.arange(before, end)[None].repeat(rows, 0),
        SWITCH: np.array([before > 0]),
        **state,
    }
    for item in inputs:
        if item.name.startswith(PAST) and item.name not in values:
            _, *sizes, width = (size if isinstance(size, int) else 0 for size in item.shape)
            values[item.name] = np.zeros((rows, *sizes, width or head_size))
    return {item.name: values[item.name] for item in inputs if item.name in values}


def sample_steps(path: Path, inputs: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Make two sample inputs of a decoder: random tokens of different lengths, with an empty past."""
    import numpy as np

    generator, (words, head_size) = np.random.default_rng(0), settings_of(path)
    tokens = (generator.integers(0, words, (1, count)) for count in SAMPLE_LENGTHS)
    return tuple(step_inputs(one, inputs, head_size) for one in tokens)


def torch_model(checkpoint: Path, trust_remote_code: bool = False) -> TorchModel:
    """Load a causal language model in float32. It takes `input_ids` (int64 `[1, tokens]`) and returns `logits`.

    Raises ConversionError if the checkpoint does not load.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with silent_transformers():
            module = AutoModelForCausalLM.from_pretrained(
                checkpoint,
                dtype=torch.float32,
                attn_implementation="eager",
                weights_only=True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
            ).eval()
    except Exception as error:
        raise ConversionError("the checkpoint does not load as a causal language model") from error
    return TorchModel(module, {"input_ids": torch.zeros((1, 1), dtype=torch.int64)}, axes={})

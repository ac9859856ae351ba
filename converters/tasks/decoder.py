"""Causal language models as one graph with keys and values, named as Optimum writes and Transformers.js loads.

It takes the new tokens (`input_ids`), `attention_mask` and `position_ids`, and `past_key_values.N.key` and `.value` of the
tokens before, none for a prompt; it gives `logits` and `present.N.key` and `.value`. It is published only if it generates
what the model generates, from its file in ONNX Runtime alone. The pass `ModelBuilder` makes another graph, for
onnxruntime-genai: see `TextGeneration`.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.passes import conversion
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import CONFIG, GENERATION_CONFIG, copy_scrubbed
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks.checkpoint import OPTIMUM, find_checkpoint, load_located, write_companions
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Sample, Task
from onnxreg.converters.tasks.text import REQUIRED, TextOptions, described, longest, sample_feeds
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

INPUTS = (*REQUIRED, "position_ids")
PAST, PRESENT = "past_key_values.", "present."
BATCH, NEW, EARLIER = "batch_size", "sequence_length", "past_sequence_length"
SIZES = ((2, 5, 3), (1, 0, 6), (3, 9, 1))
"""Rows, earlier tokens and new tokens of each sample; the first row begins with padding if there are several."""
STEPS = 20
"""The number of tokens that the proof generates for each prompt."""
TIE = 1e-3
"""Two logits this close, as a share of the largest, are equal but for rounding."""


class CausalDecoder(Task):
    """A causal language model for any runtime; `TransformersExport` makes its graph."""

    exporter = "TransformersExport"
    Options = TextOptions

    def find(self, source: str) -> LocatedSource:
        return find_checkpoint(source, self.head, self.trust_remote_code)

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers")
        checkpoint = load_located(source, name, self.head, self.trust_remote_code)
        model, config = checkpoint.model, checkpoint.config
        length = longest(int(self.options.max_seq_length), model)
        tokens = sample_feeds(checkpoint.tokenizer, config, REQUIRED, length)[1]["input_ids"]
        subject, sample = _sample(_module(model), tokens)
        files, scrubbed = write_companions(directory, checkpoint, name, length, INPUTS, {})
        if (checkpoint.directory / GENERATION_CONFIG).is_file():
            copy_scrubbed(checkpoint.directory / GENERATION_CONFIG, directory / GENERATION_CONFIG, name)
            files.append(DraftFile("other", GENERATION_CONFIG))
        fields = described(self.id, checkpoint.directory, config.model_type)
        fields |= {"config_path": CONFIG, "max_sequence_length": length}
        if checkpoint.tokenizer is not None:
            paths = [file.path for file in files if file.role == "tokenizer"]
            fields["tokenizer"] = {"path": ".", "files": paths}
        resolved = {"max_seq_length": length, **({"scrubbed": scrubbed} if scrubbed else {})}
        prompt = tokens[:, :6]
        proof = Proof(prompt, _generated(model, prompt))
        return ExportSubject(
            checkpoint.source, sample, subject, tuple(files), fields, resolved, checkpoint, proof=proof
        )


@dataclass(frozen=True)
class Proof:
    """Prompts `[rows, tokens]` with the tokens that the model generates greedily, `[rows, STEPS]`."""

    prompts: Any
    tokens: Any

    def __call__(self, draft: Draft) -> Draft:
        """Generate with each graph, and record the share of equal tokens.

        Raises ConversionError if the graph of full precision gives another token.
        """

        def checked(artifact: DraftArtifact) -> DraftArtifact:
            is_exact = artifact.precision == "float32"
            share = self._share(draft.root / artifact.path, is_exact)
            limit = {"limit": 1.0, "verdict": "pass"} if is_exact else {"verdict": "info"}
            check = {"name": "generation", "metric": "token_agreement", "samples": self.tokens.size}
            checks = [*artifact.fields["checks"], {**check, "value": share, **limit}]
            return replace(artifact, fields={**artifact.fields, "checks": checks})

        return replace(draft, artifacts=tuple(map(checked, draft.artifacts)))

    def _share(self, path: Path, is_exact: bool) -> float:
        """Return the share of steps with the model's token, each after the model's own tokens so far."""
        import numpy as np

        session, ids = load_session(path), self.prompts
        heads = {item.name: item.shape for item in session.get_inputs() if item.name.startswith(PAST)}
        past = {
            name: np.zeros((len(ids), shape[1], 0, shape[3]), np.float32) for name, shape in heads.items()
        }
        equal, count = [], 0
        for step in range(self.tokens.shape[1]):
            feed = _feed(ids, np.ones((len(ids), count + ids.shape[1]), np.int64), past)
            outputs = samples.outputs(session, feed, path.name)
            logits, expected = outputs["logits"][:, -1], self.tokens[:, step]
            gap = logits.max(1) - np.take_along_axis(logits, expected[:, None], 1)[:, 0]
            equal.append(gap <= TIE * np.abs(logits).max())
            if is_exact and not equal[-1].all():
                message = f"{path.name} generates another text than the model: token {step + 1} is "
                message += f"{logits.argmax(1)[~equal[-1]][0]}, not {expected[~equal[-1]][0]}"
                raise ConversionError(message, OPTIMUM)
            count += ids.shape[1]
            ids = expected[:, None]
            past = {name: outputs[name.replace(PAST, PRESENT)] for name in heads}
        return float(f"{np.concatenate(equal).mean():.6g}")


def _module(model: Any) -> Any:
    """Wrap a model: the cache is flat tensors by name, and its layers keep all tokens, also those with a window."""
    import torch
    from transformers import DynamicCache

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **tensors: Any) -> Any:
            cached = [tensor for name, tensor in tensors.items() if name.startswith(PAST)]
            cache = DynamicCache([tuple(cached[at : at + 2]) for at in range(0, len(cached), 2)])
            plain = {name: tensors[name] for name in INPUTS}
            result = self.model(**plain, past_key_values=cache, use_cache=True, return_dict=True)
            layers = result.past_key_values.layers
            return (result.logits, *(state for layer in layers for state in (layer.keys, layer.values)))

    return Decoder().eval()


def _feed(ids: Any, mask: Any, past: Any) -> dict[str, Any]:
    """The inputs for new tokens; positions count the tokens that the mask keeps."""
    positions = (mask.cumsum(1) - 1).clip(0)[:, -ids.shape[1] :]
    return {**dict(zip(INPUTS, (ids, mask, positions), strict=True)), **past}


def _sample(module: Any, tokens: Any) -> tuple[TorchModel, Sample]:
    """Make the module with an example, and a sample of other sizes whose keys and values the module made itself."""
    import numpy as np
    import torch

    def run(feed: Any) -> list[Any]:
        with torch.no_grad():
            return [
                tensor.numpy() for tensor in module(**{key: torch.from_numpy(a) for key, a in feed.items()})
            ]

    ids = np.resize(tokens.reshape(-1), (3, 16))
    _, *first = run(_feed(ids[:1, :2], np.ones((1, 2), np.int64), {}))
    names = [f"{layer}.{kind}" for layer in range(len(first) // 2) for kind in ("key", "value")]
    feeds = []
    for rows, earlier, new in SIZES:
        mask = np.ones((rows, earlier + new), np.int64)
        if rows > 1:
            mask[0, :2] = 0
        past = [state[:, :, :0] for state in first]
        if earlier:
            _, *past = run(_feed(ids[:rows, :earlier], mask[:, :earlier], {}))
        states = {f"{PAST}{name}": state for name, state in zip(names, past, strict=True)}
        feeds.append(_feed(ids[:rows, earlier : earlier + new], mask, states))
    outputs = ("logits", *(f"{PRESENT}{name}" for name in names))
    total = f"{EARLIER} + {NEW}"
    new_axes, all_axes = {0: BATCH, 1: NEW}, {0: BATCH, 1: total}
    axes = {"input_ids": new_axes, "attention_mask": all_axes, "position_ids": new_axes, "logits": new_axes}
    axes |= {f"{PAST}{name}": {0: BATCH, 2: EARLIER} for name in names}
    axes |= {f"{PRESENT}{name}": {0: BATCH, 2: total} for name in names}
    subject = TorchModel(module, {key: torch.from_numpy(a) for key, a in feeds[0].items()}, outputs, axes)
    return subject, Sample(feeds, conversion.run(subject, feeds))


def _generated(model: Any, prompts: Any) -> Any:
    """The tokens that `generate` adds greedily, `[rows, STEPS]`; rules such as forced tokens are left out."""
    import torch
    from transformers import GenerationConfig

    own, pad = model.generation_config, getattr(model.config, "pad_token_id", None)
    model.generation_config = GenerationConfig(pad_token_id=pad or 0)
    ids = torch.from_numpy(prompts)
    try:
        with silent_transformers(), torch.no_grad():
            mask = torch.ones_like(ids)
            options = {"max_new_tokens": STEPS, "do_sample": False, "use_cache": True}
            return model.generate(ids, attention_mask=mask, **options)[:, ids.shape[1] :].numpy()
    finally:
        model.generation_config = own

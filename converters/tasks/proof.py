"""Prove graphs that generate: run in ONNX Runtime alone, they must give the tokens that the model itself generates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.tasks.greedy import DECODER, GENERATORS, Generator
from onnxreg.converters.tasks.heads import OPTIMUM
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

STEPS = 20
"""The number of tokens to generate for each input."""
TIE = 1e-3
"""Two logits that differ by at most this share of the largest logit are equal but for rounding."""


@dataclass(frozen=True)
class Answer:
    """The tokens that the model itself generates greedily after the prompt, `[rows, STEPS]`; `feed` has the model's inputs."""

    feed: Feed
    prompt: Any
    tokens: Any


def answer_of(model: Any, feed: Feed, start: int | None = None) -> Answer:
    """Let the model generate greedily, without rules such as forced tokens; `start` is the first token of a decoder's answer."""
    import torch
    from transformers import GenerationConfig, GenerationMixin

    own, pad = model.generation_config, getattr(model.config, "pad_token_id", None)
    model.generation_config = GenerationConfig(decoder_start_token_id=start, pad_token_id=pad or 0)
    inputs = {name: torch.from_numpy(array) for name, array in feed.items()}
    settings: Any = {"max_new_tokens": STEPS, "do_sample": False, "num_beams": 1, "use_cache": True}
    try:
        with silent_transformers(), torch.no_grad():  # a model's own `generate` adds its rules
            ids = GenerationMixin.generate(model, **inputs, **settings).numpy()
    finally:
        model.generation_config = own
    return Answer(feed, ids[:, :-STEPS], ids[:, -STEPS:])


@dataclass(frozen=True)
class Proof:
    """Checks if exported graphs give the same answers as the model that they were exported from."""

    answers: Sequence[Answer]

    def __call__(self, draft: Draft) -> Draft:
        """Run each graph, or set of graphs that generate together; record the share of steps with the model's token.

        Raises ConversionError if graphs of full precision give another token.
        """
        family = draft.fields.get("model_family", {"members": []})
        names = {path: member["name"] for member in family["members"] for path in member["artifacts"]}
        sets = GENERATORS if names else ((DECODER,),)
        versions: dict[str, dict[str, DraftArtifact]] = {}
        for artifact in draft.artifacts:
            version = versions.setdefault(artifact.precision if names else artifact.path, {})
            version[names.get(artifact.path, DECODER)] = artifact
        checks: dict[str, list[dict[str, Any]]] = {}
        for version in versions.values():
            for graphs in (graphs for graphs in sets if version.keys() >= {*graphs}):
                is_exact = version[graphs[0]].precision == "float32"
                share = self._share({name: draft.root / version[name].path for name in graphs}, is_exact)
                count = sum(answer.tokens.size for answer in self.answers)
                check = {"name": "generation", "metric": "token_agreement", "samples": count, "value": share}
                check |= {"limit": 1.0, "verdict": "pass"} if is_exact else {"verdict": "info"}
                checks |= {version[name].path: [check] for name in graphs}

        def checked(artifact: DraftArtifact) -> DraftArtifact:
            entries = [*artifact.fields["checks"], *checks.get(artifact.path, ())]
            return replace(artifact, fields={**artifact.fields, "checks": entries})

        return replace(draft, artifacts=tuple(map(checked, draft.artifacts)))

    def _share(self, paths: Mapping[str, Path], is_exact: bool) -> float:
        """Return the share of steps at which the graphs write the model's token; each step begins with the model's earlier tokens."""
        import numpy as np

        model, equal = Generator(paths), []
        for answer in self.answers:
            decode, before = model.decoding(answer.feed), answer.prompt
            for step in range(answer.tokens.shape[1]):
                logits, expected = decode(before), answer.tokens[:, step]
                gap = logits.max(1) - np.take_along_axis(logits, expected[:, None], 1)[:, 0]
                is_equal = gap <= TIE * np.abs(logits).max()
                equal.append(is_equal)
                if is_exact and not is_equal.all():
                    raise ConversionError(
                        f"{paths[model.decoder(step)].name} generates another text than the model: token {step + 1} is "
                        f"{logits.argmax(1)[~is_equal][0]}, not {expected[~is_equal][0]}",
                        OPTIMUM,
                    )
                before = expected[:, None]
        return float(f"{np.concatenate(equal).mean():.6g}")

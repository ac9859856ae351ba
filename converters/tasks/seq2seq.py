"""Encoder-decoders of texts: three graphs with the names of files and tensors that Optimum writes.

| member | file | from, to |
|---|---|---|
| `encoder` | `encoder_model.onnx` | the text, to a vector for each token |
| `decoder` | `decoder_model.onnx` | these and the first tokens of the answer, to logits, keys and values |
| `decoder_with_past` | `decoder_with_past_model.onnx` | one more token, keys and values, to logits, and the decoder's keys and values |

The graphs are published only if they generate what the model generates, from their files in ONNX Runtime alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.passes import conversion
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import CONFIG, GENERATION_CONFIG, PROCESSOR, copy_scrubbed
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks.checkpoint import OPTIMUM, find_checkpoint, load_located, write_companions
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Part, Sample, Task
from onnxreg.converters.tasks.text import TextOptions, described, longest, sample_feeds
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

ENCODER, DECODER, NEXT = "encoder", "decoder", "decoder_with_past"
FILES = {ENCODER: "encoder_model.onnx", DECODER: "decoder_model.onnx", NEXT: "decoder_with_past_model.onnx"}
TEXT, HIDDEN = ("input_ids", "attention_mask"), "encoder_hidden_states"
MASK, TOKENS = "encoder_attention_mask", "input_ids"
PAST, PRESENT = "past_key_values.", "present."
BATCH, SOURCE, TARGET = "batch_size", "encoder_sequence_length", "decoder_sequence_length"
EARLIER = f"past_{TARGET}"
LENGTHS = (3, 1, 7)
"""The number of tokens of the answer so far, for each sample of the decoder."""
STEPS = 20
"""The number of tokens that the proof generates for each text."""
TIE = 1e-3
"""Two logits this close, as a share of the largest, are equal but for rounding."""


@dataclass(frozen=True)
class Proof:
    """Texts with the tokens that the model itself generates greedily, `[rows, STEPS]`; `start` is the first token."""

    start: int
    texts: Sequence[Feed]
    tokens: Sequence[Any]

    def __call__(self, draft: Draft) -> Draft:
        """Generate with the graphs of each precision, and record the share of equal tokens.

        Raises ConversionError if the graphs of full precision give another token.
        """
        by_precision: dict[str, dict[str, DraftArtifact]] = {}
        members = draft.fields["model_family"]["members"]
        names = {path: member["name"] for member in members for path in member["artifacts"]}
        for artifact in draft.artifacts:
            by_precision.setdefault(artifact.precision, {})[names[artifact.path]] = artifact
        checks: dict[str, dict[str, Any]] = {}
        for precision, artifacts in by_precision.items():
            if artifacts.keys() == FILES.keys():
                paths = {name: draft.root / artifact.path for name, artifact in artifacts.items()}
                share = self._share(paths, is_exact=precision == "float32")
                count = sum(tokens.size for tokens in self.tokens)
                check = {"name": "generation", "metric": "token_agreement", "samples": count, "value": share}
                check |= {"limit": 1.0, "verdict": "pass"} if precision == "float32" else {"verdict": "info"}
                checks |= {artifact.path: check for artifact in artifacts.values()}

        def checked(artifact: DraftArtifact) -> DraftArtifact:
            entries = [
                *artifact.fields["checks"],
                *([checks[artifact.path]] if artifact.path in checks else []),
            ]
            return replace(artifact, fields={**artifact.fields, "checks": entries})

        return replace(draft, artifacts=tuple(map(checked, draft.artifacts)))

    def _share(self, paths: Mapping[str, Path], is_exact: bool) -> float:
        """Return the share of steps with the model's token, each after the model's own tokens so far."""
        import numpy as np

        sessions = {name: load_session(path) for name, path in paths.items()}
        equal = []
        for text, tokens in zip(self.texts, self.tokens, strict=True):
            hidden = samples.outputs(sessions[ENCODER], text, paths[ENCODER].name)["last_hidden_state"]
            feed = {
                MASK: text["attention_mask"],
                TOKENS: np.full((len(hidden), 1), self.start),
                HIDDEN: hidden,
            }
            name = DECODER
            for step in range(tokens.shape[1]):
                outputs = samples.outputs(sessions[name], feed, paths[name].name)
                logits, expected = outputs["logits"][:, -1], tokens[:, step]
                gap = logits.max(1) - np.take_along_axis(logits, expected[:, None], 1)[:, 0]
                is_equal = gap <= TIE * np.abs(logits).max()
                equal.append(is_equal)
                if is_exact and not is_equal.all():
                    raise ConversionError(
                        f"{paths[name].name} generates another text than the model: token {step + 1} is "
                        f"{logits.argmax(1)[~is_equal][0]}, not {expected[~is_equal][0]}",
                        OPTIMUM,
                    )
                past = {
                    f"{PAST}{key.removeprefix(PRESENT)}": outputs[key] for key in outputs if key != "logits"
                }
                name, feed = NEXT, {**feed, TOKENS: expected[:, None], **past}
        return float(f"{np.concatenate(equal).mean():.6g}")


class Seq2Seq(Task):
    """An encoder-decoder of texts, as three graphs: its encoder, its decoder, and its decoder with keys and values."""

    Options = TextOptions
    exporter, members = "TransformersExport", FILES

    def find(self, source: str) -> LocatedSource:
        located = find_checkpoint(source, self.head, self.trust_remote_code)
        if any((located.location / name).is_file() for name in PROCESSOR):
            message = (
                "the checkpoint reads images or sound (it has a processor), and the task gives texts alone"
            )
            raise InputError(message, OPTIMUM)
        return located

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers")
        checkpoint = load_located(source, name, self.head, self.trust_remote_code)
        model = checkpoint.model
        length = longest(int(self.options.max_seq_length), model)
        texts = sample_feeds(checkpoint.tokenizer, checkpoint.config, TEXT, length)
        settings = (model.generation_config, checkpoint.config)
        starts = (getattr(one, "decoder_start_token_id", None) for one in settings)
        start = next((token for token in starts if isinstance(token, int)), None)
        if start is None:
            message = "the checkpoint has no decoder_start_token_id, with which an answer begins"
            raise InputError(message, "save the model again with one")
        parts = parts_of(model, texts)
        proof = Proof(start, texts[:2], [generated(model, text, start) for text in texts[:2]])
        files, scrubbed = write_companions(directory, checkpoint, name, length, TEXT, {})
        if (checkpoint.directory / GENERATION_CONFIG).is_file():
            copy_scrubbed(checkpoint.directory / GENERATION_CONFIG, directory / GENERATION_CONFIG, name)
            files.append(DraftFile("other", GENERATION_CONFIG))
        fields = described(self.id, checkpoint.directory, checkpoint.config.model_type)
        fields |= {"config_path": CONFIG, "max_sequence_length": length}
        if checkpoint.tokenizer is not None:
            tokenizer = [file.path for file in files if file.role == "tokenizer"]
            fields["tokenizer"] = {"path": ".", "files": tokenizer}
        resolved = {"max_seq_length": length, **({"scrubbed": scrubbed} if scrubbed else {})}
        nothing = Sample((), ())
        return ExportSubject(
            checkpoint.source, nothing, None, tuple(files), fields, resolved, parts=parts, proof=proof
        )


def generated(model: Any, text: Feed, start: int) -> Any:
    """The tokens that `generate` adds greedily, `[rows, STEPS]`; rules such as forced tokens are left out."""
    import torch
    from transformers import GenerationConfig

    own, pad = model.generation_config, getattr(model.config, "pad_token_id", None)
    model.generation_config = GenerationConfig(decoder_start_token_id=start, pad_token_id=pad)
    inputs = {name: torch.from_numpy(text[name]) for name in TEXT}
    try:
        with silent_transformers(), torch.no_grad():
            ids = model.generate(**inputs, max_new_tokens=STEPS, do_sample=False, num_beams=1, use_cache=True)
    finally:
        model.generation_config = own
    return ids[:, 1:].numpy()


def parts_of(model: Any, texts: Sequence[Feed]) -> dict[str, Part]:
    """Make the module and the sample of each graph; the samples of one graph are outputs of the graph before."""
    import numpy as np
    import torch
    from transformers import EncoderDecoderCache
    from transformers.modeling_outputs import BaseModelOutput

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model.get_encoder()

        def forward(self, **text: Any) -> Any:
            return self.encoder(**text, return_dict=True).last_hidden_state

    class Decoder(torch.nn.Module):
        """Takes keys and values in the place of hidden states; then gives only the decoder's keys and values."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **tensors: Any) -> Any:
            mask, hidden, past = tensors[MASK], tensors.get(HIDDEN), None
            if hidden is None:
                cached = [tensor for name, tensor in tensors.items() if name.startswith(PAST)]
                past = EncoderDecoderCache([tuple(cached[at : at + 4]) for at in range(0, len(cached), 4)])
                hidden = torch.zeros(*mask.shape, width)  # not read: the keys of the encoder are in the past
            result = model(
                attention_mask=mask,
                decoder_input_ids=tensors[TOKENS],
                encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
                past_key_values=past,
                use_cache=True,
                return_dict=True,
            )
            cache, present = result.past_key_values, []
            layers = zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=True)
            for own, cross in layers:
                present += [own.keys, own.values, *([cross.keys, cross.values] if past is None else [])]
            return (result.logits, *present)

    def part(module: Any, feeds: Sequence[Feed], outputs: Sequence[str], axes: Any, example: int) -> Part:
        inputs = {name: torch.from_numpy(array) for name, array in feeds[example].items()}
        subject = TorchModel(module.eval(), inputs, tuple(outputs), axes)
        return Part(subject, Sample(feeds, conversion.run(subject, feeds)))

    row, new = {0: BATCH, 1: SOURCE}, {0: BATCH, 1: TARGET}
    hidden = "last_hidden_state"
    encoder_subject = TorchModel(
        Encoder().eval(),
        {name: torch.from_numpy(texts[1][name]) for name in TEXT},
        (hidden,),
        dict.fromkeys((*TEXT, hidden), row),
    )
    states = [outputs[hidden] for outputs in conversion.run(encoder_subject, texts)]
    width = states[0].shape[-1]
    expected = [{hidden: state} for state in states]
    encoder_sample = Sample(texts, expected, frozenset({hidden}), golden.feeds_of(texts, width))

    generator = np.random.default_rng(samples.SEED)

    def tokens(text: Feed, count: int) -> Any:
        return generator.choice(text["input_ids"].reshape(-1), (len(text["input_ids"]), count))

    pairs = [(texts[1], states[1]), (texts[0], states[0]), (texts[1], states[1])]
    feeds = [
        {MASK: text["attention_mask"], TOKENS: tokens(text, count), HIDDEN: state}
        for (text, state), count in zip(pairs, LENGTHS, strict=True)
    ]
    with torch.no_grad():
        layers = len(Decoder()(**{name: torch.from_numpy(array) for name, array in feeds[0].items()})) // 4
    names = [
        f"{n}.{side}.{kind}"
        for n in range(layers)
        for side in (DECODER, ENCODER)
        for kind in ("key", "value")
    ]
    presents = [f"{PRESENT}{name}" for name in names]
    sizes = {DECODER: TARGET, ENCODER: SOURCE}
    axes = {MASK: row, TOKENS: new, HIDDEN: row, "logits": new}
    axes |= {f"{PRESENT}{name}": {0: BATCH, 2: sizes[name.split(".")[1]]} for name in names}
    decoder = part(Decoder(), feeds, ("logits", *presents), axes, 0)

    later: list[Feed] = [
        {
            MASK: feed[MASK],
            TOKENS: feed[TOKENS][:, :1],
            **{f"{PAST}{name}": got[f"{PRESENT}{name}"] for name in names},
        }
        for feed, got in zip(feeds, decoder.sample.expected, strict=True)
    ]
    own = [name for name in names if name.split(".")[1] == DECODER]
    sizes = {DECODER: EARLIER, ENCODER: SOURCE}
    axes = {MASK: row, TOKENS: {0: BATCH}, "logits": {0: BATCH}}
    axes |= {f"{PAST}{name}": {0: BATCH, 2: sizes[name.split(".")[1]]} for name in names}
    axes |= {f"{PRESENT}{name}": {0: BATCH, 2: f"{EARLIER} + 1"} for name in own}
    following = part(Decoder(), later, ("logits", *(f"{PRESENT}{name}" for name in own)), axes, 0)
    return {ENCODER: Part(encoder_subject, encoder_sample), DECODER: decoder, NEXT: following}

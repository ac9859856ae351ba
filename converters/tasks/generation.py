"""Tasks of models that generate text: encoder-decoders from texts, speech or images, and causal language models.

Files and tensors have Optimum's and Transformers.js's names (see `greedy`). The graphs are published only if, run in ONNX
Runtime alone, they generate the same tokens as the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from onnxreg.converters.passes import samples
from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.merge_decoders import PAST, PRESENT, SWITCH
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime.sessions import silent_transformers
from onnxreg.converters.source.location import locate
from onnxreg.converters.source.source_files import taking_part
from onnxreg.converters.tasks import heads
from onnxreg.converters.tasks.checkpoint import located_source, read_config, require_weights
from onnxreg.converters.tasks.greedy import (
    DECODER,
    ENCODER,
    GENERATORS,
    HIDDEN,
    MASK,
    MERGED,
    NEXT,
    STAGES,
    TOKENS,
    Generator,
)
from onnxreg.converters.tasks.processed import Processor
from onnxreg.converters.tasks.saved import Graphs, LoadedCheckpoint, Saved, described, module_of, part_of
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Part, Task
from onnxreg.converters.tasks.text import REQUIRED, TextOptions, longest, sample_feeds
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

STATES = "last_hidden_state"
BATCH, SOURCE, TARGET, NEW = (
    "batch_size",
    "encoder_sequence_length",
    "decoder_sequence_length",
    "sequence_length",
)
EARLIER = f"past_{TARGET}"
LENGTHS = (3, 1, 7)
"""The number of decoder tokens in each sample of the decoder."""
INPUTS = (*REQUIRED, "position_ids")
SIZES = ((2, 5, 3), (1, 0, 6), (3, 9, 1))
"""(rows, earlier tokens, new tokens) of each sample of a causal decoder; of several rows, the first begins with padding."""
STEPS = 20
"""The number of tokens that a proof generates for each input."""
TIE = 1e-3
"""Two logits that differ by at most this share of the largest logit are equal but for rounding."""
Axes = Mapping[str, Mapping[int, str]]


class Seq2Seq(Saved):
    """Task of encoder-decoders of texts. Graphs: encoder, decoder, decoder with past keys and values, both decoders merged."""

    Options: ClassVar[type[PassParams]] = TextOptions
    exporter, members, merged = "TransformersExport", STAGES, {MERGED: (DECODER, NEXT)}

    def encoder(self, checkpoint: LoadedCheckpoint, directory: Path) -> tuple[Part, Graphs]:
        """Make the part of the encoder: one row, a batch, and a row of another size. Return also what to publish about it."""
        length = longest(int(self.options.max_seq_length), checkpoint.model)
        feeds = sample_feeds(checkpoint.tokenizer, checkpoint.config, REQUIRED, length)
        axes = {name: {0: BATCH, 1: SOURCE} for name in (*REQUIRED, STATES)}
        part = part_of(checkpoint.model.get_encoder(), feeds, axes, (STATES,), has_golden=True)
        return part, Graphs({}, REQUIRED, length)

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        model = checkpoint.model
        settings = (model.generation_config, checkpoint.config)
        starts = (getattr(one, "decoder_start_token_id", None) for one in settings)
        start = next((token for token in starts if isinstance(token, int)), None)
        if start is None:
            message = "the checkpoint has no decoder_start_token_id, with which an answer begins"
            raise InputError(message, "save the model again with one")
        encoder, graphs = self.encoder(checkpoint, directory)
        proof = Proof([answer_of(model, feed, start) for feed in encoder.feeds[:2]])
        return replace(graphs, parts={ENCODER: encoder, **decoders(model, encoder)}, proof=proof)


class ProcessedSeq2Seq(Seq2Seq):
    """Task of encoder-decoders from sounds or images to text. The encoder's input is the result of the saved processor."""

    Options = PassParams

    def encoder(self, checkpoint: LoadedCheckpoint, directory: Path) -> tuple[Part, Graphs]:
        own = Processor(checkpoint.directory, self.head.modality, self.trust_remote_code)
        sizes = {0: BATCH, 1: "num_samples"}
        part = own.part(checkpoint.model.get_encoder(), sizes, {STATES: (BATCH, SOURCE)})
        with silent_transformers():
            own.processor.save_pretrained(directory)
        return part, Graphs({}, REQUIRED, fields=own.contract())


def decoder_of(model: Any, encoder: Part) -> Any:
    """Wrap the decoder. With past keys and values in place of hidden states, its outputs omit the encoder's keys and values."""
    import torch
    from transformers import EncoderDecoderCache

    with torch.no_grad():
        outputs = type(model.get_encoder()(**encoder.start.inputs, return_dict=True))

    width = encoder.expected[0][STATES].shape[-1]

    def decode(**tensors: Any) -> Any:
        hidden, past = tensors.get(HIDDEN), None
        mask = {"attention_mask": tensors[MASK]} if MASK in tensors else {}
        if hidden is None:
            cached = [tensor for name, tensor in tensors.items() if name.startswith(PAST)]
            past = EncoderDecoderCache([tuple(cached[at : at + 4]) for at in range(0, len(cached), 4)])
            rows, size = cached[2].shape[0], cached[2].shape[2]
            hidden = torch.zeros(rows, size, width)  # not read: the keys of the encoder are in the past
        result = model(
            **mask,
            decoder_input_ids=tensors[TOKENS],
            encoder_outputs=outputs(last_hidden_state=hidden),
            past_key_values=past,
            use_cache=True,
            return_dict=True,
        )
        cache, present = result.past_key_values, []
        layers = zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=True)
        for own, cross in layers:
            present += [own.keys, own.values, *([cross.keys, cross.values] if past is None else [])]
        return (result.logits, *present)

    return module_of(decode, model=model)


def decoders(model: Any, encoder: Part) -> dict[str, Part]:
    """Make the part of each decoder; its sample has the outputs of the graph that runs before it."""
    import numpy as np
    import torch

    module = decoder_of(model, encoder)
    generator, vocabulary = np.random.default_rng(samples.SEED), model.get_input_embeddings().num_embeddings
    feeds: list[Feed] = []
    for number, count in zip((1, 0, 1), LENGTHS, strict=True):
        source, states = encoder.feeds[number], encoder.expected[number][STATES]
        mask = {MASK: source["attention_mask"]} if "attention_mask" in source else {}
        ids = source[TOKENS].reshape(-1) if TOKENS in source else vocabulary
        feeds.append({**mask, TOKENS: generator.choice(ids, (len(states), count)), HIDDEN: states})
    with torch.no_grad():
        layers = len(module(**{name: torch.from_numpy(array) for name, array in feeds[0].items()})) // 4
    kinds = [f"{side}.{kind}" for side in (DECODER, ENCODER) for kind in ("key", "value")]
    names = [f"{layer}.{kind}" for layer in range(layers) for kind in kinds]
    own = [name for name in names if f".{DECODER}." in name]

    def caches(prefix: str, size: str, names: Sequence[str] = names) -> dict[str, dict[int, str]]:
        return {f"{prefix}{name}": {0: BATCH, 2: size if name in own else SOURCE} for name in names}

    row, new = {0: BATCH, 1: SOURCE}, {0: BATCH, 1: TARGET}
    axes = {MASK: row, TOKENS: new, HIDDEN: row, "logits": new, **caches(PRESENT, TARGET)}
    first = part_of(module, feeds, axes, ("logits", *caches(PRESENT, TARGET)))
    later: list[Feed] = [
        {
            **{name: array for name, array in feed.items() if name == MASK},
            TOKENS: feed[TOKENS][:, :1],
            **{f"{PAST}{name}": states[f"{PRESENT}{name}"] for name in names},
        }
        for feed, states in zip(feeds, first.expected, strict=True)
    ]
    present = caches(PRESENT, f"{EARLIER} + 1", own)
    axes = {MASK: row, TOKENS: {0: BATCH}, "logits": {0: BATCH}, **caches(PAST, EARLIER), **present}
    following = part_of(module, later, axes, ("logits", *present))

    both, expected = list[Feed](), [*first.expected]
    for feed in feeds:
        rows = [0] * len(feed[TOKENS])
        empty = {name: array[rows][:, :, :0] for name, array in later[1].items() if name.startswith(PAST)}
        both.append({**feed, **empty, SWITCH: np.array([False])})
    for feed, then, result in zip(feeds, later, following.expected, strict=True):
        both.append({HIDDEN: feed[HIDDEN], **then, SWITCH: np.array([True])})
        expected.append({**{f"{PRESENT}{name}": then[f"{PAST}{name}"] for name in names}, **result})
    return {DECODER: first, NEXT: following, MERGED: Part(None, both, expected)}


class CausalDecoder(Saved):
    """Task of causal language models for any runtime, as one graph with a cache of keys and values.

    Inputs: `input_ids` (the new tokens), `attention_mask`, `position_ids`, and `past_key_values.N.key` and `.value` of earlier
    tokens, empty for a prompt. Outputs: `logits`, `present.N.key` and `.value`.
    """

    exporter = "TransformersExport"
    Options = TextOptions

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        """Make the module, and samples of several sizes; the module itself computes the keys and values of earlier tokens."""
        import numpy as np
        import torch
        from transformers import DynamicCache

        model = checkpoint.model
        length = longest(int(self.options.max_seq_length), model)
        tokens = sample_feeds(checkpoint.tokenizer, checkpoint.config, REQUIRED, length)[1]["input_ids"]

        def decode(**tensors: Any) -> Any:
            cached = [tensor for name, tensor in tensors.items() if name.startswith(PAST)]
            # of all tokens in every layer, even with a sliding window
            cache = DynamicCache([tuple(cached[at : at + 2]) for at in range(0, len(cached), 2)])
            plain = {name: tensors[name] for name in INPUTS}
            result = model(**plain, past_key_values=cache, use_cache=True, return_dict=True)
            layers = result.past_key_values.layers
            return (result.logits, *(state for layer in layers for state in (layer.keys, layer.values)))

        def feed(ids: Any, mask: Any) -> dict[str, Any]:
            """Make the inputs for new tokens; positions count only the tokens that the mask keeps."""
            positions = (mask.cumsum(1) - 1).clip(0)[:, -ids.shape[1] :]
            return dict(zip(INPUTS, (ids, mask, positions), strict=True))

        module, feeds = module_of(decode, model=model), list[Feed]()
        ids = np.resize(tokens.reshape(-1), (3, 16))
        for rows, earlier, new in SIZES:
            mask = np.ones((rows, earlier + new), np.int64)
            mask[0, :2] = rows == 1
            least = max(earlier, 1)
            plain = feed(ids[:rows, :least], mask[:, :least])
            with torch.no_grad():
                _, *past = module(**{name: torch.from_numpy(array) for name, array in plain.items()})
            names = [f"{layer}.{kind}" for layer in range(len(past) // 2) for kind in ("key", "value")]
            states = zip(names, past, strict=True)
            past_feed = {f"{PAST}{name}": state[:, :, :earlier].numpy() for name, state in states}
            feeds.append({**feed(ids[:rows, earlier : earlier + new], mask), **past_feed})
        before, total = f"past_{NEW}", f"past_{NEW} + {NEW}"
        axes = {name: {0: BATCH, 1: NEW} for name in ("input_ids", "position_ids", "logits")}
        axes |= {"attention_mask": {0: BATCH, 1: total}}
        axes |= {f"{PAST}{name}": {0: BATCH, 2: before} for name in names}
        axes |= {f"{PRESENT}{name}": {0: BATCH, 2: total} for name in names}
        part = part_of(module, feeds, axes, ("logits", *(f"{PRESENT}{name}" for name in names)))
        prompt = dict(zip(REQUIRED, (tokens[:, :6], np.ones_like(tokens[:, :6])), strict=True))
        return Graphs({"": part}, INPUTS, length, proof=Proof([answer_of(model, prompt)]))


class TextGeneration(Task):
    """Task of causal language models for the pass `ModelBuilder`, whose graph is for onnxruntime-genai.

    The pass reads the checkpoint; the task itself loads nothing.
    """

    exporter = "ModelBuilder"

    def find(self, source: str) -> LocatedSource:
        location = locate(source)
        directory = location.directory
        config = read_config(directory)
        if heads.head_of(config) is not heads.DECODER:
            message = (
                f"not a causal language model: config.json says {str(config.get('architectures'))[:200]}"
            )
            raise InputError(message, "text-generation exports decoders such as LlamaForCausalLM")
        require_weights(directory)
        return located_source(location, taking_part(directory, code=False))

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        fields = described(self.id, source.location, read_config(source.location).get("model_type"))
        return ExportSubject(source.record(name), {"": Part(source.location)}, fields=fields)


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
                        heads.OPTIMUM,
                    )
                before = expected[:, None]
        return float(f"{np.concatenate(equal).mean():.6g}")

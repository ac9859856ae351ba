"""Tasks of models that generate text, and greedy generation by their graphs in ONNX Runtime.

Graphs are published only if they generate the same tokens as the model. Names are as in Optimum and Transformers.js:

| member | file | inputs, to outputs |
|---|---|---|
| `encoder` | `encoder_model.onnx` | a text or a sound, to its hidden states |
| `decoder` | `decoder_model.onnx` | hidden states and the first tokens of the answer, to logits, keys and values |
| `decoder_with_past` | `decoder_with_past_model.onnx` | one more token, keys and values, to logits, and the decoder's keys and values |
| `decoder_merged` | `decoder_model_merged.onnx` | both decoders, switched by `use_cache_branch` |

A model that generates a text from images and texts (`ImageTextDecoder`) has other graphs.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

from onnxreg.converters.passes import samples
from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.conversion import module_of
from onnxreg.converters.passes.merge_decoders import PAST, PRESENT, SWITCH
from onnxreg.converters.passes.model_builder import GRAPH, step_inputs
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime.golden import magnitude
from onnxreg.converters.runtime.sessions import load_session, silent_transformers
from onnxreg.converters.source.source_files import GENAI_CONFIG, GENERATION_CONFIG, read_object
from onnxreg.converters.tasks.checkpoint import (
    Graphs,
    LoadedCheckpoint,
    Saved,
    described,
    part_of,
    read_config,
)
from onnxreg.converters.tasks.processed import Processor
from onnxreg.converters.tasks.task import OPTIMUM, ExportSubject, LocatedSource, Part
from onnxreg.converters.tasks.text import REQUIRED, TextOptions, longest, sample_feeds
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

ENCODER, DECODER, NEXT, MERGED = "encoder", "decoder", "decoder_with_past", "decoder_merged"
STAGES = {
    ENCODER: "encoder_model.onnx",
    DECODER: "decoder_model.onnx",
    NEXT: "decoder_with_past_model.onnx",
    MERGED: "decoder_model_merged.onnx",
}
EMBED, VISION = "embed_tokens", "vision_encoder"
GENERATORS = ((ENCODER, MERGED), (ENCODER, DECODER, NEXT), (EMBED, VISION, DECODER))
"""The sets of graphs that generate text together. The last set also reads images."""
EMBEDS, FEATURES = "inputs_embeds", "image_features"
HIDDEN, MASK, TOKENS = "encoder_hidden_states", "encoder_attention_mask", "input_ids"
MAX_NEW_TOKENS, MOST = 256, 4096
"""The default number of new tokens (as in pipelines of transformers), and the maximum that a request may ask for."""
POSITIONS = ("max_target_positions", "max_position_embeddings", "n_positions")
"""The keys of config.json that may hold the maximum number of tokens of a decoder."""
Tokens = tuple[int, ...]
STATES = "last_hidden_state"
BATCH, NEW = "batch_size", "sequence_length"
SOURCE, TARGET = "encoder_sequence_length", "decoder_sequence_length"
EARLIER = f"past_{TARGET}"
LENGTHS = (3, 1, 7)
INPUTS = (*REQUIRED, "position_ids")
SIZES = ((2, 5, 3), (1, 0, 6), (3, 9, 1))
"""The rows, earlier tokens and new tokens of each sample of a causal decoder. Row 0 of several rows is padded."""
STEPS = 20
TIE = 1e-3  # two logits are equal if they differ by at most this share of the largest logit


class Seq2Seq(Saved):
    exporter = "TorchScriptExport"
    Options: ClassVar[type[PassParams]] = TextOptions
    members, merged = STAGES, {MERGED: (DECODER, NEXT)}

    def encoder(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        """Make the part `encoder`. Its samples are a row, a batch, and a row of another size."""
        length = longest(int(self.options.max_seq_length), checkpoint.model)
        feeds = sample_feeds(checkpoint.tokenizer, checkpoint.config, REQUIRED, length)
        axes = {name: {0: BATCH, 1: SOURCE} for name in (*REQUIRED, STATES)}
        part = part_of(checkpoint.model.get_encoder(), feeds, axes, (STATES,), has_golden=True)
        return Graphs({ENCODER: part}, REQUIRED, length)

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        import torch

        model = checkpoint.model
        settings = (model.generation_config, checkpoint.config)
        starts = (getattr(one, "decoder_start_token_id", None) for one in settings)
        start = next((token for token in starts if isinstance(token, int)), None)
        if start is None:
            message = "the checkpoint has no decoder_start_token_id, with which an answer begins"
            raise InputError(message, "save the model again with one")
        kinds: list[Any] = []
        hook = model.get_encoder().register_forward_hook(lambda *result: kinds.append(type(result[-1])))
        graphs = self.encoder(checkpoint, directory)
        hook.remove()
        encoder, states = graphs.parts[ENCODER], kinds[-1]
        answers = []
        for feed, output in zip(encoder.feeds[:2], encoder.expected, strict=False):
            hidden = states(last_hidden_state=torch.from_numpy(output[STATES]))
            answers.append(answer_of(model, feed, start, encoder_outputs=hidden))
        parts = {**graphs.parts, **decoders(model, encoder, states)}
        return replace(graphs, parts=parts, proof=partial(prove, answers))


class ProcessedSeq2Seq(Seq2Seq):
    """The task of encoder-decoders from sounds or images to text."""

    Options = PassParams

    def encoder(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        own = Processor(checkpoint.directory, self.head.modality, self.trust_remote_code)
        sizes, fields = {0: BATCH, 1: "num_samples"}, own.contract()
        own.rows = own.rows[:3]  # a run takes a second
        part = own.part(checkpoint.model.get_encoder(), sizes, {STATES: (BATCH, SOURCE)})
        with silent_transformers():
            own.processor.save_pretrained(directory)
        return Graphs({ENCODER: part}, REQUIRED, fields=fields)


def decoder_of(model: Any, states: Callable[..., Any], width: int) -> Any:
    """Return a torch module that runs the decoder, and returns its logits and its KV cache.

    The module returns the encoder's keys and values only if it gets no KV cache. `states` is the class of the encoder's
    output, and `width` the size of the last axis of hidden states.
    """
    import torch
    from transformers import EncoderDecoderCache

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
            encoder_outputs=states(last_hidden_state=hidden),
            past_key_values=past,
            use_cache=True,
            return_dict=True,
        )
        cache, present = result.past_key_values, []
        layers = zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=True)
        for own, cross in layers:
            if own.keys is None:  # MBart has room for as many layers as its encoder would have
                break
            present += [own.keys, own.values, *([cross.keys, cross.values] if past is None else [])]
        return (result.logits, *present)

    return module_of(decode, model=model)


def decoders(model: Any, encoder: Part, states: Callable[..., Any]) -> dict[str, Part]:
    """Return a `Part` for each decoder, by member. The samples for a decoder are outputs of the graph before it."""
    import numpy as np
    import torch

    module = decoder_of(model, states, encoder.expected[0][STATES].shape[-1])
    generator, vocabulary = np.random.default_rng(samples.SEED), model.get_input_embeddings().num_embeddings
    feeds: list[Feed] = []
    for number, count in zip((1, 0, 1), LENGTHS, strict=True):
        source, hidden = encoder.feeds[number], encoder.expected[number][STATES]
        mask = {MASK: source["attention_mask"]} if "attention_mask" in source else {}
        ids = source[TOKENS].reshape(-1) if TOKENS in source else vocabulary
        feeds.append({**mask, TOKENS: generator.choice(ids, (len(hidden), count)), HIDDEN: hidden})
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
    """The task of causal language models for any runtime, as a graph with a KV cache.

    The graph takes `input_ids` (the new tokens), `attention_mask`, `position_ids`, and `past_key_values.N.key` and
    `.value` for each layer N. It returns `logits`, and `present.N.key` and `.value`.
    """

    Options: ClassVar[type[PassParams]] = TextOptions

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        import numpy as np

        model = checkpoint.model
        length = longest(int(self.options.max_seq_length), model)
        tokens = sample_feeds(checkpoint.tokenizer, checkpoint.config, REQUIRED, length)[1][TOKENS]
        prompt = dict(zip(REQUIRED, (tokens[:, :6], np.ones_like(tokens[:, :6])), strict=True))
        proof, part = partial(prove, [answer_of(model, prompt)]), self.decoder(model, tokens)
        if settings := genai_settings(model, part, positions_of(checkpoint.config.to_dict()) or length):
            (directory / GENAI_CONFIG).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        return Graphs({"": part}, INPUTS, length, proof=proof)

    def decoder(self, model: Any, tokens: Any, embed: Callable[[Any], Any] | None = None) -> Part:
        """Return the decoder as a `Part`. With `embed`, it takes `inputs_embeds` in place of the `tokens`."""
        import numpy as np
        import torch
        from transformers import DynamicCache

        inputs = INPUTS if embed is None else (EMBEDS, *INPUTS[1:])

        def decode(**tensors: Any) -> Any:
            cached = [tensor for name, tensor in tensors.items() if name.startswith(PAST)]
            # this cache keeps all tokens in every layer, even with a sliding window
            cache = DynamicCache([tuple(cached[at : at + 2]) for at in range(0, len(cached), 2)])
            plain = {name: tensors[name] for name in inputs}
            result = model(**plain, past_key_values=cache, use_cache=True, return_dict=True)
            layers = result.past_key_values.layers
            return (result.logits, *(state for layer in layers for state in (layer.keys, layer.values)))

        def feed(ids: Any, mask: Any) -> dict[str, Any]:
            positions = (mask.cumsum(1) - 1).clip(0)[:, -ids.shape[1] :]
            first = ids if embed is None else embed(ids)
            return dict(zip(inputs, (first, mask, positions), strict=True))

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
        axes = {name: {0: BATCH, 1: NEW} for name in (inputs[0], "position_ids", "logits")}
        axes |= {"attention_mask": {0: BATCH, 1: total}}
        axes |= {f"{PAST}{name}": {0: BATCH, 2: before} for name in names}
        axes |= {f"{PRESENT}{name}": {0: BATCH, 2: total} for name in names}
        return part_of(module, feeds, axes, ("logits", *(f"{PRESENT}{name}" for name in names)))


class ImageTextDecoder(CausalDecoder):
    """The task of models such as SmolVLM, as the graphs that Transformers.js loads.

    | member | file | inputs, to outputs |
    |---|---|---|
    | `embed_tokens` | `embed_tokens.onnx` | `input_ids`, to `inputs_embeds` |
    | `vision_encoder` | `vision_encoder.onnx` | `pixel_values` and `pixel_attention_mask`, to `image_features` |
    | `decoder` | `decoder_model_merged.onnx` | `inputs_embeds` and the KV cache, to `logits` and the KV cache |

    The features of images take the place of the image token's embeddings, in order.
    """

    members = {EMBED: f"{EMBED}.onnx", VISION: f"{VISION}.onnx", DECODER: STAGES[MERGED]}
    tables = (EMBED,)

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        import numpy as np
        import torch

        model, config = checkpoint.model, checkpoint.config
        inner, patch, image = model.model, config.vision_config.patch_size, config.image_token_id
        length = longest(int(self.options.max_seq_length), inner.text_model)
        texts = sample_feeds(checkpoint.tokenizer, config.text_config, REQUIRED, length)
        ids = [np.where(text[TOKENS] == image, image - 1, text[TOKENS]) for text in texts]
        table = model.get_input_embeddings()

        def encode(pixel_values: Any, pixel_attention_mask: Any) -> Any:
            grid = pixel_attention_mask.flatten(0, 1).unfold(1, patch, patch).unfold(2, patch, patch)
            options = {"patch_attention_mask": grid.sum((-1, -2)) > 0, "return_dict": True}
            return inner.connector(
                inner.vision_model(pixel_values.flatten(0, 1), **options).last_hidden_state
            )

        own = Processor(checkpoint.directory, self.head.modality, self.trust_remote_code)
        pixels, masks = (
            np.concatenate([np.asarray(result[name])[0] for result in own.results])
            for name in (own.input, "pixel_attention_mask")
        )
        feeds = [
            {
                own.input: np.resize(pixels, (rows, images, *pixels.shape[1:])),
                "pixel_attention_mask": np.resize(masks, (rows, images, *masks.shape[1:])).astype(bool),
            }
            for rows, images in ((1, 1), (2, 3), (1, 2))
        ]
        batch = {0: BATCH, 1: "num_images"}
        axes = {own.input: batch, "pixel_attention_mask": batch, FEATURES: {0: f"{BATCH} * num_images"}}
        vision = part_of(module_of(encode, model=model), feeds, axes, (FEATURES,))
        per_token = {0: BATCH, 1: NEW}
        embed = part_of(
            module_of(lambda input_ids: table(input_ids), table=table),
            [{TOKENS: tokens} for tokens in ids],
            {TOKENS: per_token, EMBEDS: per_token},
            (EMBEDS,),
            True,
        )
        decoder = self.decoder(model, ids[1], lambda ids: table(torch.from_numpy(ids)).detach().numpy())
        count = vision.expected[0][FEATURES].shape[1]
        prompt = np.concatenate([ids[1][:1, :4], np.full((1, 2 * count), image), ids[1][:1, 4:9]], axis=1)
        feed = {**feeds[2], TOKENS: prompt, REQUIRED[1]: np.ones_like(prompt)}
        proof = partial(prove, [replace(answer_of(model, feed), image_token=image)])
        parts = dict(zip(self.members, (embed, vision, decoder), strict=True))
        return Graphs(parts, REQUIRED, length, proof=proof)


class TextGeneration(CausalDecoder):
    """The task of causal language models for onnxruntime-genai. The pass `ModelBuilder` loads the checkpoint."""

    exporter, runs_code = "ModelBuilder", False
    Options = PassParams

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        if source.adapter is not None:
            message = "the pass ModelBuilder takes no adapter"
            raise InputError(message, "merge the adapter with peft, and save the whole model")
        fields = described(self.id, source.location, read_config(source.location).get("model_type"))
        return ExportSubject(source.record(name), {"": Part(source.location)}, fields=fields)


def genai_settings(model: Any, decoder: Part, length: int) -> dict[str, Any] | None:
    """Return the `genai_config.json` with which onnxruntime-genai runs a decoder on at most `length` tokens.

    Every decoder gets the type `llama`, because all that differs between decoders is in the graph. Returns None for a
    model without a token that ends a text, and for a KV cache whose values have other sizes than its keys.
    """
    own, general = model.generation_config, model.config
    names = [f"{kind}_token_id" for kind in ("bos", "eos", "pad")]
    stated = {name: getattr(own, name, None) for name in names}
    tokens = {
        name: getattr(general, name, None) if token is None else token for name, token in stated.items()
    }
    ends = _several(tokens["eos_token_id"])
    shapes = [array.shape for name, array in decoder.feeds[0].items() if name.startswith(PAST)]
    keys, values = shapes[::2], shapes[1::2]
    if not ends or keys != values:
        return None
    if tokens["pad_token_id"] is None:
        tokens["pad_token_id"] = ends[0]
    past, present = (
        {f"{side}_{kind}_names": f"{prefix}%d.{kind}" for kind in ("key", "value")}
        for side, prefix in (("past", PAST), ("present", PRESENT))
    )
    graph = {
        "filename": GRAPH,
        "num_hidden_layers": len(keys),
        "num_key_value_heads": keys[0][1],
        "head_size": keys[0][3],
        "inputs": {**{name: name for name in INPUTS}, **past},
        "outputs": {"logits": "logits", **present},
    }
    words = decoder.expected[0]["logits"].shape[-1]
    given = {name: token for name, token in tokens.items() if token is not None}
    return {
        "model": {"type": "llama", "vocab_size": words, "context_length": length, **given, "decoder": graph},
        "search": {"max_length": length, "past_present_share_buffer": False},
    }


@dataclass(frozen=True)
class Answer:
    """The `tokens` (`[rows, STEPS]`) that the model generates after the `prompt` for the inputs in `feed`."""

    feed: Feed
    prompt: Any
    tokens: Any
    image_token: int = -1


def answer_of(model: Any, feed: Feed, start: int | None = None, **more: Any) -> Answer:
    """Let a model generate greedily, without its settings. `start` is a decoder's first token; `more` is passed on."""
    import torch
    from transformers import GenerationConfig, GenerationMixin

    own, pad = model.generation_config, getattr(model.config, "pad_token_id", None)
    model.generation_config = GenerationConfig(decoder_start_token_id=start, pad_token_id=pad or 0)
    inputs = {name: torch.from_numpy(array) for name, array in feed.items()}
    settings: Any = {"max_new_tokens": STEPS, "do_sample": False, "num_beams": 1, "use_cache": True}
    try:
        with silent_transformers(), torch.no_grad():  # a model's own `generate` would add rules
            ids = GenerationMixin.generate(model, **inputs, **settings, **more).numpy()
    finally:
        model.generation_config = own
    return Answer(feed, ids[:, :-STEPS], ids[:, -STEPS:])


def prove(answers: Sequence[Answer], draft: Draft) -> Draft:
    """Check that graphs generate the model's tokens, and add the check. Raise ConversionError if float32 fails."""
    family = draft.fields.get("model_family", {"members": []})
    names = {path: member["name"] for member in family["members"] for path in member["artifacts"]}
    sets = GENERATORS if names else ((DECODER,),)
    versions: dict[str, dict[str, DraftArtifact]] = {}
    for artifact in draft.artifacts:
        version = versions.setdefault(artifact.precision if names else artifact.path, {})
        version[names.get(artifact.path, DECODER)] = artifact
    checks: dict[str, list[dict[str, Any]]] = {}
    for version in versions.values():
        states: dict[int, Any] = {}  # both sets have the same encoder
        for graphs in (graphs for graphs in sets if version.keys() >= {*graphs}):
            is_exact = version[graphs[0]].precision == "float32"
            paths = {name: draft.root / version[name].path for name in graphs}
            share = _share(answers, paths, is_exact, states)
            count = sum(answer.tokens.size for answer in answers)
            check = {"name": "generation", "metric": "token_agreement", "samples": count, "value": share}
            check |= {"limit": 1.0, "verdict": "pass"} if is_exact else {"verdict": "info"}
            checks |= {version[name].path: [check] for name in graphs}

    def checked(artifact: DraftArtifact) -> DraftArtifact:
        entries = [*artifact.fields["checks"], *checks.get(artifact.path, ())]
        return replace(artifact, fields={**artifact.fields, "checks": entries})

    return replace(draft, artifacts=tuple(map(checked, draft.artifacts)))


def _share(
    answers: Sequence[Answer], paths: Mapping[str, Path], is_exact: bool, states: dict[int, Any]
) -> float:
    """Return the share of tokens that the graphs choose like the model. Each step starts from the model's tokens.

    Answers are compared in parallel. `states` keeps the encoder's outputs for each answer.
    """
    import numpy as np

    model = Generator(paths, answers[0].image_token)

    def compare(number: int) -> list[Any]:
        answer, equal = answers[number], []
        if number not in states:
            states[number] = model.encode(answer.feed)
        decode, before = model.decoding(states[number]), answer.prompt
        for step in range(answer.tokens.shape[1]):
            logits, expected = decode(before), answer.tokens[:, step]
            gap = logits.max(1) - np.take_along_axis(logits, expected[:, None], 1)[:, 0]
            is_equal = gap <= TIE * magnitude(logits)
            equal.append(is_equal)
            if is_exact and not is_equal.all():
                raise ConversionError(
                    f"{paths[model.decoder(step)].name} generates another text than the model: token {step + 1} is "
                    f"{logits.argmax(1)[~is_equal][0]}, not {expected[~is_equal][0]}",
                    OPTIMUM,
                )
            before = expected[:, None]
        return equal

    with ThreadPoolExecutor() as threads:
        equal = [*chain.from_iterable(threads.map(compare, range(len(answers))))]
    return float(f"{np.concatenate(equal).mean():.6g}")


class Rules(msgspec.Struct, frozen=True):
    """The fields of `generation_config.json` for greedy answers. `positions` is the decoder's maximum length."""

    decoder_start_token_id: int
    eos_token_id: int | Tokens | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Tokens | None = None
    suppress_tokens: Tokens | None = None
    begin_suppress_tokens: Tokens | None = None
    bad_words_ids: tuple[Tokens, ...] | None = None
    no_repeat_ngram_size: int | None = None
    repetition_penalty: float | None = None
    min_length: int | None = None
    min_new_tokens: int | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    encoder_no_repeat_ngram_size: int | None = None
    sequence_bias: Any = None
    forced_decoder_ids: tuple[tuple[int, int | None], ...] | None = None
    no_timestamps_token_id: int | None = None
    lang_to_id: dict[str, int] | None = None
    task_to_id: dict[str, int] | None = None
    language: str | None = None
    task: str | None = None
    positions: int | None = None

    @classmethod
    def read(cls, config: Mapping[str, Any], path: Path | None = None) -> Self:
        """Read the rules from a file; if there is none, from `config`. Raise InputError if they are not supported."""
        settings = config if path is None or not path.is_file() else read_object(path)
        settings = {"decoder_start_token_id": config.get("decoder_start_token_id"), **settings}
        settings["positions"] = positions_of(config)
        rules = convert({k: v for k, v in settings.items() if v is not None}, cls, GENERATION_CONFIG)
        others = ["encoder_no_repeat_ngram_size", "sequence_bias"]
        others += ["forced_decoder_ids"] if rules.no_timestamps_token_id is None else []  # not Whisper
        if other := next((name for name in others if getattr(rules, name)), None):
            message = f"the model's {GENERATION_CONFIG} has {other}, which is not followed here"
            raise InputError(message, "generate with Transformers.js or Optimum: docs/howto-speech.md")
        return rules

    def limit(self, start: int, requested: int | None) -> int:
        stated = self.max_new_tokens or (self.max_length or 0) - start
        limit = min(requested or (stated if stated > 0 else MAX_NEW_TOKENS), MOST)
        return limit if self.positions is None else max(1, min(limit, self.positions - start + 1))

    def follow(self, scores: Any, ids: list[int], start: int, is_last: bool) -> None:
        """Change the scores of the next token. `ids` are the tokens so far, with a prompt of `start` tokens."""
        import numpy as np

        def drop(tokens: Iterable[int]) -> None:
            scores[[token for token in tokens if 0 <= token < len(scores)]] = -np.inf

        def force(token: int | None) -> None:
            if token is not None and 0 <= token < len(scores):
                scores[:] = -np.inf
                scores[token] = 0.0

        penalty, size = self.repetition_penalty or 1.0, self.no_repeat_ngram_size or 0
        if penalty != 1.0:
            earlier = sorted(token for token in {*ids} if 0 <= token < len(scores))
            before = scores[earlier]
            scores[earlier] = np.where(before < 0, before * penalty, before / penalty)
        if size > 0:
            last = ids[len(ids) - size + 1 :]
            drop(ids[at + size - 1] for at in range(len(ids) - size + 1) if ids[at : at + size - 1] == last)
        for words in self.bad_words_ids or ():
            if ids[len(ids) - len(words) + 1 :] == [*words[:-1]]:
                drop(words[-1:])
        if len(ids) < max(self.min_length or 0, start + (self.min_new_tokens or 0)):
            drop(_several(self.eos_token_id))
        if len(ids) == 1:
            force(self.forced_bos_token_id)
        if is_last:
            force(next(iter(_several(self.forced_eos_token_id)), None))
        drop(self.suppress_tokens or ())
        if len(ids) == start:
            drop(self.begin_suppress_tokens or ())


def _several(value: int | Tokens | None) -> Tokens:
    return (value,) if isinstance(value, int) else value or ()


class Generator:
    """Generates text with the graphs of one set in `GENERATORS`, or with a decoder alone."""

    def __init__(self, paths: Mapping[str, Path], image_token: int = -1) -> None:
        self._paths, self._image_token = paths, image_token
        with ThreadPoolExecutor() as threads:
            self._sessions = dict(zip(paths, threads.map(load_session, paths.values()), strict=True))

    def decoder(self, step: int) -> str:
        return MERGED if MERGED in self._paths else NEXT if step and NEXT in self._paths else DECODER

    def _run(self, member: str, feed: Feed, needed: str) -> dict[str, Any]:
        outputs = samples.outputs(self._sessions[member], feed, name := self._paths[member].name)
        if needed not in outputs:
            message = f"{name} gives no {needed}, as a file for {member} does"
            raise InputError(message, "see docs/howto-speech.md")
        return outputs

    def encode(self, feed: Feed) -> dict[str, Any]:
        """Run the encoder, if there is one. Return the inputs that all steps of the decoder share."""
        if VISION in self._paths:
            return {FEATURES: self._run(VISION, feed, FEATURES)[FEATURES]}
        if ENCODER not in self._paths:
            return {}
        mask = {MASK: feed["attention_mask"]} if "attention_mask" in feed else {}
        return {HIDDEN: self._run(ENCODER, feed, STATES)[STATES], **mask}

    def decoding(self, states: Feed) -> Callable[[Any], Any]:
        """Return a function from tokens (`[rows, n]`) to the logits of the next token. `states` are from `encode`."""
        state, count = {**states}, 0

        def decode(tokens: Any) -> Any:
            nonlocal count
            member, count = self.decoder(count), count + tokens.shape[1]
            if EMBED in self._paths:
                state[EMBEDS] = self._run(EMBED, {TOKENS: tokens}, EMBEDS)[EMBEDS]
                if FEATURES in state:
                    features = state.pop(FEATURES)
                    state[EMBEDS][tokens == self._image_token] = features.reshape(-1, features.shape[-1])
            feed = step_inputs(tokens, self._sessions[member].get_inputs(), state=state)
            outputs = self._run(member, feed, "logits")
            logits = outputs.pop("logits")[:, -1]
            state.update({f"{PAST}{name.removeprefix(PRESENT)}": array for name, array in outputs.items()})
            return logits

        return decode


def positions_of(config: Mapping[str, Any]) -> int | None:
    """Return the maximum number of tokens of a decoder, including the prompt. None means no limit, as in T5."""
    decoder = config.get("decoder")  # of an encoder-decoder from images
    own = decoder if isinstance(decoder, Mapping) else config
    keys = () if "relative_attention_num_buckets" in own else POSITIONS
    return next((limit for key in keys if isinstance(limit := own.get(key), int) and limit > 0), None)


def generate(
    model: Generator, feed: Feed, rules: Rules, max_tokens: int | None = None
) -> tuple[list[int], bool]:
    """Generate an answer for a row. Return its tokens, and True if the model ended it before the limit."""
    import numpy as np

    states = model.encode(feed)
    prompt = _prompt(model, states, rules)
    limit, ends = rules.limit(len(prompt), max_tokens), _several(rules.eos_token_id)
    decode, ids, tokens = model.decoding(states), list(prompt), prompt
    for count in range(1, limit + 1):
        scores = decode(np.array([tokens]))[0].astype(np.float64)
        rules.follow(scores, ids, len(prompt), count == limit)
        tokens = [int(scores.argmax())]
        if tokens[0] in ends:
            return ids[len(prompt) :], True
        ids += tokens
    return ids[len(prompt) :], False


def _prompt(model: Generator, states: Feed, rules: Rules) -> list[int]:
    """Return the tokens before the answer: the start token and, for Whisper, those of language and task."""
    import numpy as np

    start, languages, tasks = rules.decoder_start_token_id, rules.lang_to_id, rules.task_to_id or {}
    is_stated = rules.task is not None or rules.language is not None
    prompt: list[int | None] = [start]
    if not is_stated and rules.no_timestamps_token_id is not None:
        prompt += [token for _, token in rules.forced_decoder_ids or ()]
    if rules.language is not None and languages:
        prompt[1:2] = [languages.get(rules.language, languages.get(f"<|{rules.language}|>"))]
    elif languages and (len(prompt) == 1 or prompt[1] is None):
        logits = model.decoding(states)(np.array([[start]]))[0]
        ids = sorted(token for token in languages.values() if 0 <= token < len(logits))
        prompt[1:2] = [ids[int(logits[ids].argmax())] if ids else None]
    if is_stated and not {*prompt} & {*tasks.values()}:
        prompt.append(tasks.get(rules.task or "transcribe"))
    prompt.append(rules.no_timestamps_token_id)
    return list(dict.fromkeys(token for token in prompt if token is not None))

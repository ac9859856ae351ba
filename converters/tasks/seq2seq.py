"""Encoder-decoders of texts and of speech: graphs with the names of files and tensors that Optimum writes (`greedy`).

The graphs are published only if they generate what the model generates, from their files in ONNX Runtime alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.passes import conversion
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.passes.merge_decoders import PAST, PRESENT, SWITCH
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime import golden
from onnxreg.converters.source.source_files import CONFIG, GENERATION_CONFIG, PROCESSOR, copy_scrubbed
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks.checkpoint import (
    OPTIMUM,
    LoadedCheckpoint,
    find_checkpoint,
    load_located,
    write_companions,
)
from onnxreg.converters.tasks.greedy import (
    DECODER,
    ENCODER,
    HIDDEN,
    MASK,
    MERGED,
    NEXT,
    STAGES,
    TOKENS,
    EncoderDecoder,
)
from onnxreg.converters.tasks.processed import Processor
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Part, Sample, Task, TaskOptions
from onnxreg.converters.tasks.text import TextOptions, described, longest, sample_feeds
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

TEXT, STATES = ("input_ids", "attention_mask"), "last_hidden_state"
BATCH, SOURCE, TARGET = "batch_size", "encoder_sequence_length", "decoder_sequence_length"
EARLIER = f"past_{TARGET}"
LENGTHS = (3, 1, 7)
"""The number of tokens of the answer so far, for each sample of the decoder."""
STEPS = 20
"""The number of tokens that the proof generates for each input."""
TIE = 1e-3
"""Two logits this close, as a share of the largest, are equal but for rounding."""
MAX_GOLDEN_VALUES = 2**19
"""The most values of a sound and its hidden states in golden vectors."""


@dataclass(frozen=True)
class Proof:
    """Inputs with the tokens that the model itself generates greedily, `[rows, STEPS]`; `start` is the first token."""

    start: int
    feeds: Sequence[Feed]
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
            for graphs in ((ENCODER, MERGED), (ENCODER, DECODER, NEXT)):
                if not artifacts.keys() >= {*graphs}:
                    continue
                paths = {name: draft.root / artifacts[name].path for name in graphs}
                share = self._share(paths, is_exact=precision == "float32")
                count = sum(tokens.size for tokens in self.tokens)
                check = {"name": "generation", "metric": "token_agreement", "samples": count, "value": share}
                check |= {"limit": 1.0, "verdict": "pass"} if precision == "float32" else {"verdict": "info"}
                checks |= {artifacts[name].path: check for name in graphs}

        def checked(artifact: DraftArtifact) -> DraftArtifact:
            entries = [*artifact.fields["checks"], *filter(None, [checks.get(artifact.path)])]
            return replace(artifact, fields={**artifact.fields, "checks": entries})

        return replace(draft, artifacts=tuple(map(checked, draft.artifacts)))

    def _share(self, paths: Mapping[str, Path], is_exact: bool) -> float:
        """Return the share of steps with the model's token, each after the model's own tokens so far."""
        import numpy as np

        model, equal = EncoderDecoder(paths), []
        for feed, tokens in zip(self.feeds, self.tokens, strict=True):
            decode, before = model.decoding(feed), np.full((len(tokens), 1), self.start)
            for step in range(tokens.shape[1]):
                logits, expected = decode(before), tokens[:, step]
                gap = logits.max(1) - np.take_along_axis(logits, expected[:, None], 1)[:, 0]
                is_equal = gap <= TIE * np.abs(logits).max()
                equal.append(is_equal)
                if is_exact and not is_equal.all():
                    raise ConversionError(
                        f"{model.decoder_at(step)} generates another text than the model: token {step + 1} is "
                        f"{logits.argmax(1)[~is_equal][0]}, not {expected[~is_equal][0]}",
                        OPTIMUM,
                    )
                before = expected[:, None]
        return float(f"{np.concatenate(equal).mean():.6g}")


@dataclass(frozen=True)
class EncoderInputs:
    """The inputs of an encoder: a row, a batch of rows, and a row of another size where sizes vary.

    `axes` are the dynamic axes of the inputs and of `last_hidden_state`. `length` is in tokens. `files` and `fields` are
    further companions and keys of the manifest.
    """

    feeds: Sequence[Feed]
    axes: Mapping[str, Mapping[int, str]]
    length: int
    files: tuple[DraftFile, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


class Seq2Seq(Task):
    """An encoder-decoder of texts: its encoder, its decoder, its decoder with keys and values, and both in one graph."""

    Options: ClassVar[type[TaskOptions]] = TextOptions
    exporter, members, merged = "TransformersExport", STAGES, {MERGED: (DECODER, NEXT)}

    def find(self, source: str) -> LocatedSource:
        located = find_checkpoint(source, self.head, self.trust_remote_code)
        if any((located.location / name).is_file() for name in PROCESSOR):
            message = (
                "the checkpoint reads images or sound (it has a processor), and the task gives texts alone"
            )
            raise InputError(message, OPTIMUM)
        return located

    def inputs(self, checkpoint: LoadedCheckpoint, directory: Path) -> EncoderInputs:
        """Make the inputs of the encoder; companions go into `directory`."""
        length = longest(int(self.options.max_seq_length), checkpoint.model)
        feeds = sample_feeds(checkpoint.tokenizer, checkpoint.config, TEXT, length)
        axes = {key: {0: BATCH, 1: SOURCE} for key in (*TEXT, STATES)}
        return EncoderInputs(feeds, axes, length, fields={"max_sequence_length": length})

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers")
        checkpoint = load_located(source, name, self.head, self.trust_remote_code)
        model = checkpoint.model
        settings = (model.generation_config, checkpoint.config)
        starts = (getattr(one, "decoder_start_token_id", None) for one in settings)
        start = next((token for token in starts if isinstance(token, int)), None)
        if start is None:
            message = "the checkpoint has no decoder_start_token_id, with which an answer begins"
            raise InputError(message, "save the model again with one")
        inputs = self.inputs(checkpoint, directory)
        parts = parts_of(model, inputs)
        feeds = inputs.feeds[:2]
        proof = Proof(start, feeds, [generated(model, feed, start) for feed in feeds])
        files, scrubbed = write_companions(directory, checkpoint, name, inputs.length, TEXT, {})
        files += inputs.files
        if (checkpoint.directory / GENERATION_CONFIG).is_file():
            copy_scrubbed(checkpoint.directory / GENERATION_CONFIG, directory / GENERATION_CONFIG, name)
            files.append(DraftFile("other", GENERATION_CONFIG))
        fields = described(self.id, checkpoint.directory, checkpoint.config.model_type)
        fields |= {"config_path": CONFIG, **inputs.fields}
        if checkpoint.tokenizer is not None:
            tokenizer = [file.path for file in files if file.role == "tokenizer"]
            fields["tokenizer"] = {"path": ".", "files": tokenizer}
        resolved: dict[str, Any] = {"scrubbed": scrubbed} if scrubbed else {}
        if "max_sequence_length" in fields:
            resolved["max_seq_length"] = inputs.length
        nothing = Sample((), ())
        return ExportSubject(
            checkpoint.source, nothing, None, tuple(files), fields, resolved, parts=parts, proof=proof
        )


class SpeechSeq2Seq(Seq2Seq):
    """An encoder-decoder from sound to text. The encoder takes what the checkpoint's feature extractor gives."""

    Options = TaskOptions

    def find(self, source: str) -> LocatedSource:
        located = find_checkpoint(source, self.head, self.trust_remote_code)
        if not any((located.location / name).is_file() for name in PROCESSOR):
            raise InputError(
                f"the checkpoint has no feature extractor: {PROCESSOR[0]} says how a sound becomes numbers",
                "save it beside the model: feature_extractor.save_pretrained(DIRECTORY)",
            )
        return located

    def inputs(self, checkpoint: LoadedCheckpoint, directory: Path) -> EncoderInputs:
        import numpy as np

        own, model = Processor(checkpoint.directory, "audio", self.trust_remote_code), checkpoint.model
        if own.input != model.main_input_name:
            message = f"the feature extractor gives {own.input}, and the model takes {model.main_input_name}"
            raise InputError(message, f"{PROCESSOR[0]} must be that of this model")
        one, two = own.rows[0], np.concatenate([own.rows[1], own.rows[1][:, ::-1]])
        feeds = [{own.input: array} for array in (one, two, own.rows[3])]
        is_fixed = one.shape[1:] == two.shape[1:]
        axes = {own.input: {0: BATCH}, STATES: {0: BATCH}}
        if not is_fixed:
            axes = {own.input: {0: BATCH, 1: "num_samples"}, STATES: {0: BATCH, 1: SOURCE}}
        with silent_transformers():
            own.processor.save_pretrained(directory)
        most = getattr(model.config, "max_target_positions", None)
        length = most or longest(TextOptions().max_seq_length, model)
        return EncoderInputs(feeds, axes, length, (DraftFile("other", PROCESSOR[0]),), own.contract())

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        subject = super().load(source, name, directory)
        settings = source.location / "tokenizer_config.json"
        if settings.is_file():  # its class, which Transformers.js decodes with; nothing is tokenized
            copy_scrubbed(settings, directory / settings.name, name)
        return subject


def generated(model: Any, feed: Feed, start: int) -> Any:
    """The tokens that `generate` adds greedily, `[rows, STEPS]`; rules such as forced tokens are left out."""
    import torch
    from transformers import GenerationConfig, GenerationMixin

    own, pad = model.generation_config, getattr(model.config, "pad_token_id", None)
    model.generation_config = GenerationConfig(decoder_start_token_id=start, pad_token_id=pad)
    inputs = {name: torch.from_numpy(array) for name, array in feed.items()}
    settings: Any = {"max_new_tokens": STEPS, "do_sample": False, "num_beams": 1, "use_cache": True}
    try:
        with silent_transformers(), torch.no_grad():  # a model's own `generate` adds its rules
            ids = GenerationMixin.generate(model, **inputs, **settings)
    finally:
        model.generation_config = own
    return ids[:, 1:].numpy()


def parts_of(model: Any, inputs: EncoderInputs) -> dict[str, Part]:
    """Make the module and the sample of each graph; the samples of one graph are outputs of the graph before."""
    import numpy as np
    import torch
    from transformers import EncoderDecoderCache

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model.get_encoder()

        def forward(self, **given: Any) -> Any:
            return self.encoder(**given, return_dict=True).last_hidden_state

    class Decoder(torch.nn.Module):
        """Takes keys and values in the place of hidden states; then gives only the decoder's keys and values."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **tensors: Any) -> Any:
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
                encoder_outputs=outputs_class(last_hidden_state=hidden),
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
        tensors = {name: torch.from_numpy(array) for name, array in feeds[example].items()}
        subject = TorchModel(module.eval(), tensors, tuple(outputs), axes)
        return Part(subject, Sample(feeds, conversion.run(subject, feeds)))

    with torch.no_grad():
        tensors = {name: torch.from_numpy(array) for name, array in inputs.feeds[0].items()}
        outputs_class = type(model.get_encoder()(**tensors, return_dict=True))
    encoder = part(Encoder(), inputs.feeds, (STATES,), inputs.axes, 1)
    states = [outputs[STATES] for outputs in encoder.sample.expected]
    width = states[0].shape[-1]
    first = next(iter(inputs.feeds[0].values()))
    if "attention_mask" in inputs.feeds[0]:
        per_token, cases = frozenset({STATES}), golden.feeds_of(inputs.feeds, width)
    else:
        per_token, cases = frozenset[str](), {"sound": dict(inputs.feeds[0])}
        cases = cases if first.size + states[0].size <= MAX_GOLDEN_VALUES else {}
    encoder = replace(encoder, sample=replace(encoder.sample, per_token=per_token, golden=cases))

    generator, vocabulary = np.random.default_rng(samples.SEED), model.get_input_embeddings().num_embeddings
    feeds = []
    for number, count in zip((1, 0, 1), LENGTHS, strict=True):
        rows, given = len(states[number]), inputs.feeds[number]
        mask = {MASK: given["attention_mask"]} if "attention_mask" in given else {}
        ids = given[TOKENS].reshape(-1) if TOKENS in given else vocabulary
        feeds.append({**mask, TOKENS: generator.choice(ids, (rows, count)), HIDDEN: states[number]})
    with torch.no_grad():
        layers = len(Decoder()(**{name: torch.from_numpy(array) for name, array in feeds[0].items()})) // 4
    names = [
        f"{n}.{side}.{kind}"
        for n in range(layers)
        for side in (DECODER, ENCODER)
        for kind in ("key", "value")
    ]
    presents = [f"{PRESENT}{name}" for name in names]
    row, new, sizes = {0: BATCH, 1: SOURCE}, {0: BATCH, 1: TARGET}, {DECODER: TARGET, ENCODER: SOURCE}
    axes = {MASK: row, TOKENS: new, HIDDEN: row, "logits": new}
    axes |= {f"{PRESENT}{name}": {0: BATCH, 2: sizes[name.split(".")[1]]} for name in names}
    decoder = part(Decoder(), feeds, ("logits", *presents), axes, 0)

    later: list[Feed] = [
        {
            **{name: feed[name] for name in (MASK,) if name in feed},
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

    nothing = {name: array[:, :, :0] for name, array in later[1].items() if name.startswith(PAST)}
    both: list[Feed] = []
    for feed in feeds:
        empty = {name: array[:1].repeat(len(feed[TOKENS]), 0) for name, array in nothing.items()}
        both.append({**feed, **empty, SWITCH: np.array([False])})
    both += [
        {HIDDEN: feed[HIDDEN], **then, SWITCH: np.array([True])}
        for feed, then in zip(feeds, later, strict=True)
    ]
    caches = [{f"{PRESENT}{name}": feed[f"{PAST}{name}"] for name in names} for feed in later]
    expected = [{**old, **new} for old, new in zip(caches, following.sample.expected, strict=True)]
    merged = Part(None, Sample(both, [*decoder.sample.expected, *expected]))
    return {ENCODER: encoder, DECODER: decoder, NEXT: following, MERGED: merged}

"""Load checkpoints of transformers without random weights and without code that nobody allowed.

A `TaskHead` describes the class of transformers that loads a checkpoint, and the outputs of the graph.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import msgspec

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.source.location import Location, check_inside, locate
from onnxreg.converters.source.source_files import (
    CARD,
    CONFIG,
    PROCESSOR,
    TOKENIZER,
    WEIGHTS,
    digest_files,
    read_json,
    taking_part,
    weight_files,
)
from onnxreg.converters.source.toolchain import free_memory, refuse_missing
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, LocatedSource, Modality, TaskHead
from onnxreg.converters.tasks.torch_weights import some
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import HostError, InputError, why
from onnxreg.schema.manifest.manifest import Source

ADAPTER_CONFIG = "adapter_config.json"
TOKENIZER_FILE = "tokenizer.json"
SAVED = "give the directory that save_pretrained wrote"
TRIAL_TEXTS = (
    "The patient was SEEN on 2024-03-18 by Dr. Maria O'Neill-Lindqvist (ward_7B), and can't walk.",
    "Le dossier n\u00b0 88\u20111204 na\u00efve \u00dcBER \u0130stanbul stra\u00dfe cafe\u0301 \ufb01ve \u2460 \uff26\uff35\uff2c\uff2c.",
    "  Two  spaces,\ta tab,\na line; \u6628\u65e5\u3001\u7530\u4e2d\u3055\u3093 \uc548\ub155 \u0645\u0631\u062d\u0628\u0627 \U0001f600 1234567 <x>@a.org \u200b\u00ad\u00a0x ",
)
"""Texts that tokenizers treat differently: letter case, accents, digits, spaces, scripts, equivalent characters."""

NOT_TRAINED = re.compile(
    r"(^|\.)(pooler\..*|cls\.seq_relationship\..*|position_ids|token_type_ids|(\w+_)?inv_freq|masked_bias|attn\.bias|num_batches_tracked"
    r"|(cos|sin)_cached|relative_position_index)$"
)
"""Weights without a use: a pooler's, those of an order of sentences, and buffers that some versions of transformers save."""

ONLY_FOR_TRAINING = re.compile(r"(^|\.)(masked_spec_embed|mask_token)$")
"""Weights that only a training reads, so that they may be missing."""

COUNTS, MAX_COUNT = re.compile("(layers?|depths?|blocks|stages|experts)$"), 1_000
"""Keys of config.json that count the parts of a model, and the most parts of a kind."""
PARAMETER_BYTES = 12
"""Memory for each number of a model: in the model, in its graph, and in the file that is written."""

PER_ROW = ("batch",)
PER_TOKEN = ("batch", "sequence")
PER_FRAME = ("batch", "frames")
ENCODER_ALONE, OPTIMUM = (
    "export its encoder: --task feature-extraction",
    "export it with Optimum, then reg import the directory",
)


def _elsewhere(
    task: str, *suffixes: str, modality: Modality = "text", aliases: tuple[str, ...] = ()
) -> TaskHead:
    return TaskHead(task, suffixes, way=OPTIMUM, modality=modality, aliases=aliases)


WAVE = {1: "sequence"}
# fmt: off
ENCODER = TaskHead("feature-extraction", "", "an encoder", {"last_hidden_state": PER_TOKEN}, aliases=("default",))
VECTORS = TaskHead("pooling", "", "an encoder", {"embeddings": PER_ROW}, aliases=(
    "embedding", "embeddings", "text-embedding", "sentence-embedding", "sentence-embeddings", "sentence-similarity", "similarity",
))
SPANS = TaskHead(
    "question-answering", "ForQuestionAnswering", "a question answerer",
    {"start_logits": PER_TOKEN, "end_logits": PER_TOKEN}, aliases=("qa", "extractive-question-answering"),
)
TEXTS = TaskHead(
    "text-classification", "ForSequenceClassification", "a text classifier", {"logits": PER_ROW}, labelled=True, aliases=(
        "sequence-classification", "sentiment-analysis", "zero-shot-classification", "text-ranking", "reranking",
    ),
)
TOKENS = TaskHead(
    "token-classification", "ForTokenClassification", "a token classifier", {"logits": PER_TOKEN}, labelled=True,
    aliases=("ner", "named-entity-recognition"),
)
MASKED = TaskHead(
    "fill-mask", "ForMaskedLM", "a masked language model", {"logits": PER_TOKEN}, aliases=("masked-lm",),
)
IMAGES = TaskHead(
    "image-classification", "ForImageClassification", "an image classifier", {"logits": PER_ROW}, labelled=True,
    modality="image",
)
IMAGE_FEATURES = TaskHead(
    "image-feature-extraction", "", "an image encoder", {"last_hidden_state": PER_ROW}, modality="image",
    aliases=("image-embedding", "image-embeddings"),
)
DEPTH = TaskHead(
    "depth-estimation", "ForDepthEstimation", "a depth estimator", {"predicted_depth": ("batch", "height", "width")},
    modality="image", axes={2: "height", 3: "width"},
)
SEGMENTS = TaskHead(
    "image-segmentation", "ForSemanticSegmentation", "a segmenter of images", {"logits": PER_ROW}, labelled=True,
    aliases=("semantic-segmentation",), modality="image",
)
OBJECTS = TaskHead(
    "object-detection", "ForObjectDetection", "an object detector", {"logits": PER_ROW, "pred_boxes": PER_ROW},
    labelled=True, modality="image", axes={2: "height", 3: "width"},
)
TOWERS = TaskHead(
    "zero-shot-image-classification", ("CLIPModel", "SiglipModel", "Siglip2Model"), "a model of images and texts", auto="",
    modality="image",
)
SOUND_TOWERS = TaskHead(
    "zero-shot-audio-classification", "ClapModel", "a model of sounds and texts", auto="", modality="audio",
)
CTC = TaskHead(
    "automatic-speech-recognition", "ForCTC", "a speech recognizer", {"logits": PER_FRAME}, modality="audio", axes=WAVE,
    aliases=("asr", "speech-recognition"),
)
SOUNDS = TaskHead(
    "audio-classification", ("ForAudioClassification", "ForSequenceClassification"), "an audio classifier",
    {"logits": PER_ROW}, labelled=True, auto="ForAudioClassification", modality="audio", axes=WAVE,
)
AUDIO_FEATURES = TaskHead(
    "audio-feature-extraction", "", "an audio encoder", {"last_hidden_state": PER_FRAME}, modality="audio", axes=WAVE,
)
DECODER = TaskHead(
    "text-generation", ("ForCausalLM", "LMHeadModel"), "a causal language model", auto="ForCausalLM",
    aliases=("causal-lm", "causal-lm-with-past", "text-generation-with-past"),
)
SEQ2SEQ = TaskHead(
    "text2text-generation", ("ForConditionalGeneration", "MTModel"), "an encoder-decoder of texts", auto="ForSeq2SeqLM",
    aliases=("seq2seq-lm", "summarization", "text2text-generation-with-past", "translation"),
)
SPEECH = TaskHead(
    "automatic-speech-recognition", "ForConditionalGeneration", "an encoder-decoder from sound to text", auto="ForSpeechSeq2Seq",
    modality="audio",
)
IMAGE_TEXTS = TaskHead(
    "image-to-text", "VisionEncoderDecoderModel", "an encoder-decoder from images to text", auto="ForImageTextToText",
    modality="image",
)
HEADS = (
    _elsewhere("table-question-answering", "TapasForQuestionAnswering"), _elsewhere("decision", "DecisionTransformerModel"),
    _elsewhere("mask-generation", "SamModel", "Sam2Model", modality="image"),
    _elsewhere("zero-shot-object-detection", "OwlViTForObjectDetection", "Owlv2ForObjectDetection", modality="image"),
    _elsewhere("text-to-audio", "VitsModel", "ForTextToWaveform", "ForTextToSpectrogram", aliases=("text-to-speech",)),
    SPANS, IMAGES, TEXTS, TOKENS, MASKED, SEQ2SEQ, DECODER,
    DEPTH, SEGMENTS, OBJECTS, TOWERS, SOUND_TOWERS, CTC, SOUNDS, TaskHead("pretraining", "ForPreTraining", way=ENCODER_ALONE),
    _elsewhere("multiple-choice", "ForMultipleChoice"),
    SPEECH, IMAGE_TEXTS,
    _elsewhere("image-text-to-text", "ForConditionalGeneration", "EncoderDecoderModel", modality="image", aliases=(
        "any-to-any", "visual-question-answering", "vqa",
    )),
    _elsewhere("document-question-answering", "ForDocumentQuestionAnswering", modality="image"),
    _elsewhere("image-segmentation", "ForUniversalSegmentation", "ForInstanceSegmentation", "ForSegmentation", modality="image"),
    _elsewhere("image-to-image", "ForImageSuperResolution", "ForImageToImage", modality="image"),
    _elsewhere("keypoint-detection", "ForPoseEstimation", "ForKeypointDetection", modality="image"),
    _elsewhere("keypoint-matching", "ForKeypointMatching", modality="image"),
    _elsewhere("video-classification", "ForVideoClassification", modality="image"),
)
# fmt: on
"""The kinds of checkpoints that the name of a class tells: tasks, and kinds with a way out. The first that fits counts."""
ENCODERS: Mapping[Modality, TaskHead] = {"text": ENCODER, "image": IMAGE_FEATURES, "audio": AUDIO_FEATURES}
"""The heads of classes without one, such as `ViTModel`."""


SPEAKERS = ("Whisper", "Moonshine")
"""Families that hear, also if the settings of their processor are missing."""


def head_of(config: Any, modality: Modality | None = None) -> TaskHead | None:
    """The head of the first architecture in a parsed config.json; None if no row has that architecture.

    Of several rows the one of the modality counts. Without a modality, classes without a head are unknown.
    """
    names = config.get("architectures") if isinstance(config, dict) else None
    name = str(names[0]) if isinstance(names, list) and names else ""
    modality = "audio" if name.startswith(SPEAKERS) else modality
    rows = [head for head in HEADS if name.endswith(head.suffix)]
    row = next((head for head in rows if head.modality == modality), rows[0] if rows else None)
    return ENCODERS.get(modality) if row is None and modality and name.endswith("Model") else row


def modality_of(directory: Path) -> Modality | None:
    """The modality that a checkpoint reads, by the settings of its processor or the files of a tokenizer; None without them."""
    settings = [read_json(directory / name) for name in PROCESSOR if (directory / name).is_file()]
    parts = [part for value in settings if isinstance(value, dict) for part in (value, *value.values())]
    if any(isinstance(part, dict) and "sampling_rate" in part for part in parts):
        return "audio"
    if settings:
        return "image"
    return "text" if any((directory / name).is_file() for name in TOKENIZER) else None


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A trained checkpoint in memory.

    `model` is a torch module on the CPU, in float32 and evaluation mode, with eager attention, without a cache of keys and
    values. `tokenizer` is a fast tokenizer that pads and truncates only on request, or None. `labels` are in the order
    of the logits, empty for a head without labels. `config` is the saved configuration.
    """

    model: Any
    tokenizer: Any
    config: Any
    labels: tuple[str, ...]
    source: Source
    directory: Path


def find_checkpoint(source: str, head: TaskHead, trust_remote_code: bool = False) -> LocatedSource:
    """Find and hash a checkpoint with a head; no heavy module is imported.

    The files of sentence-transformers about pooling shape `VECTORS`; all its files are companions of an `ENCODER`.

    Raises NotFoundError or RemoteError if the source cannot be read, InputError if the source is not a complete
    checkpoint of this kind, or needs code of the checkpoint that may not run.
    """
    patterns = POOLING_PATTERNS if head is VECTORS else MODULE_PATTERNS if head is ENCODER else ()
    location = locate(source, trust_remote_code, patterns)
    directory = location.directory
    config = read_config(directory)
    _refuse_own_code(directory, trust_remote_code)
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise InputError("architectures in config.json of the checkpoint is not a list of names")
    is_text = head.modality == "text" and head is not SEQ2SEQ
    if config.get("is_encoder_decoder") is True and is_text:
        message = "an encoder-decoder takes the words so far as a second input, which this task does not have"
        hint = "leave --task out; or save its encoder alone, and export that"
        raise InputError(message, hint)
    if architectures and not any(name.endswith(head.suffix) for name in architectures):
        message = f"not {head.description}: config.json says {', '.join(architectures)[:200]}"
        hint = f"export {head.description} that was trained: a head that was not gives random numbers"
        if (other := head_of(config, modality_of(directory))) is not None:
            hint = other.way or f"export it with --task {other.task}"
        raise InputError(message, hint)
    require_weights(directory)
    names = taking_part(directory, trust_remote_code)
    names += sentence_files(directory) if head is VECTORS else []
    companions = sentence_files(directory, all_modules=True) if head is ENCODER else []
    lacks_tokenizer = not any((directory / name).is_file() for name in TOKENIZER)
    return replace(located_source(location, names, companions), lacks_tokenizer=lacks_tokenizer)


def located_source(location: Location, names: Sequence[str], companions: Sequence[str] = ()) -> LocatedSource:
    """Describe a location as a source: files called `names` shape an export, `companions` are only copied."""
    directory = location.directory
    for name in (*names, *companions):
        check_inside(directory, directory / name)
    digest = digest_files(directory, names)
    card = directory / CARD
    further = [*([CARD] if card.is_file() else []), *companions]
    described = digest_files(directory, further) if further else None
    if location.hub_id is None:
        files = (directory, card, *(directory / name for name in names))
        return LocatedSource(directory, digest, described=described, files=files)
    origin = {"id": location.hub_id, "revision": location.revision, "digest": str(digest)}
    return LocatedSource(directory, digest, Source.from_json(origin), location.hub_id.lower(), described)


def load_located(
    source: LocatedSource, name: str, head: TaskHead, trust_remote_code: bool = False
) -> LoadedCheckpoint:
    """Load a located checkpoint; `name` is the published name of a directory, in place of the path.

    Raises InputError if the model is not trained, the tokenizer has no fast form or a token without an embedding, or labels
    are not numbered.
    """
    directory: Path = source.location
    model, tokenizer = load_model(directory, head, trust_remote_code), None
    if not source.lacks_tokenizer:
        with silent_transformers():
            tokenizer = load_tokenizer(directory, trust_remote_code)
        reader = getattr(model, "text_model", model)  # of a model that reads images too
        rows = getattr(reader.get_input_embeddings(), "num_embeddings", None)
        highest = max(tokenizer.get_vocab().values(), default=-1)
        if rows is not None and highest >= rows:
            message = f"the tokenizer has tokens up to {highest}, but the model has embeddings for {rows}"
            hint = "give the tokenizer that it was trained with, or resize the embeddings and train them"
            raise InputError(message, hint)
    by_number = {int(key): str(label) for key, label in model.config.id2label.items() if head.labelled}
    labels = tuple(label for _, label in sorted(by_number.items()))
    if by_number.keys() != set(range(len(labels))):
        raise InputError(f"id2label of the checkpoint does not number its labels from 0 to {len(labels) - 1}")
    if len(set(labels)) != len(labels):
        raise InputError("id2label of the checkpoint gives one label to two ids")
    config = copy.deepcopy(model.config)
    model.config.use_cache = False
    return LoadedCheckpoint(model, tokenizer, config, labels, source.record(name), directory)


def require_weights(directory: Path) -> None:
    """Raise InputError for a checkpoint directory without weights."""
    if not weight_files(directory):
        hint = "its graphs are exported already: reg import" if any(directory.glob("*.onnx")) else SAVED
        raise InputError(f"the checkpoint has no weights: neither {' nor '.join(WEIGHTS)}", hint)


def read_config(directory: Path) -> dict[str, Any]:
    """Read the config.json of a checkpoint directory.

    InputError if the file is missing or malformed, or counts more layers than a model has, which would be made for hours.
    """
    path = directory / CONFIG
    value = read_json(path) if path.is_file() else None
    if not isinstance(value, dict):
        raise InputError(f"the checkpoint has no {CONFIG} that can be read", SAVED)
    parts = [value]
    while parts:
        for key, child in parts.pop().items():
            numbers = child if isinstance(child, list) else [child]
            parts += [number for number in numbers if isinstance(number, dict)]
            if COUNTS.search(key) and any(isinstance(n, int | float) and n > MAX_COUNT for n in numbers):
                message = f"{CONFIG} of the checkpoint has {key} {str(child)[:80]}, the most is {MAX_COUNT:,}"
                raise InputError(message, "give the config.json that the model was trained with")
    return value


def check_memory(auto: Any, directory: Path, trust_remote_code: bool) -> None:
    """Raise HostError for a model that does not fit into the free memory, from the shapes that its config.json says.

    A model that cannot be described is accepted: loading it says why.
    """
    import torch
    from transformers import AutoConfig

    options: Any = {"trust_remote_code": trust_remote_code}
    size = 0
    with suppress(Exception), silent_transformers(), torch.device("meta"):  # shapes without numbers
        config = AutoConfig.from_pretrained(directory, local_files_only=True, **options)
        parameters = auto.from_config(config, **options).parameters()
        size = PARAMETER_BYTES * sum(tensor.numel() for tensor in parameters)
    if (free := free_memory()) is not None and size > free:
        raise HostError(
            f"a model of the sizes in {CONFIG} takes about {size / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free",
            "if it is that large, close other programs, or export it on a machine with more memory",
        )


def _code_names(value: Any, is_inside: bool = False) -> Iterator[str]:
    """Yield every text under an `auto_map`, at any depth: `[<repository>--]<module>.<class>`."""
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _code_names(child, is_inside or key == "auto_map")
    elif is_inside:
        yield str(value)


def _refuse_own_code(directory: Path, trusted: bool) -> None:
    """Raise InputError for code that is not trusted, or that another repository holds: the digest would not cover such code."""
    if (directory / ADAPTER_CONFIG).is_file():
        message = f"the checkpoint has an {ADAPTER_CONFIG}: it is an adapter, whose model is elsewhere"
        raise InputError(message, "merge it into its model, and save that")
    for name in (CONFIG, "tokenizer_config.json"):
        path = directory / name
        names = list(_code_names(read_json(path))) if path.is_file() else []
        if names and not trusted:
            message = f"the checkpoint wants its own code to run ({name} has an auto_map)"
            raise InputError(message, "read that code, then pass --trust-remote-code")
        if foreign := [text for text in names if "--" in text]:
            message = "the checkpoint wants code of another repository to run"
            hint = "copy that code beside the checkpoint, and name it in the auto_map without a repository"
            raise InputError(f"{message}: {name} names {foreign[0][:80]!r}", hint)


def load_model(directory: Path, head: TaskHead, trust_remote_code: bool = False) -> Any:
    """Load the torch module of a checkpoint. Raise InputError for absent weights, and for trained weights that have no use."""
    import pickle

    import torch
    import transformers

    require_weights(directory)
    auto = getattr(transformers, f"AutoModel{head.suffix if head.auto is None else head.auto}")
    check_memory(auto, directory, trust_remote_code)
    try:
        with silent_transformers():
            model, report = auto.from_pretrained(
                directory,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                weights_only=True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
            )
    except pickle.UnpicklingError as error:
        message = "the pickle checkpoint holds more than tensors and was not loaded"
        raise InputError(message, "save the weights as safetensors where they were trained") from error
    except Exception as error:
        raise _unloadable("the checkpoint", directory, error) from error
    parts = {model.base_model_prefix, *(name for name, _ in model.named_children())}
    trained = f"export {head.description} that was saved after it was trained"
    described = "config.json must describe the model that was trained; delete weights that it does not use from the file"
    for problem, hint, names in (
        ("the checkpoint has no values for", trained, [
            name for name in report["missing_keys"]
            if not ONLY_FOR_TRAINING.search(name) and (head.suffix or name.partition(".")[0] != "pooler")
        ]),
        ("the checkpoint's shapes differ from its config for", trained, [
            str(entry[0]) for entry in report["mismatched_keys"]
        ]),
        (f"{type(model).__name__} has no place for trained weights of the checkpoint:", described, [
            name for name in report["unexpected_keys"]
            if not NOT_TRAINED.search(name) and (head.suffix or name.partition(".")[0] in parts)
        ]),
    ):  # fmt: skip
        if names:
            raise InputError(f"{problem} {some(sorted(names))}", hint)
    return model.eval()


def _unloadable(part: str, directory: Path, error: Exception, hint: str = "") -> InputError:
    """The error for a part that transformers cannot load, without the path. Raise HostError if a package is absent."""
    refuse_missing(error, part)
    reason = why(error, 300).replace(str(directory), "the checkpoint")
    return InputError(
        f"{part} could not be loaded: {reason}", hint or "copy its files again, all of one model"
    )


def load_tokenizer(directory: Path, trust_remote_code: bool) -> Any:
    """Load a fast tokenizer that follows `tokenizer.json`, and pads and truncates only on request; InputError without one."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, use_fast=True, local_files_only=True, trust_remote_code=trust_remote_code
        )
        if (directory / TOKENIZER_FILE).is_file() and tokenizer.is_fast:
            tokenizer = _as_in_file(tokenizer, directory)
    except Exception as error:
        hint = f"the checkpoint must hold a {TOKENIZER_FILE}"
        raise _unloadable("the tokenizer of the checkpoint", directory, error, hint) from error
    if not tokenizer.is_fast:
        message = f"{type(tokenizer).__name__} has no fast form, so there is no {TOKENIZER_FILE} to ship"
        raise InputError(message, "convert the tokenizer with transformers and save it beside the checkpoint")
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        message = "the checkpoint has no tokenizer: nothing but special tokens is in its vocabulary"
        raise InputError(message, SAVE_TOKENIZER)
    # A padding or truncation baked into tokenizer.json would make every app run at full length.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def _as_in_file(tokenizer: Any, directory: Path) -> Any:
    """The tokenizer if it agrees with the file, else a generic tokenizer from the file, with the special tokens of both."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    file = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
    if _encoded(file) == _encoded(tokenizer.backend_tokenizer):
        return tokenizer
    plain = PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
    for name, token in tokenizer.special_tokens_map.items():
        is_in_file = isinstance(token, str) and file.token_to_id(token) is not None
        if is_in_file and getattr(plain, name, None) is None:
            setattr(plain, name, token)
    if file.post_processor is not None:
        plain.backend_tokenizer.post_processor = file.post_processor
    return plain


def _encoded(backend: Any) -> list[Any]:
    """The vocabulary of a tokenizer (of the library `tokenizers`), and the encodings of the trial texts and of a pair."""
    backend.no_padding()
    backend.no_truncation()
    normalizer = backend.normalizer
    encodings = [*map(backend.encode, TRIAL_TEXTS), backend.encode(*TRIAL_TEXTS[:2])]
    return [
        backend.get_vocab(),
        [text if normalizer is None else normalizer.normalize_str(text) for text in TRIAL_TEXTS],
        [(one.ids, one.type_ids, one.offsets) for one in encodings],
    ]


MODULES_FILE, SETTINGS_FILE = "modules.json", "config_sentence_transformers.json"
TRANSFORMER_FILES = "sentence_*_config.json"
"""Pattern of the file with a Transformer's settings; older versions of sentence-transformers named the file after the model."""
POOLING_PATTERNS = (MODULES_FILE, TRANSFORMER_FILES, SETTINGS_FILE, "*_Pooling/config.json", "*_Dense/*")
"""Patterns of the files of sentence-transformers that say how a text becomes a vector."""
MODULE_PATTERNS = (*POOLING_PATTERNS, "[0-9]*_*/config.json", "[0-9]*_*/model.safetensors")
"""Patterns of all files that sentence-transformers reads beside the model itself."""
EXPECTED = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config.text": {"method": "forward", "method_output_name": "last_hidden_state"},
    "include_prompt": True,
}
"""The values that the export supports, by name of the setting; an absent setting has this value."""
NEUTRAL = re.compile(
    r"(max_seq_length|do_lower_case|unpad_inputs|(word_)?embedding_dimension|pooling_mode\w*)"
    r"|modality_config\.(?!text$).*|\w+_(kw)?args\.(attn_implementation|cache_dir|device_map|(torch_)?dtype|low_cpu_mem_usage"
    r"|use_fast|trust_remote_code|revision|token|local_files_only|add_pooling_layer|use_safetensors)"
)
"""Settings that the task applies, that concern other inputs, or that change no vector."""
WITHOUT_WEIGHTS = {"Transformer", "Pooling", "Normalize", "Dropout"}
Mode = Literal["mean", "cls", "max", "last"]
SUPPORTED = re.compile("Transformer Pooling( Dense)*( Normalize)?")
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
_SPELLINGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}


class _Module(msgspec.Struct):
    type: str
    path: str

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


@dataclass(frozen=True)
class Dense:
    """A layer after the pooling: its weights (`linear.weight`, `linear.bias`), and the class of its activation in `torch.nn`."""

    weights: Path
    activation: str


@dataclass(frozen=True)
class SentenceConfig:
    """The sentence settings: `mode` is None if the checkpoint does not configure pooling; `max_length` is in tokens.

    `prompts` are texts to put before an input, by name; `default_prompt` names the prompt that precedes every input.
    """

    mode: Mode | None = None
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    dense: tuple[Dense, ...] = ()

    @property
    def prompt(self) -> str:
        """The default prompt, which precedes every text; "" without one."""
        return self.prompts[self.default_prompt] if self.default_prompt else ""


def sentence_files(directory: Path, all_modules: bool = False) -> list[str]:
    """List the files of sentence-transformers in a checkpoint, sorted: those that shape a vector, or those of all modules.

    Without a model at the root there are no modules. Raises InputError for a `modules.json` that cannot be read, and for a
    module without safetensors: weights in a pickle are not published.
    """
    modules, pooling_file = _modules(directory)
    names = [MODULES_FILE, SETTINGS_FILE, *(path.name for path in directory.glob(TRANSFORMER_FILES))]
    if not all_modules:
        names.append(pooling_file)
    elif "" not in (module.path for module in modules):
        return []
    for module in modules if all_modules else [module for module in modules if module.kind == "Dense"]:
        path, weights = module.path, f"{module.path}/model.safetensors"
        if path and module.kind not in WITHOUT_WEIGHTS and not (directory / weights).is_file():
            hint = "save it with sentence-transformers of today: weights in a pickle are not published"
            raise InputError(f"the module {path} ({module.kind}) has no model.safetensors", hint)
        names += [f"{path}/config.json", weights] if path else []
    return sorted(name for name in names if (directory / name).is_file())


def read_pooling(directory: Path) -> SentenceConfig:
    """Read how sentence-transformers makes a vector; return defaults if another library wrote the checkpoint.

    Raises InputError for an unsupported module, pooling or setting, and for malformed files: no setting is ignored.
    """
    modules, pooling_file = _modules(directory)
    kinds = [module.kind for module in modules if module.kind != "Dropout"]
    if (directory / MODULES_FILE).is_file() and not SUPPORTED.fullmatch(" ".join(kinds)):
        message = f"{MODULES_FILE} runs a text through {', '.join(kinds)[:200]}"
        raise InputError(f"{message}; the task does Transformer, Pooling, Dense, Normalize")
    dense = tuple(_dense(directory, module.path) for module in modules if module.kind == "Dense")
    pooling, settings = _object(directory / pooling_file), _object(directory / SETTINGS_FILE)
    transformer = next(map(_object, sorted(directory.glob(TRANSFORMER_FILES))), {})
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise InputError(f"prompts in {SETTINGS_FILE} of the checkpoint are not texts by name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise InputError(f"default_prompt_name in {SETTINGS_FILE} is {default!r}, which is not in prompts")
    shaping = {
        key: child for key, child in pooling.items() if key != "include_prompt" or any(prompts.values())
    }
    _check_settings(TRANSFORMER_FILES, transformer)
    _check_settings(SETTINGS_FILE, {"truncate_dim": settings.get("truncate_dim")})
    _check_settings(pooling_file, shaping)
    length = transformer.get("max_seq_length")
    longest = length if isinstance(length, int) and length > 0 else None
    lower = transformer.get("do_lower_case") is True
    return SentenceConfig(_mode(pooling), "Normalize" in kinds, longest, lower, prompts, default, dense)


def _dense(directory: Path, path: str) -> Dense:
    """Read a dense layer. InputError for an activation or a setting that the task does not do."""
    settings, weights = _object(directory / path / "config.json"), directory / path / "model.safetensors"
    package, _, activation = str(settings.get("activation_function", "torch.nn.Tanh")).rpartition(".")
    name = "sentence_embedding"
    shaping = {"module_input_name": name, "module_output_name": name, "use_residual": False}
    if odd := [key for key, value in shaping.items() if settings.get(key, value) not in (value, None)]:
        raise InputError(f"{odd[0]} in {path}/config.json of the checkpoint is one that the task does not do")
    if package.partition(".")[0] != "torch" or activation not in ACTIVATIONS:
        message = f"{path}/config.json of the checkpoint has the activation {activation[:80]!r}"
        raise InputError(message, f"the task does {', '.join(ACTIVATIONS)}")
    return Dense(weights, activation)


def _check_settings(file: str, settings: Mapping[str, Any]) -> None:
    """Raise InputError, naming the file, for a setting that shapes a vector and is not supported."""
    for name, value in settings.items():
        for key, child in (value if isinstance(value, dict) else {"": value}).items():
            dotted = f"{name}.{key}" if key else name
            is_off = child in (None, {}, []) or (child is False and dotted not in EXPECTED)
            if not (is_off or NEUTRAL.fullmatch(dotted) or child == EXPECTED.get(dotted)):
                hint = "pool otherwise by a recipe: task: pooling, options: {mode: mean, normalize: false}"
                message = f"{dotted} in {file} is {json.dumps(child)[:100]}, which the task does not do"
                raise InputError(message, hint)


def _modules(directory: Path) -> tuple[list[_Module], str]:
    """The modules of sentence-transformers in order, none without a `modules.json`; and the file with the pooling."""
    path, modules = directory / MODULES_FILE, list[_Module]()
    if path.is_file():
        modules = convert(read_json(path), list[_Module], f"{MODULES_FILE} of the checkpoint")
    for module in modules:
        if PurePosixPath(module.path).is_absolute() or ".." in PurePosixPath(module.path).parts:
            raise InputError(f"{MODULES_FILE} names a place outside the checkpoint: {module.path[:80]!r}")
    folder = next((module.path for module in modules if module.kind == "Pooling"), "1_Pooling")
    return modules, f"{folder}/config.json"


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path) if path.is_file() else {}
    if not isinstance(value, dict):
        raise InputError(f"{path.parent.name}/{path.name} of the checkpoint is not a JSON object")
    return value


def _mode(config: dict[str, Any]) -> Mode | None:
    """The mode of a pooling configuration: older ones have `pooling_mode_cls_token: true`, newer ones `pooling_mode: cls`."""
    newer = config.get("pooling_mode") or []
    older = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    named = [key.removeprefix("pooling_mode_") for key in older]
    named += newer if isinstance(newer, list) else [newer]
    modes: list[Any] = list(dict.fromkeys(_SPELLINGS.get(str(name), str(name)) for name in named))
    if len(modes) > 1:
        raise InputError(f"the checkpoint pools in several ways at once: {', '.join(modes)[:200]}")
    if modes and modes[0] not in get_args(Mode):
        hint = f"the task does {', '.join(get_args(Mode))}"
        raise InputError(f"the checkpoint pools by {modes[0][:80]!r}", hint)
    return next(iter(modes), None)

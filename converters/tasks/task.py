"""The contract of a task, and the kinds of transformers checkpoints (`TaskHead`)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from onnxreg.converters.passes import samples
from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.source import source_files
from onnxreg.converters.source.source_files import CONFIG, GENERATION_CONFIG, PROCESSOR, TOKENIZER
from onnxreg.converters.tasks.code import NO_CONSENT, Consent
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.formats.hub_layout import PIPELINE_TAGS
from onnxreg.schema.manifest.draft import Draft, DraftFile
from onnxreg.schema.manifest.manifest import Code, Source

SAVE_TOKENIZER = "save the tokenizer beside the model: tokenizer.save_pretrained(DIRECTORY)"
Modality = Literal["text", "image", "audio"]


@dataclass(frozen=True)
class TaskHead:
    """A kind of checkpoints. The names of their classes end with `suffix`, such as `ForTokenClassification`.

    `outputs` has the names of the first axes of each output. `axes` has the names of further axes of the input, by
    number. All these axes may be dynamic. With `labelled`, the last axis of `logits` has the labels. If no task exports
    such checkpoints, `way` says what to do instead. The class that loads a checkpoint is called `AutoModel` + `auto`
    (by default `suffix`). `copies` are further files to publish.
    """

    task: str
    suffix: str | tuple[str, ...] = ()
    description: str = ""
    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labelled: bool = False
    aliases: tuple[str, ...] = ()
    way: str = ""
    auto: str | None = None
    modality: Modality = "text"
    axes: Mapping[int, str] = field(default_factory=dict)
    copies: tuple[str, ...] = PROCESSOR


PER_ROW = ("batch",)
PER_TOKEN = ("batch", "sequence")
PER_FRAME = ("batch", "frames")
OPTIMUM = "export it with Optimum, then reg import the directory"
ADD = "export it with torch.onnx.export, then reg add the file"
_elsewhere, _alone = partial(TaskHead, way=OPTIMUM), partial(TaskHead, way=ADD)
WAVE = {1: "sequence"}
DECODED = (GENERATION_CONFIG, "tokenizer_config.json")
"""The files that are published beside a model that writes text."""
# fmt: off
ENCODER = TaskHead(
    "feature-extraction", "", "an encoder", {"last_hidden_state": PER_TOKEN}, aliases=("default",), copies=(),
)
VECTORS = TaskHead("pooling", "", "an encoder", {"embeddings": PER_ROW}, aliases=(
    "embedding", "embeddings", "text-embedding", "sentence-embedding", "sentence-embeddings",
    PIPELINE_TAGS["pooling"], "similarity",
))
SPANS = TaskHead(
    "question-answering", "ForQuestionAnswering", "a question answerer",
    {"start_logits": PER_TOKEN, "end_logits": PER_TOKEN}, aliases=("qa", "extractive-question-answering"),
)
PAGES = TaskHead(
    "document-question-answering", ("LayoutLMForQuestionAnswering", "LayoutLMv2ForQuestionAnswering", "LayoutLMv3ForQuestionAnswering"),
    "an answerer of questions about pages", SPANS.outputs, auto="ForDocumentQuestionAnswering",
)
TEXTS = TaskHead(
    "text-classification", "ForSequenceClassification", "a text classifier", {"logits": PER_ROW}, labelled=True, aliases=(
        "sequence-classification", "sentiment", "sentiment-analysis", "zero-shot-classification", "text-ranking", "reranking",
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
VIDEOS = TaskHead(
    "video-classification", "ForVideoClassification", "a classifier of videos", {"logits": PER_ROW}, labelled=True,
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
MASKS = TaskHead(
    "mask-generation", "SamModel", "a model of masks for points", auto="ForMaskGeneration", modality="image",
)
MATCHES = TaskHead(
    "keypoint-matching", "EfficientLoFTRForKeypointMatching", "a matcher of two images",
    {"matches": PER_ROW, "matching_scores": PER_ROW, "keypoints": PER_ROW}, auto="ForKeypointMatching", modality="image",
)
TOWERS = TaskHead(
    "zero-shot-image-classification", ("CLIPModel", "SiglipModel", "Siglip2Model"), "a model of images and texts", auto="",
    modality="image",
)
NAMED_OBJECTS = TaskHead(
    "zero-shot-object-detection", ("OwlViTForObjectDetection", "Owlv2ForObjectDetection"), "a detector of objects that texts name",
    auto="ForZeroShotObjectDetection", modality="image",
)
SOUND_TOWERS = TaskHead(
    "zero-shot-audio-classification", "ClapModel", "a model of sounds and texts", auto="", modality="audio",
)
CTC = TaskHead(
    "automatic-speech-recognition", "ForCTC", "a speech recognizer", {"logits": PER_FRAME}, modality="audio", axes=WAVE,
    aliases=("asr", "audio-ctc", "speech-recognition"), copies=(*PROCESSOR, *TOKENIZER),
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
    aliases=("causal-lm", "causal-lm-with-past", "decision", "text-generation-with-past"), copies=(GENERATION_CONFIG,),
)
SEQ2SEQ = TaskHead(
    "text2text-generation", ("ForConditionalGeneration", "MTModel"), "an encoder-decoder of texts", auto="ForSeq2SeqLM",
    aliases=("seq2seq-lm", "summarization", "text2text-generation-with-past", "translation"), copies=(GENERATION_CONFIG,),
)
SPEECH = TaskHead(
    "automatic-speech-recognition", "ForConditionalGeneration", "an encoder-decoder from sound to text", auto="ForSpeechSeq2Seq",
    modality="audio", aliases=("speech2seq-lm", "automatic-speech-recognition-with-past"), copies=DECODED,
)
IMAGE_TEXTS = TaskHead(
    "image-to-text", "VisionEncoderDecoderModel", "an encoder-decoder from images to text", auto="ForImageTextToText",
    modality="image", aliases=("vision2seq-lm", "image-to-text-with-past"), copies=DECODED,
)
IMAGE_CHAT = TaskHead(
    "image-text-to-text", ("SmolVLMForConditionalGeneration", "Idefics3ForConditionalGeneration"),
    "a model of images and texts that writes", auto="ForImageTextToText", modality="image", copies=(*PROCESSOR, *DECODED),
    aliases=("any-to-any", "visual-question-answering", "vqa"),
)
VOICES = TaskHead(
    "text-to-audio", "VitsModel", "a model that speaks", {"waveform": ("batch", "samples"), "sequence_lengths": PER_ROW},
    auto="ForTextToWaveform", aliases=("text-to-speech",),
)
STEPWISE = ("ForTextToSpeech", "BarkModel", "MusicgenForConditionalGeneration", "MusicgenMelodyForConditionalGeneration")
TABLES = TaskHead(
    "table-question-answering", "TapasForQuestionAnswering", "an answerer of questions about tables",
    {"logits": PER_TOKEN, "logits_aggregation": PER_ROW}, auto="ForTableQuestionAnswering", copies=TOKENIZER,
)
HEADS = (
    TABLES,
    VOICES, *(TaskHead("text-to-audio", STEPWISE, way=f"each step of its sound has something random: {OPTIMUM}", modality=kind) for kind in get_args(Modality)),
    _elsewhere("reinforcement-learning", "DecisionTransformerModel"), _alone("a decision by a head of its own", "ForDecision"),
    _alone("mask-generation", ("Sam2Model", "SamHQModel", "EdgeTamModel", "Sam3TrackerModel"), modality="image"),
    _alone("zero-shot-object-detection", ("GroundingDinoForObjectDetection", "OmDetTurboForObjectDetection"), modality="image"),
    PAGES, SPANS, IMAGES, MASKS, VIDEOS, TEXTS, TOKENS, MASKED, SEQ2SEQ, DECODER,
    DEPTH, SEGMENTS, NAMED_OBJECTS, OBJECTS, TOWERS, SOUND_TOWERS, CTC, SOUNDS, TaskHead("pretraining", "ForPreTraining", way="export its encoder: --task feature-extraction"),
    _elsewhere("multiple-choice", "ForMultipleChoice"),
    TaskHead("pooling of model2vec", "StaticModel", way="save it with sentence-transformers: StaticEmbedding.from_model2vec"),
    SPEECH, IMAGE_TEXTS, IMAGE_CHAT,
    _alone("image-text-to-text", ("ForConditionalGeneration", "EncoderDecoderModel"), modality="image"),
    _elsewhere("image-segmentation", ("ForUniversalSegmentation", "ForInstanceSegmentation", "ForSegmentation"), modality="image"),
    _elsewhere("image-to-image", ("ForImageSuperResolution", "ForImageToImage"), modality="image"),
    _elsewhere("keypoint-detection", ("ForPoseEstimation", "ForKeypointDetection"), modality="image"),
    MATCHES, TaskHead("keypoint-matching", "ForKeypointMatching", way="no exporter takes a number of keypoints that depends on the image; if you have an .onnx file: reg add", modality="image"),
)
# fmt: on
"""The kinds of checkpoints with a head, in which `head_of` searches. Some of them have no task that exports them."""
ENCODERS: Mapping[Modality, TaskHead] = {"text": ENCODER, "image": IMAGE_FEATURES, "audio": AUDIO_FEATURES}
ALIASES: Mapping[str, str] = {
    alias: head.task for head in (*HEADS, *ENCODERS.values(), VECTORS) for alias in head.aliases
}
LOADERS: Mapping[Modality, tuple[str, str]] = {
    "image": ("AutoImageProcessor", "image processor"),
    "audio": ("AutoFeatureExtractor", "feature extractor"),
}
TIMM = "pretrained_cfg"
SPEAKERS = ("Whisper", "Moonshine")  # the families whose input is sound, even without settings of a processor


def head_of(config: Any, modality: Modality | None = None) -> TaskHead | None:
    """Return the head of a config's first architecture, preferably of this `modality`; None if unknown."""
    names = config.get("architectures") if isinstance(config, dict) else None
    if not names and isinstance(config, dict) and TIMM in config:
        return IMAGE_FEATURES if config.get("num_classes") == 0 else IMAGES
    name = str(names[0]) if isinstance(names, list) and names else ""
    modality = "audio" if name.startswith(SPEAKERS) else modality
    rows = [head for head in HEADS if name.endswith(head.suffix)]
    row = next((head for head in rows if head.modality == modality), rows[0] if rows else None)
    return ENCODERS.get(modality) if row is None and modality and name.endswith("Model") else row


def modality_of(directory: Path) -> Modality | None:
    """Return the modality of a checkpoint by its processor or tokenizer; None if it has neither."""
    files = (directory / name for name in PROCESSOR)
    settings = [source_files.read_object(file) for file in files if file.is_file()]
    parts = [part for value in settings for part in (value, *value.values())]
    if any(isinstance(part, dict) and "sampling_rate" in part for part in parts):
        return "audio"
    if settings or TIMM in source_files.read_object(directory / CONFIG):
        return "image"
    return "text" if any((directory / name).is_file() for name in TOKENIZER) else None


@dataclass(frozen=True)
class Adapter:
    """An adapter of the library peft. `record` is for the manifest: the digest of its files, and its base model."""

    directory: Path
    record: Mapping[str, Any]


@dataclass(frozen=True)
class LocatedSource:
    """A source that was found and hashed, but not loaded.

    Only the task uses `location`. `digest` covers the files that affect the graphs; `described` covers files that
    affect only the manifest, such as a model card. `origin` is the source's record in a manifest. `files` are the files
    on this machine that the export reads; None if unknown. `packages` are installed packages whose code runs. `code` is
    the function that makes the module.
    """

    location: Any
    digest: Digest
    origin: Source | None = None
    described: Digest | None = None
    files: tuple[Path, ...] | None = None
    packages: tuple[str, ...] = ()
    code: Code | None = None
    lacks_tokenizer: bool = False
    adapter: Adapter | None = None

    def record(self, name: str) -> Source:
        """Return the source's record in a manifest. A source without a name gets the model's `name`."""
        return self.origin or Source.from_json({"id": name, "digest": str(self.digest)})


@dataclass
class Part:
    """A module of a source, and sample runs. Every graph of the module is compared on these runs.

    `start` is the input of the first step, such as a `TorchModel`. `feeds` are the inputs of the runs, and `expected`
    the module's outputs. Outputs in `per_token` have the axes batch and sequence first; their values for padding are
    not compared. `golden` has the inputs of golden vectors, by case. `shared` is a cache for the runs of graphs.
    """

    start: Any
    feeds: Sequence[Feed] = ()
    expected: Sequence[Mapping[str, Any]] = ()
    per_token: frozenset[str] = frozenset()
    golden: Mapping[str, Feed] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def dataset(self) -> str:
        return str(samples.digest(self.feeds))


@dataclass(frozen=True)
class ExportSubject:
    """A loaded source.

    `parts` are its modules by name; most sources have a single part, called "". `companions` are files in `directory`.
    `fields` are keys of the manifest. `resolved_options` are the effective options. Evaluations read `loaded`. `proof`
    runs all graphs of a draft together, and raises ConversionError if their results are wrong.
    """

    origin: Source
    parts: Mapping[str, Part]
    companions: tuple[DraftFile, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    resolved_options: Mapping[str, Any] = field(default_factory=dict)
    loaded: Any = None
    directory: Path = Path()
    proof: Callable[[Draft], Draft] | None = None

    @property
    def is_joint(self) -> bool:
        """True if the source has several parts, whose graphs work together."""
        return "" not in self.parts

    @property
    def part(self) -> Part:
        """The only part. If there are several, it is the part `model`, or an empty part if there is no `model`."""
        return self.parts.get("", self.parts.get("model", Part(None)))


class Task(ABC):
    """A kind of source, with typed options.

    `paths` are the options whose values are files. The other attributes are for the task's recipe. `exporter` is the
    first pass. `members` are the files of several graphs, by name. `merged` maps each member that `MergeDecoders` makes
    to its two decoders. `quantizer` turns the weights of the operators in `products` into INT8. For the members in
    `tables`, `EmbeddingQuantization` turns embedding tables into INT8 instead.
    """

    id: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    head: ClassVar[TaskHead]
    exporter: ClassVar[str]
    members: ClassVar[Mapping[str, str]] = {}
    merged: ClassVar[Mapping[str, tuple[str, str]]] = {}
    products: ClassVar[tuple[str, ...]] = ("MatMul", "Gemm")
    tables: ClassVar[tuple[str, ...]] = ()
    quantizer: ClassVar[str] = "OnnxDynamicQuantization"
    paths: ClassVar[tuple[str, ...]] = ()
    Options: ClassVar[type[PassParams]] = PassParams

    def __init__(
        self,
        directory: Path = Path(),
        trust_remote_code: bool = False,
        consent: Consent = NO_CONSENT,
        /,
        **options: Any,
    ) -> None:
        """Check the options. Paths in them are relative to `directory`. `consent` says which code may run."""
        self.directory = directory
        self.trust_remote_code = trust_remote_code
        self.consent = consent
        self.options: Any = self.Options.read(options, f"an option of task {self.id}")

    @classmethod
    def of(cls, head: TaskHead, **fields: Any) -> type[Self]:
        """Make the task's class for a head. `fields` are further attributes of the class."""
        fields |= {"__module__": cls.__module__, "id": head.task, "aliases": head.aliases, "head": head}
        return type(cls.__name__, (cls,), fields)

    def record(self, source: LocatedSource) -> dict[str, Any]:
        """Return the options as a manifest has them, with digests in place of paths."""
        value: dict[str, Any] = self.options.model_dump(mode="json")
        return value

    def seek(self, source: str) -> str | None:
        """Return a source's hub id; None if it is on this machine. Fetch nothing. Raise NotFoundError for any other."""
        return source_files.hub_id(source)

    @abstractmethod
    def find(self, source: str) -> LocatedSource:
        """Find and hash a source, without PyTorch. Raise InputError if the source does not fit this task."""

    @abstractmethod
    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        """Load a source, and write its companions into `directory`. `name` is the name of the published model.

        Raises InputError if the source is not complete and trained, and HostError if an extra is missing.
        """

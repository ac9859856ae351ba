"""The kinds of transformers checkpoints, each a `TaskHead`: its classes, how to load them, and their outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from onnxreg.converters.source.source_files import GENERATION_CONFIG, PROCESSOR, TOKENIZER, read_object

Modality = Literal["text", "image", "audio"]


@dataclass(frozen=True)
class TaskHead:
    """A kind of checkpoints. The names of its transformers classes end with `suffix`: `BertForTokenClassification`.

    `outputs` has the first axes of each output, which are dynamic; `labelled` is True if the last axis counts labels.
    `aliases` are further names that people may type. `way` says what to do with such a checkpoint if no task exports it.
    `auto` ends the name of the transformers class that loads a checkpoint; the default is `suffix`. `modality` is the kind
    of input: `text`, `image` or `audio`. `axes` names the axes of the input, without the batch, that may be dynamic.
    `has_tokens` is True if texts are read or written. `beside` are files of a checkpoint that are published, if they exist, in
    place of generated files of the same name.
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
    has_tokens: bool = True
    beside: tuple[str, ...] = PROCESSOR


PER_ROW = ("batch",)
PER_TOKEN = ("batch", "sequence")
PER_FRAME = ("batch", "frames")
OPTIMUM = "export it with Optimum, then reg import the directory"
_elsewhere = partial(TaskHead, way=OPTIMUM)
WAVE = {1: "sequence"}
DECODED = (GENERATION_CONFIG, "tokenizer_config.json")
"""The files beside a model that writes text: Transformers.js decodes with the class that the tokenizer's settings name."""
# fmt: off
ENCODER = TaskHead(
    "feature-extraction", "", "an encoder", {"last_hidden_state": PER_TOKEN}, aliases=("default",), beside=(),
)
VECTORS = TaskHead("pooling", "", "an encoder", {"embeddings": PER_ROW}, aliases=(
    "embedding", "embeddings", "text-embedding", "sentence-embedding", "sentence-embeddings", "sentence-similarity", "similarity",
))
SPANS = TaskHead(
    "question-answering", "ForQuestionAnswering", "a question answerer",
    {"start_logits": PER_TOKEN, "end_logits": PER_TOKEN}, aliases=("qa", "extractive-question-answering"),
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
    modality="image", has_tokens=False,
)
IMAGE_FEATURES = TaskHead(
    "image-feature-extraction", "", "an image encoder", {"last_hidden_state": PER_ROW}, modality="image",
    aliases=("image-embedding", "image-embeddings"), has_tokens=False,
)
DEPTH = TaskHead(
    "depth-estimation", "ForDepthEstimation", "a depth estimator", {"predicted_depth": ("batch", "height", "width")},
    modality="image", axes={2: "height", 3: "width"}, has_tokens=False,
)
SEGMENTS = TaskHead(
    "image-segmentation", "ForSemanticSegmentation", "a segmenter of images", {"logits": PER_ROW}, labelled=True,
    aliases=("semantic-segmentation",), modality="image", has_tokens=False,
)
OBJECTS = TaskHead(
    "object-detection", "ForObjectDetection", "an object detector", {"logits": PER_ROW, "pred_boxes": PER_ROW},
    labelled=True, modality="image", axes={2: "height", 3: "width"}, has_tokens=False,
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
    aliases=("asr", "speech-recognition"), has_tokens=False, beside=(*PROCESSOR, *TOKENIZER),
)
SOUNDS = TaskHead(
    "audio-classification", ("ForAudioClassification", "ForSequenceClassification"), "an audio classifier",
    {"logits": PER_ROW}, labelled=True, auto="ForAudioClassification", modality="audio", axes=WAVE, has_tokens=False,
)
AUDIO_FEATURES = TaskHead(
    "audio-feature-extraction", "", "an audio encoder", {"last_hidden_state": PER_FRAME}, modality="audio", axes=WAVE, has_tokens=False,
)
DECODER = TaskHead(
    "text-generation", ("ForCausalLM", "LMHeadModel"), "a causal language model", auto="ForCausalLM",
    aliases=("causal-lm", "causal-lm-with-past", "text-generation-with-past"), beside=(GENERATION_CONFIG,),
)
SEQ2SEQ = TaskHead(
    "text2text-generation", ("ForConditionalGeneration", "MTModel"), "an encoder-decoder of texts", auto="ForSeq2SeqLM",
    aliases=("seq2seq-lm", "summarization", "text2text-generation-with-past", "translation"), beside=(GENERATION_CONFIG,),
)
SPEECH = TaskHead(
    "automatic-speech-recognition", "ForConditionalGeneration", "an encoder-decoder from sound to text", auto="ForSpeechSeq2Seq",
    modality="audio", beside=DECODED,
)
IMAGE_TEXTS = TaskHead(
    "image-to-text", "VisionEncoderDecoderModel", "an encoder-decoder from images to text", auto="ForImageTextToText",
    modality="image", beside=DECODED,
)
HEADS = (
    _elsewhere("table-question-answering", "TapasForQuestionAnswering"), _elsewhere("decision", "DecisionTransformerModel"),
    _elsewhere("mask-generation", ("SamModel", "Sam2Model"), modality="image"),
    _elsewhere("zero-shot-object-detection", ("OwlViTForObjectDetection", "Owlv2ForObjectDetection"), modality="image"),
    _elsewhere("text-to-audio", ("VitsModel", "ForTextToWaveform", "ForTextToSpectrogram"), aliases=("text-to-speech",)),
    SPANS, IMAGES, TEXTS, TOKENS, MASKED, SEQ2SEQ, DECODER,
    DEPTH, SEGMENTS, OBJECTS, TOWERS, SOUND_TOWERS, CTC, SOUNDS, TaskHead("pretraining", "ForPreTraining", way="export its encoder: --task feature-extraction"),
    _elsewhere("multiple-choice", "ForMultipleChoice"),
    TaskHead("pooling of model2vec", "StaticModel", way="save it with sentence-transformers: StaticEmbedding.from_model2vec"),
    SPEECH, IMAGE_TEXTS,
    _elsewhere("image-text-to-text", ("ForConditionalGeneration", "EncoderDecoderModel"), modality="image", aliases=(
        "any-to-any", "visual-question-answering", "vqa",
    )),
    _elsewhere("document-question-answering", "ForDocumentQuestionAnswering", modality="image"),
    _elsewhere("image-segmentation", ("ForUniversalSegmentation", "ForInstanceSegmentation", "ForSegmentation"), modality="image"),
    _elsewhere("image-to-image", ("ForImageSuperResolution", "ForImageToImage"), modality="image"),
    _elsewhere("keypoint-detection", ("ForPoseEstimation", "ForKeypointDetection"), modality="image"),
    _elsewhere("keypoint-matching", "ForKeypointMatching", modality="image"),
    _elsewhere("video-classification", "ForVideoClassification", modality="image"),
)
# fmt: on
"""The heads that a class name identifies; some have no task that exports them (see `way`). The first that fits counts."""
ENCODERS: Mapping[Modality, TaskHead] = {"text": ENCODER, "image": IMAGE_FEATURES, "audio": AUDIO_FEATURES}
"""For each modality, the `TaskHead` of a class without a head, such as `ViTModel`."""


LOADERS: Mapping[Modality, tuple[str, str]] = {
    "image": ("AutoImageProcessor", "image processor"),
    "audio": ("AutoFeatureExtractor", "feature extractor"),
}
"""For each modality, the transformers class that loads its processor, and what messages call the processor."""
SPEAKERS = ("Whisper", "Moonshine")
"""The families whose input is always sound, even if the settings of their processor are missing."""


def head_of(config: Any, modality: Modality | None = None) -> TaskHead | None:
    """Return the head of the first architecture in a parsed config.json; None if no element of `HEADS` fits.

    If several heads fit, the head of this modality counts, else the first. For a class without a head see `ENCODERS`.
    """
    names = config.get("architectures") if isinstance(config, dict) else None
    name = str(names[0]) if isinstance(names, list) and names else ""
    modality = "audio" if name.startswith(SPEAKERS) else modality
    rows = [head for head in HEADS if name.endswith(head.suffix)]
    row = next((head for head in rows if head.modality == modality), rows[0] if rows else None)
    return ENCODERS.get(modality) if row is None and modality and name.endswith("Model") else row


def modality_of(directory: Path) -> Modality | None:
    """Return the modality of a checkpoint, from the settings of its processor, else the files of its tokenizer; else None."""
    settings = [read_object(directory / name) for name in PROCESSOR if (directory / name).is_file()]
    parts = [part for value in settings for part in (value, *value.values())]
    if any(isinstance(part, dict) and "sampling_rate" in part for part in parts):
        return "audio"
    if settings:
        return "image"
    return "text" if any((directory / name).is_file() for name in TOKENIZER) else None

"""The task of a source that no task was named for, and the ways for sources that no task takes."""

import json
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.tasks.task_catalog import choose
from onnxreg.schema.core.errors import InputError, NotFoundError, RemoteError

MODULES = [
    {"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in ("Transformer", "Pooling")
]
STATIC = [{"type": "sentence_transformers.models.StaticEmbedding", "path": ""}]
WORDS = {"tokenizer.json": {}}
AUDIO = {"preprocessor_config.json": {"sampling_rate": 16_000}}
IMAGE = {"preprocessor_config.json": {"feature_extractor_type": "CLIPFeatureExtractor"}}
CARD = {"README.md": "---\npipeline_tag: ner\n---\n"}
TIMM = {"architecture": "resnet18", "num_classes": 3, "pretrained_cfg": {}}
BOTH = {"processor_config.json": {"feature_extractor": {"sampling_rate": 16_000}}} | WORDS


def named(name: str, **files: Any) -> dict[str, Any]:
    return {"config.json": {"architectures": [name]}} | files


def adapter(base: str | None) -> dict[str, Any]:
    return {"adapter_config.json": {"peft_type": "LORA", "base_model_name_or_path": base}}


@pytest.mark.parametrize(
    ("files", "task", "why"),
    [
        (named("BertForTokenClassification"), "token-classification", "says BertForTokenClassification"),
        (named("BertForSequenceClassification"), "text-classification", "BertForSequenceClassification"),
        (named("BertForQuestionAnswering"), "question-answering", ""),
        (named("ViTForImageClassification"), "image-classification", ""),
        (named("T5ForConditionalGeneration"), "text2text-generation", ""),
        (named("MarianMTModel"), "text2text-generation", ""),
        (named("BertModel") | {"modules.json": MODULES}, "pooling", "modules.json says Transformer, Pooling"),
        (named("BertForMaskedLM") | {"modules.json": MODULES}, "pooling", ""),
        ({"modules.json": STATIC}, "pooling", "modules.json says StaticEmbedding"),
        (named("BertForSequenceClassification") | {"modules.json": MODULES}, "text-classification", ""),
        (named("BertModel") | WORDS, "feature-extraction", "an encoder without a head"),
        (named("BertForMaskedLM"), "fill-mask", ""),
        (named("GPT2LMHeadModel"), "text-generation", ""),
        (named("LlamaForCausalLM"), "text-generation", ""),
        (named("ViTModel") | IMAGE, "image-feature-extraction", "an encoder without a head"),
        (named("DPTForDepthEstimation"), "depth-estimation", ""),
        (named("SegformerForSemanticSegmentation"), "image-segmentation", ""),
        (named("VisionEncoderDecoderModel") | IMAGE | WORDS, "image-to-text", ""),
        (named("DetrForObjectDetection") | IMAGE, "object-detection", ""),
        (named("Idefics3ForConditionalGeneration") | IMAGE | WORDS, "image-text-to-text", ""),
        (named("SamModel") | IMAGE, "mask-generation", ""),
        (named("VitsModel") | WORDS, "text-to-audio", ""),
        (named("TapasForQuestionAnswering") | WORDS, "table-question-answering", ""),
        (named("EfficientLoFTRForKeypointMatching") | IMAGE, "keypoint-matching", ""),
        (named("VideoMAEForVideoClassification") | IMAGE, "video-classification", ""),
        (named("OwlViTForObjectDetection") | IMAGE | WORDS, "zero-shot-object-detection", ""),
        (named("CLIPModel") | IMAGE | WORDS, "zero-shot-image-classification", "says CLIPModel"),
        (named("ClapModel") | AUDIO | WORDS, "zero-shot-audio-classification", "says ClapModel"),
        (named("HubertForSequenceClassification") | AUDIO, "audio-classification", ""),
        (named("Wav2Vec2ForCTC") | BOTH, "automatic-speech-recognition", ""),
        (named("WhisperForConditionalGeneration") | AUDIO, "automatic-speech-recognition", ""),
        (named("WhisperForConditionalGeneration") | WORDS, "automatic-speech-recognition", ""),
        (named("HubertModel") | AUDIO, "audio-feature-extraction", ""),
        (named("LayoutLMv3ForTokenClassification") | IMAGE | WORDS, "token-classification", ""),
        (named("LayoutLMv3ForQuestionAnswering") | IMAGE | WORDS, "document-question-answering", ""),
        (named("LiltForQuestionAnswering") | WORDS, "question-answering", ""),
        ({"config.json": TIMM}, "image-classification", "says resnet18"),
        ({"config.json": TIMM | {"num_classes": 0}}, "image-feature-extraction", "says resnet18"),
        (named("TimmWrapperForImageClassification", pretrained_cfg={}), "image-classification", ""),
        ({"config.json": {"model_type": "x"}} | CARD, "token-classification", "README.md says ner"),
    ],
)
def test_what_is_chosen_and_why(files, task, why, tmp_path):
    write(tmp_path, files)
    chosen, reason = choose(str(tmp_path))
    assert chosen == task and why in reason


def write(directory: Path, files: dict[str, Any]) -> None:
    for name, value in files.items():
        (directory / name).write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        (named("BertForPreTraining"), "pretraining", "feature-extraction"),
        (named("BlipForConditionalGeneration") | IMAGE, "image-text-to-text", "reg add"),
        (named("Sam2Model") | IMAGE, "mask-generation", "reg add"),
        (named("MusicgenForConditionalGeneration") | WORDS, "text-to-audio", "random"),
        (named("SuperGlueForKeypointMatching") | IMAGE, "keypoint-matching", "a number of keypoints"),
        (named("ViTModel"), "what the checkpoint is for: config.json says ViTModel", "TASK, one of feature"),
        (named("HalNet") | AUDIO, "says HalNet", "TASK, one of automatic-speech-recognition, audio-cla"),
        ({"config.json": {"model_type": "x"}}, "says no architecture", "--task TASK"),
        ({"config.json": {"architectures": "x"}}, "says no architecture", "--task TASK"),
        ({"config.json": []}, "config.json is not a JSON object", "save the model again"),
        (adapter("absent/../m"), "an adapter of m, which is not here", "base_model_name_or_path"),
        (adapter("."), "the model of the adapter has an adapter too", "merge that one first"),
        (adapter(None), "an adapter of a model that it does not name", "base_model_name_or_path"),
        ({"model.gguf": 1}, "model.gguf is a GGUF file", "the checkpoint that it was made from"),
        (named("StaticModel") | WORDS, "StaticModel", "StaticEmbedding.from_model2vec"),
        (named("BertForMaskedLM") | {"modules.json": {}}, "modules.json", "delete modules.json"),
        ({}, "no config.json that can be read", "save_pretrained"),
        ({"gliner_config.json": {}}, "GLiNER", "reg add"),
    ],
)
def test_what_cannot_be_chosen_and_the_way(files, message, hint, tmp_path):
    write(tmp_path, files)
    with pytest.raises(InputError) as refused:
        choose(str(tmp_path))
    assert message in refused.value.message and hint in refused.value.hint


SINGLE = {"model.gguf": "a GGUF file", "best.pth": "nothing says of what model", "a.txt": "is not a model"}


@pytest.mark.parametrize("name", SINGLE)
def test_single_files(name, tmp_path):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError, match=f"{name} .*{SINGLE[name]}"):
        choose(str(tmp_path / name))


@pytest.mark.parametrize(("base", "family"), [("absent", InputError), ("acme/absent", RemoteError)])
def test_the_model_of_an_adapter_is_a_name_that_the_hub_does_not_answer(base, family, tmp_path, monkeypatch):
    """Without a slash, the name may be a directory's as well."""
    import httpx2

    def refuse(*_: Any, **__: Any) -> None:
        raise httpx2.ConnectError("no route")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    write(tmp_path, adapter(base))
    with pytest.raises(family, match=r"no directory .*absent, and the Hub cannot be reached"):
        choose(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("encoder").mkdir()
    with pytest.raises(RemoteError) as refused:
        choose("encodr")
    assert "encoder" in refused.value.hint


def test_sources_that_are_no_checkpoint(tmp_path):
    assert choose(str(tmp_path / "later.onnx"))[0] == "onnx"
    with pytest.raises(InputError, match="makes a module"):
        choose("net.py:build")
    with pytest.raises(NotFoundError, match="no such checkpoint directory"):
        choose(str(tmp_path / "absent"))

"""The table of docs/architectures.md: tiny models of 60 architectures, exported by `reg export DIRECTORY`.

    PYTHONPATH=tests python tests/support/tasks/table.py [NAME]...    # run these rows (default: all), write the page
    PYTHONPATH=tests python tests/support/tasks/table.py --check      # exit with 1 unless the page fits the .json file

Each row is a process of its own, and its result a line of docs/architectures.json. Configurations are as published, but for
sizes; weights are random. A precision counts if its graph loads in ONNX Runtime and passes the checks of the export.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.source.source_files import read_object
from support.tasks import timm_models
from support.tasks.architectures import SPARE, trained_tokenizer, word_tokenizer

ROOT = Path(__file__).parents[3]
PAGE, RESULTS = ROOT / "docs" / "architectures.md", ROOT / "docs" / "architectures.json"
SECONDS = 600
"""The longest export; a longer one counts as refused."""
NOISE = 0.1
"""Added to every weight, so that outputs differ from row to row."""
LEAST_COSINE = 0.9
"""An INT8 graph works if each output has at least this cosine with the checkpoint's."""

Values = dict[str, Any]
NARROW: Values = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
TEXT: Values = {**NARROW, "max_position_embeddings": 64}
ROBERTA: Values = {**NARROW, "type_vocab_size": 1, "max_position_embeddings": 66, "layer_norm_eps": 1e-5}
DEBERTA: Values = {
    **TEXT, "type_vocab_size": 0, "relative_attention": True, "position_biased_input": False, "max_relative_positions": -1,
    "pooler_hidden_size": 32, "pos_att_type": "p2c|c2p", "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True,
}  # fmt: skip
MODERN: Values = {
    **TEXT, "num_hidden_layers": 4, "local_attention": 8, "global_attn_every_n_layers": 3, "norm_bias": False,
}  # fmt: skip
DECODER: Values = {**TEXT, "head_dim": 16, "num_key_value_heads": 2}
SLIDING: Values = {**DECODER, "sliding_window": 8}
BART: Values = {
    "d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 64,
}  # fmt: skip
T5: Values = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4, "d_kv": 8}
SIDE = 32
IMAGE: Values = {**NARROW, "image_size": SIDE, "patch_size": 8}
STAGES: Values = {"hidden_sizes": [16, 32], "depths": [1, 1]}
DINO: Values = {key: value for key, value in IMAGE.items() if key != "intermediate_size"}
RESNET: Values = {
    "model_type": "resnet", "embedding_size": 16, "layer_type": "basic", **STAGES, "out_features": ["stage2"],
}  # fmt: skip
DETR: Values = {
    "use_timm_backbone": False, "backbone": None, "use_pretrained_backbone": False, "d_model": 32, "encoder_layers": 1,
    "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "num_queries": 10, "backbone_config": RESNET,
}  # fmt: skip
WAVE: Values = {
    **NARROW, "conv_dim": (16,) * 3, "conv_stride": (5, 4, 4), "conv_kernel": (10, 4, 4), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "classifier_proj_size": 16,
}  # fmt: skip
TOWER: Values = {
    "text_config": {**TEXT, "projection_dim": 16}, "vision_config": {**IMAGE, "projection_dim": 16}, "projection_dim": 16,
}  # fmt: skip
OWL_TEXT: Values = {**TEXT, "max_position_embeddings": 16}
OWL: Values = {"text_config": OWL_TEXT, "vision_config": IMAGE, "projection_dim": 32}
SIGLIP: Values = {"text_config": {**TEXT, "projection_size": 32}, "vision_config": IMAGE}
SQUARE: Values = {"size": {"height": SIDE, "width": SIDE}}
SHORT: Values = {"size": {"shortest_edge": 48, "longest_edge": 96}}
CROPPED: Values = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}
LABELS: Values = {"id2label": {0: "cat", 1: "dog", 2: "owl"}, "label2id": {"cat": 0, "dog": 1, "owl": 2}}

SHARE = 0.001
"""The limit of float32 that the task's own recipe states, as a share of the largest value."""
HEAD = """# Architectures

Each row is an export of a tiny model with random weights, but with the configuration, the kind of
tokenizer and the processor of the published checkpoint: `reg export DIRECTORY --quantize`, which
chooses the task. Of {rows} architectures {full} work in float32 and {small} in INT8; what is
refused is not published. The figures are the worst of a run: the difference from PyTorch at other
batches and sizes as a share of the largest value, and the least cosine of an INT8 output with the
checkpoint's, on random weights and vocabularies, so they vary a little. Float32 works up to a
thousandth, INT8 from 0.9. Made with PyTorch {torch}, transformers {transformers} and ONNX Runtime
{onnxruntime} by `PYTHONPATH=tests python tests/support/tasks/table.py`, from
[architectures.json](architectures.json). *Optimum*: the types in the table of optimum-onnx
{optimum} (`optimum/exporters/onnx/model_configs.py`).

Models of timm are exported in an environment with another PyTorch, beside which the torchvision
that timm needs can be imported.
"""
TAIL = """## Trained models

`make test-all` exports these checkpoints, publishes and pulls them into another registry, and runs
what arrived there:

| model | compared with |
|---|---|
| all-MiniLM-L6-v2, `pooling` | an independent ONNX file of the same weights: within 1e-5, INT8 with a cosine of at least 0.97 |
| two heads trained on it | the checkpoint: right as often on held-out rows; INT8 at most a tenth less |
| MobileNetV2 with torchvision's weights, also as a model of timm | photographs: the class of a palace is first, and in INT8 among the first five |
| a CNN and a tiny Swin with two heads | the recorded accuracy, of fp32, and of INT8 within its limit |
| SmolLM2-135M-Instruct, by default and by `ModelBuilder` | its checkpoint, in fp32, fp16 and int4, by onnxruntime-genai |
"""


@dataclass(frozen=True)
class Row:
    """`kind` is the model type in transformers, `auto` ends the auto class that makes the model, or is timm's name for it.

    `processor` is a class of transformers with its settings, `tokenizer` the class of a tokenizer that is trained, or ""
    for one of words; None for none. `noise` is added to every weight, `lift` to the last bias: an output that a ReLU ends
    would be zero nearly everywhere.
    """

    name: str
    kind: str
    auto: str
    config: Values
    tokenizer: str | None = None
    processor: tuple[str, Values] | None = None
    noise: float = NOISE
    lift: float = 0.0


def vision(
    name: str, kind: str, auto: str, config: Values, processor: str, settings: Values = SQUARE, **more: Any
) -> Row:
    return Row(
        name, kind, auto, {**config, **LABELS}, None, (f"{processor}ImageProcessorPil", settings), **more
    )


def audio(
    name: str, kind: str, auto: str, config: Values, processor: str = "Wav2Vec2", tokenizer: str | None = None
) -> Row:
    settings: Values = {} if processor != "AST" else {"max_length": 64, "num_mel_bins": 32}
    if processor == "Clap":
        settings = {"feature_size": 16, "max_length_s": 2, "truncation": "rand_trunc"}
    if processor == "Whisper":
        settings = {"feature_size": 80, "chunk_length": 2}
    named = {} if auto == "ForCTC" else LABELS
    return Row(name, kind, auto, {**config, **named}, tokenizer, (f"{processor}FeatureExtractor", settings))


CTC = "Wav2Vec2CTCTokenizer"
TIMM = (
    "vit_tiny_patch16_224", "mobilenetv3_small_050", "efficientnet_lite0", "convnext_atto", "fastvit_t8", "repvit_m0_9",
)  # fmt: skip
ROWS: Mapping[str, Sequence[Row]] = {
    "Text": (
        Row("BERT", "bert", "ForTokenClassification", {**TEXT, "type_vocab_size": 2}, "BertTokenizer"),
        Row("DistilBERT", "distilbert", "ForMaskedLM", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64}, "DistilBertTokenizer"),
        Row("RoBERTa", "roberta", "ForSequenceClassification", ROBERTA, "RobertaTokenizer"),
        Row("XLM-R", "xlm-roberta", "ForQuestionAnswering", ROBERTA, "XLMRobertaTokenizer"),
        Row("CamemBERT", "camembert", "ForMaskedLM", ROBERTA, "CamembertTokenizer"),
        Row("ELECTRA", "electra", "ForTokenClassification", {**TEXT, "embedding_size": 16}, "ElectraTokenizer"),
        Row("ALBERT", "albert", "ForSequenceClassification", {**TEXT, "embedding_size": 16}, "AlbertTokenizer"),
        Row("MPNet", "mpnet", "", {**TEXT, "max_position_embeddings": 66}, "MPNetTokenizer"),
        Row("MobileBERT", "mobilebert", "ForSequenceClassification", {**TEXT, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32}, "MobileBertTokenizer"),
        Row("DeBERTa-v3", "deberta-v2", "ForSequenceClassification", DEBERTA, "DebertaV2Tokenizer"),
        Row("ModernBERT", "modernbert", "ForTokenClassification", MODERN, ""),
        Row("Longformer", "longformer", "ForTokenClassification", {**TEXT, "attention_window": [8, 8], "max_position_embeddings": 66}, "RobertaTokenizer"),
        Row("BigBird", "big_bird", "ForSequenceClassification", {**TEXT, "attention_type": "original_full"}, "BigBirdTokenizer"),
        Row("LayoutLMv3", "layoutlmv3", "ForTokenClassification", {**TEXT, "input_size": SIDE, "patch_size": 8, "coordinate_size": 5, "shape_size": 6}, "RobertaTokenizer", ("LayoutLMv3ImageProcessorPil", {**SQUARE, "apply_ocr": False})),
        Row("LayoutLMv3, answers", "layoutlmv3", "ForDocumentQuestionAnswering", {**TEXT, "input_size": SIDE, "patch_size": 8, "coordinate_size": 5, "shape_size": 6}, "RobertaTokenizer", ("LayoutLMv3ImageProcessorPil", {**SQUARE, "apply_ocr": False})),
        Row("LayoutLM", "layoutlm", "ForDocumentQuestionAnswering", TEXT, "BertTokenizer"),
        Row("TAPAS", "tapas", "ForTableQuestionAnswering", {**TEXT, "vocab_size": 99, "num_aggregation_labels": 4}),
        Row("GLiNER", "gliner", "", {"model_name": "microsoft/deberta-v3-small", "max_width": 12, "span_mode": "markerV0"}, "DebertaV2Tokenizer"),
        Row("LiLT", "lilt", "ForQuestionAnswering", {**ROBERTA, "hidden_size": 48}, "RobertaTokenizer"),
    ),
    "Decoders": (
        Row("GPT-2", "gpt2", "ForCausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}, "GPT2Tokenizer"),
        Row("Llama", "llama", "ForCausalLM", DECODER, "LlamaTokenizer"),
        Row("Qwen2", "qwen2", "ForCausalLM", DECODER, "Qwen2Tokenizer"),
        Row("Qwen3", "qwen3", "ForCausalLM", DECODER, "Qwen2Tokenizer"),
        Row("Gemma 3", "gemma3_text", "ForCausalLM", {**SLIDING, "layer_types": ["sliding_attention", "full_attention"]}, "GemmaTokenizer"),
        Row("Phi-3", "phi3", "ForCausalLM", TEXT, "LlamaTokenizer"),
        Row("SmolLM3", "smollm3", "ForCausalLM", DECODER, "LlamaTokenizer"),
        Row("Mistral", "mistral", "ForCausalLM", SLIDING, "LlamaTokenizer"),
        Row("OLMo 2", "olmo2", "ForCausalLM", {**TEXT, "num_key_value_heads": 4}, "GPT2Tokenizer"),
    ),
    "Encoder-decoders": (
        Row("T5", "t5", "ForSeq2SeqLM", T5, "T5Tokenizer", noise=0.3),
        Row("BART", "bart", "ForSeq2SeqLM", BART, "T5Tokenizer", noise=0.3),
        Row("Marian", "marian", "ForSeq2SeqLM", BART, "T5Tokenizer", noise=0.3),
        Row("mBART", "mbart", "ForSeq2SeqLM", BART, "T5Tokenizer", noise=0.3),
        Row("M2M100 / NLLB", "m2m_100", "ForSeq2SeqLM", BART, "T5Tokenizer", noise=0.3),
        Row("Pegasus", "pegasus", "ForSeq2SeqLM", BART, "T5Tokenizer", noise=0.3),
        audio("Whisper", "whisper", "ForSpeechSeq2Seq", {**BART, "num_mel_bins": 80, "max_source_positions": 100, "max_target_positions": 64}, "Whisper", "WhisperTokenizer"),
        audio("Moonshine", "moonshine", "ForSpeechSeq2Seq", {**NARROW, "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4}, "Wav2Vec2", "LlamaTokenizer"),
    ),
    "Vision": (
        vision("ViT", "vit", "ForImageClassification", IMAGE, "ViT"),
        vision("DeiT", "deit", "ForImageClassification", {**IMAGE, "architectures": ["DeiTForImageClassification"]}, "DeiT", {**SQUARE, "crop_size": SQUARE["size"]}),
        vision("BEiT", "beit", "ForImageClassification", IMAGE, "Beit", {**SQUARE, "do_center_crop": False}),
        vision("DINOv2", "dinov2", "", DINO, "Bit", CROPPED),
        vision("Swin", "swin", "ForImageClassification", {"image_size": SIDE, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}, "ViT"),
        vision("ConvNeXt", "convnext", "ForImageClassification", {**STAGES, "num_stages": 2, "patch_size": 4, "image_size": SIDE}, "ConvNext", {"size": {"shortest_edge": SIDE}}),
        vision("ResNet", "resnet", "ForImageClassification", {**STAGES, "embedding_size": 16, "layer_type": "basic"}, "ConvNext", {"size": {"shortest_edge": SIDE}}),
        vision("EfficientNet", "efficientnet", "ForImageClassification", {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320, "image_size": SIDE}, "EfficientNet"),
        vision("MobileNetV2", "mobilenet_v2", "ForImageClassification", {"depth_multiplier": 0.35, "image_size": SIDE}, "MobileNetV2", CROPPED),
        vision("MobileViT", "mobilevit", "ForImageClassification", {"image_size": SIDE, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 16, 16, 24, 32, 32, 64]}, "MobileViT", CROPPED),
        *(Row(f"timm: {name}", "timm", name, {}) for name in TIMM),
        vision("SegFormer", "segformer", "ForSemanticSegmentation", {"num_encoder_blocks": 2, "hidden_sizes": [16, 32], "depths": [1, 1], "sr_ratios": [4, 2], "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 32}, "Segformer"),
        vision("DETR", "detr", "ForObjectDetection", DETR, "Detr", SHORT),
        vision("RT-DETR", "rt_detr", "ForObjectDetection", {"encoder_hidden_dim": 32, "d_model": 32, "encoder_in_channels": [32, 64, 128], "backbone_config": {"model_type": "rt_detr_resnet", "embedding_size": 16, "hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 1, 1], "layer_type": "bottleneck", "out_features": ["stage2", "stage3", "stage4"]}, "backbone": None, "use_timm_backbone": False, "use_pretrained_backbone": False, "encoder_ffn_dim": 64, "encoder_attention_heads": 4, "decoder_in_channels": [32, 32, 32], "decoder_ffn_dim": 64, "decoder_layers": 2, "decoder_attention_heads": 4, "num_queries": 10, "num_denoising": 0}, "RTDetr", {"size": {"height": 64, "width": 64}}),
        vision("YOLOS", "yolos", "ForObjectDetection", {**NARROW, "image_size": [48, 64], "patch_size": 8, "num_detection_tokens": 10}, "Yolos", SHORT),
        vision("DPT", "dpt", "ForDepthEstimation", {**IMAGE, "neck_hidden_sizes": [16, 16, 16, 16], "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "fusion_hidden_size": 16, "reassemble_factors": [4, 2, 1, 0.5], "is_hybrid": False}, "DPT", noise=0.2, lift=60.0),
        vision("Depth Anything", "depth_anything", "ForDepthEstimation", {"backbone_config": {"model_type": "dinov2", **DINO, "patch_size": 14, "image_size": 56, "num_hidden_layers": 4, "out_features": ["stage1", "stage2", "stage3", "stage4"], "reshape_hidden_states": False}, "patch_size": 14, "reassemble_hidden_size": 32, "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8, "head_hidden_size": 8, "backbone": None}, "DPT", {"size": {"height": 56, "width": 56}, "keep_aspect_ratio": True, "ensure_multiple_of": 14}, noise=0.2),
        vision("GLPN", "glpn", "ForDepthEstimation", {"num_encoder_blocks": 4, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 8}, "GLPN", {"size_divisor": 32}),
        vision("VideoMAE", "videomae", "ForVideoClassification", {**IMAGE, "num_frames": 4, "tubelet_size": 2}, "VideoMAE", CROPPED),
        vision("TimeSformer", "timesformer", "ForVideoClassification", {**IMAGE, "num_frames": 4}, "VideoMAE", CROPPED),
        vision("SAM", "sam", "ForMaskGeneration", {"vision_config": {**NARROW, "image_size": 64, "output_channels": 16, "num_pos_feats": 8}, "prompt_encoder_config": {"hidden_size": 16, "image_size": 64}, "mask_decoder_config": {"hidden_size": 16, "num_hidden_layers": 1, "mlp_dim": 32, "iou_head_hidden_dim": 16}}, "Sam", {"size": {"longest_edge": 64}, "pad_size": {"height": 64, "width": 64}, "mask_size": {"longest_edge": 16}, "mask_pad_size": {"height": 16, "width": 16}}),
        vision("EfficientLoFTR", "efficientloftr", "ForKeypointMatching", {"stage_num_blocks": [1] * 4, "out_features": [16, 16, 32, 32], "hidden_size": 32, "num_attention_layers": 1, "coarse_matching_border_removal": 0, "coarse_matching_threshold": 0.01, "coarse_matching_temperature": 0.01}, "EfficientLoFTR", {"size": {"height": 64, "width": 64}}, noise=0.5),
        Row("TrOCR", "vision-encoder-decoder", "ForImageTextToText", {"encoder": {"model_type": "vit", **IMAGE}, "decoder": {"model_type": "trocr", "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64, "max_position_embeddings": 64}}, "RobertaTokenizer", ("ViTImageProcessorPil", SQUARE), noise=0.3),
        Row("Donut", "vision-encoder-decoder", "ForImageTextToText", {"encoder": {"model_type": "donut-swin", "image_size": [64, 48], "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}, "decoder": {"model_type": "mbart", "d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64, "max_position_embeddings": 64, "add_final_layer_norm": True, "scale_embedding": True}}, "RobertaTokenizer", ("DonutImageProcessorPil", {"size": {"height": 64, "width": 48}, "do_align_long_axis": False}), noise=0.3),
    ),
    "Audio": (
        audio("wav2vec2, CTC", "wav2vec2", "ForCTC", WAVE, tokenizer=CTC),
        audio("HuBERT, CTC", "hubert", "ForCTC", WAVE, tokenizer=CTC),
        audio("WavLM, CTC", "wavlm", "ForCTC", WAVE, tokenizer=CTC),
        audio("HuBERT, classes", "hubert", "ForAudioClassification", WAVE),
        audio("AST", "audio-spectrogram-transformer", "ForAudioClassification", {**NARROW, "max_length": 64, "num_mel_bins": 32, "patch_size": 8, "frequency_stride": 6, "time_stride": 6}, "AST"),
        audio("wav2vec2, features", "wav2vec2", "", WAVE),
        audio("CLAP", "clap", "", {"text_config": {**ROBERTA, "projection_dim": 16}, "audio_config": {"spec_size": 64, "hidden_size": 32, "patch_embeds_hidden_size": 16, "depths": [1, 1], "num_attention_heads": [2, 2], "window_size": 4, "num_mel_bins": 16, "projection_dim": 16}, "projection_dim": 16}, "Clap", "RobertaTokenizer"),
        Row("VITS", "vits", "ForTextToWaveform", {**NARROW, "flow_size": 16, "spectrogram_bins": 9, "ffn_dim": 64, "upsample_initial_channel": 16, "upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8], "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1]], "wavenet_layers": 1, "prior_encoder_num_flows": 2, "duration_predictor_num_flows": 2, "depth_separable_num_layers": 1}, "VitsTokenizer"),
    ),
    "Images and texts": (
        Row("CLIP", "clip", "", TOWER, "CLIPTokenizer", ("CLIPImageProcessorPil", CROPPED)),
        Row("SigLIP", "siglip", "", SIGLIP, "T5Tokenizer", ("SiglipImageProcessorPil", SQUARE)),
        Row("OWL-ViT", "owlvit", "ForZeroShotObjectDetection", OWL, "BertTokenizer", ("OwlViTImageProcessorPil", SQUARE)),
        Row("OWLv2", "owlv2", "ForZeroShotObjectDetection", OWL, "BertTokenizer", ("Owlv2ImageProcessorPil", SQUARE)),
        Row("BLIP", "blip", "ForImageTextToText", {"text_config": {**TEXT, "encoder_hidden_size": 32}, "vision_config": IMAGE}, "BertTokenizer", ("BlipImageProcessorPil", SQUARE)),
        Row("SmolVLM", "smolvlm", "ForImageTextToText", {"vision_config": IMAGE, "text_config": {"model_type": "llama", **DECODER}, "scale_factor": 2, "image_token_id": 5}, "GPT2Tokenizer", ("SmolVLMImageProcessorPil", {"size": {"longest_edge": SIDE}, "max_image_size": {"longest_edge": SIDE}})),
        Row("Idefics 3", "idefics3", "ForImageTextToText", {"vision_config": IMAGE, "text_config": {"model_type": "llama", **DECODER}, "scale_factor": 2, "image_token_id": 5}, "GPT2Tokenizer", ("Idefics3ImageProcessorPil", {"size": {"longest_edge": SIDE}, "max_image_size": {"longest_edge": SIDE}})),
    ),
}  # fmt: skip


def save(row: Row, directory: Path) -> Path:
    """Save a model with random weights, its tokenizer and its processor, as `save_pretrained` does."""
    import torch
    import transformers

    directory.mkdir(parents=True, exist_ok=True)
    if row.kind == "timm":
        python = timm_models.programs() / "python"
        subprocess.run([python, "-c", timm_models.SAVE, row.auto, directory, "3"], check=True)
        return directory
    if row.kind == "gliner":
        (directory / "gliner_config.json").write_text(json.dumps(row.config))
        torch.save({"span_rep_layer.weight": torch.zeros(2, 2)}, directory / "pytorch_model.bin")
        make_tokenizer(str(row.tokenizer), directory).save_pretrained(directory)
        return directory
    special: Values = {}
    if row.tokenizer is not None:
        tokenizer = make_tokenizer(row.tokenizer, directory)
        tokenizer.save_pretrained(directory)
        special = {key: getattr(tokenizer, key) for key in ("pad_token_id", "bos_token_id", "eos_token_id")}
        special = {key: value for key, value in special.items() if value is not None}
        spare = {"ForCTC": 0, "ForTextToWaveform": -1}.get(row.auto, SPARE)  # MMS has no row for <unk>
        special["vocab_size"] = len(tokenizer) + spare
        if row.auto in ("ForSeq2SeqLM", "ForSpeechSeq2Seq") or "decoder" in row.config:
            special["decoder_start_token_id"] = special["pad_token_id"]
    config = dict(row.config)
    if "decoder" in config:
        config["decoder"] = {**config["decoder"], **special}
    elif "text_config" in config:
        config["text_config"] = {**config["text_config"], **special}
    else:
        config |= special
    if row.kind == "vision-encoder-decoder":
        parts = [transformers.AutoConfig.for_model(**config[side]) for side in ("encoder", "decoder")]
        made = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(*parts, **special)
    else:
        made = transformers.AutoConfig.for_model(row.kind, **config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, f"AutoModel{row.auto}").from_config(made)
        for parameter in model.parameters():
            parameter.data += row.noise * torch.randn_like(parameter)
        parameter.data += row.lift
    model.save_pretrained(directory)
    if row.processor is not None:
        name, settings = row.processor
        getattr(transformers, name)(**settings).save_pretrained(directory)
    return directory


def make_tokenizer(name: str, directory: Path) -> Any:
    """A tokenizer with a small vocabulary: of letters for CTC, of words without a name, else trained."""
    import transformers

    if name == "VitsTokenizer":  # as of MMS: the pad token is a letter
        (directory / "vocab.json").write_text(
            json.dumps({one: at for at, one in enumerate("k eainhsrdlumwcfgypbv'xjqzot-")})
        )
        return transformers.VitsTokenizer(f"{directory}/vocab.json", pad_token="k", phonemize=False)
    if name == "Wav2Vec2CTCTokenizer":
        letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVK'XJQZ"]
        path = directory / "vocab.json"
        path.write_text(json.dumps({letter: at for at, letter in enumerate(letters)}))
        return getattr(transformers, name)(str(path))
    return trained_tokenizer(name) if name else word_tokenizer()


def export(row: Row) -> Values:
    """The line of an architecture: its class and task, the figures of each precision, or why there is none."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        checkpoint = save(row, Path(place, "model"))
        config = read_object(checkpoint / "config.json")
        named = config.get("architectures", [config.get("architecture", row.name)])[0]
        line: Values = {"class": named, "type": row.kind}
        program = (timm_models.programs() if row.kind == "timm" else Path(sys.executable).parent) / "reg"
        line |= _reg(program, checkpoint, "--quantize")
        if "refused" in line:  # which of both is refused
            alone = _reg(program, checkpoint)
            line = {**line, **alone, "refused": alone.get("refused", line["refused"])}
    return {**line, "seconds": round(time.monotonic() - started)}


def _reg(program: Path, checkpoint: Path, *words: str) -> Values:
    """The task and the figures of a dry run, or `refused`: the words of the error."""
    arguments = [*f"export {checkpoint.name} --name tiny/model --dry-run --json --no-cache".split(), *words]
    try:
        done = subprocess.run(
            [program, *arguments],
            cwd=checkpoint.parent,
            env={**os.environ, "REG_HOME": str(checkpoint.with_name("home"))},
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"refused": f"the export takes more than {SECONDS} s"}
    if done.returncode:
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        return {"refused": error["message"], "way": error["hint"], "status": done.returncode}
    manifest = json.loads(done.stdout)["manifest"]
    return {"task": manifest["task"], **figures(manifest["artifacts"])}


def figures(artifacts: Sequence[Values]) -> Values:
    """Of each precision the worst check: the difference of float32 as a share of the largest value, the cosine of others."""
    worst: dict[str, float] = {}
    for artifact in artifacts:
        for check in artifact["checks"]:
            precision, value = artifact["precision"], check["value"]
            if precision == "float32" and check["metric"] == "max_abs_diff":
                worst[precision] = max(worst.get(precision, 0.0), value / check["limit"] * SHARE)
            elif precision != "float32" and check["metric"] == "min_cosine":
                worst[precision] = min(worst.get(precision, 1.0), value)
    return {precision: float(f"{value:.2g}") for precision, value in worst.items()}


def cells(name: str, line: Values, optimum: Sequence[str]) -> list[str]:
    full, small = line.get("float32"), line.get("int8")
    figure = [] if full is None else [f"float32 {full:.0e}"]
    why = line.get("refused", "").replace("|", "/")
    if small is not None and small < LEAST_COSINE:
        small, why = None, f"the least cosine of INT8 is {small:.2f}"
    figure += [] if small is None else [f"int8 {small:.2f}"]
    return [
        name,
        line.get("task", "-"),
        ", ".join(figure) or "-",
        why if not full or not small else "",
        "yes" if line["type"].replace("-", "_") in (*optimum, "timm") else "no",
    ]


def page(results: Values) -> str:
    """The page that the results say."""
    lines = results["rows"].values()
    full = sum("float32" in line for line in lines)
    small = sum(line.get("int8", 0.0) >= LEAST_COSINE for line in lines)
    text = [HEAD.format(rows=len(lines), full=full, small=small, **results["versions"])]
    for group in ROWS:
        text += [
            f"## {group}",
            "",
            "| architecture | task | works | refused because | Optimum |",
            "|---|---|---|---|---|",
        ]
        for row in ROWS[group]:
            if row.name in results["rows"]:
                each = cells(row.name, results["rows"][row.name], results["optimum"])
                text.append(f"| {' | '.join(each)} |")
        text.append("")
    return "\n".join([*text, TAIL])


def write(names: Sequence[str]) -> None:
    results = json.loads(RESULTS.read_text("utf-8"))
    if names == ["--check"]:
        is_same = page(results) == PAGE.read_text("utf-8")
        sys.exit(0 if is_same else f"{PAGE.name} is not of {RESULTS.name}: run this file without --check")
    known = {row.name: row for rows in ROWS.values() for row in rows}
    for name in () if names == ["--page"] else names or known:
        results["rows"][name] = export(known[name])
        print(name, results["rows"][name], flush=True)
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(results), "utf-8")


if __name__ == "__main__":
    write(sys.argv[1:])

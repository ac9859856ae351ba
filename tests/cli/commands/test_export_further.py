"""`reg export DIRECTORY` of images, sounds and decoders: from the checkpoint to the answer of `reg run`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import Reg
from support.sounds import logits_of, write_sound
from support.tasks.architectures import word_tokenizer
from support.tasks.saved_images import photograph
from support.tasks.table import ROWS, save

from onnxreg.converters.tasks.preprocessing import read_sound
from onnxreg.schema.manifest.manifest import AudioPreprocessing

BY_NAME = {row.name: row for rows in ROWS.values() for row in rows}


def publish(reg: Reg, name: str, place: Path, *words: str) -> dict[str, Any]:
    save(BY_NAME[name], place / "model")
    made = reg("export", "model", "--name", "acme/model", *words)
    assert made.status == 0, made.err
    manifest = reg("show", "acme/model", "--json").json
    return manifest.get("manifest", manifest)  # type: ignore[no-any-return]


@pytest.mark.more
def test_ctc_writes_down_what_transformers_hears_and_is_judged_by_it(reg: Reg, tmp_path: Path) -> None:
    import jiwer
    import torch
    from transformers import AutoFeatureExtractor, AutoModelForCTC, Wav2Vec2CTCTokenizer

    said = ["one", "two", "three"]
    sounds = [write_sound(tmp_path / f"{text}.wav", seconds=0.5 + n / 10) for n, text in enumerate(said)]
    rows = [json.dumps({"audio": f"{text}.wav", "text": text}) for text in said]
    (tmp_path / "suite.jsonl").write_text("\n".join(rows))
    words = ["--quantize", "--eval-suite", "suite.jsonl", "--output", "out"]
    manifest = publish(reg, "wav2vec2, CTC", tmp_path, *words)
    assert manifest["task"] == "automatic-speech-recognition"
    assert manifest["audio_preprocessing"]["sampling_rate"] == 16_000
    (full, small), roles = manifest["artifacts"], {file["path"]: file["role"] for file in manifest["files"]}
    axes = [dim.get("name") for dim in full["metadata"]["inputs"][0]["shape"]]
    assert axes == ["batch", "sequence"] and small["precision"] == "int8"
    assert roles["vocab.json"] == "tokenizer"
    assert reg("run", "acme/model", "--self-test").ended(0, "pass")
    answer = reg("run", "acme/model", "--audio", "one.wav", "--json").json
    extractor, model = (kind.from_pretrained("model") for kind in (AutoFeatureExtractor, AutoModelForCTC))
    values = extractor(sounds[0], sampling_rate=16_000, return_tensors="pt")["input_values"]
    with torch.no_grad():
        best = model.eval()(values.float()).logits.argmax(-1)[0]
    tokenizer = Wav2Vec2CTCTokenizer.from_pretrained("model")
    expected = tokenizer.decode(best, skip_special_tokens=False)
    assert answer["transcript"].replace("<pad>", "") == expected.replace("<pad>", "") != ""
    certificate = json.loads((tmp_path / "out/certificates/model_int8.onnx.json").read_bytes())
    (judged,) = (record for record in certificate["metrics"] if record["metric"] == "word_error_rate")
    plain = jiwer.Compose([jiwer.ToLowerCase(), jiwer.RemovePunctuation()])
    for path, key in (("model.onnx", "parent"), ("model_int8.onnx", "value")):
        paths = [logits[0].argmax(-1) for logits in logits_of(tmp_path / "out" / path, Path("model"), sounds)]
        assert judged[key] == jiwer.wer(said, [plain(text) for text in tokenizer.batch_decode(paths)])
    photograph(tmp_path / "a.png")
    write_sound(tmp_path / "fast.wav", rate=44_100)
    for given, hint in (("--image a.png", "--audio"), ("--text a", "--audio"), ("--audio fast.wav", "16000")):
        assert reg("run", "acme/model", *given.split()).ended(2, hint), given


@pytest.mark.more
def test_clip_is_three_members_whose_vectors_are_those_of_transformers(reg: Reg, tmp_path: Path) -> None:
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    manifest = publish(reg, "CLIP", tmp_path)
    members = {item["name"]: item["artifacts"] for item in manifest["model_family"]["members"]}
    assert members == {"text": ["text_model.onnx"], "vision": ["vision_model.onnx"], "model": ["model.onnx"]}
    outputs = [item["metadata"]["outputs"][0]["name"] for item in manifest["artifacts"]]
    assert outputs == ["text_embeds", "image_embeds", "logits_per_image"]
    photograph(tmp_path / "photo.png")
    words = ("word1 another word2", "word3")
    two = ("--text", words[0], "--text", words[1])
    texts = reg("run", "acme/model", "--member", "text", *two, "--json").json
    image = reg("run", "acme/model", "--member", "vision", "--image", "photo.png", "--json").json
    assert reg("run", "acme/model", "--image", "photo.png").ended(3, "--member model or text or vision")
    assert reg("run", "acme/model", "--member", "text", "--image", "photo.png").ended(2, "--member vision")
    for member in ("vision", "model"):
        assert reg("run", "acme/model", "--member", member, "--text", "a").ended(2, "--member text")
    both = reg("run", "acme/model", "--member", "model", "--image", "photo.png", *two, "--json").json
    model, tokenizer = AutoModel.from_pretrained("model").eval(), AutoTokenizer.from_pretrained("model")
    pixels = AutoImageProcessor.from_pretrained("model")(Image.open("photo.png"), return_tensors="pt")
    with torch.no_grad():
        for item, text in zip(texts["embeddings"], words, strict=True):
            vector = model.get_text_features(**tokenizer(text, return_tensors="pt")).pooler_output[0]
            np.testing.assert_allclose(item["vector"], vector, atol=1e-4)
        vector = model.get_image_features(**pixels).pooler_output[0]
        np.testing.assert_allclose(image["vector"], vector, atol=1e-3)
        tokens = tokenizer([*words], return_tensors="pt", padding=True)
        scores = model(**pixels, **tokens).logits_per_image.softmax(-1)[0]
    given = {item["label"]: item["score"] for item in both["classes"]}
    np.testing.assert_allclose([given[text] for text in words], scores, atol=1e-4)


def tables(rows: np.random.Generator) -> dict[str, Any]:
    mask = (np.arange(21) < np.array([[21], [9]])).astype(np.int64)
    types = rows.integers(0, 2, (2, 21, 7)) * mask[..., None] * (np.arange(21) > 4)[:, None]
    return {
        "input_ids": rows.integers(1, 99, (2, 21)) * mask,
        "attention_mask": mask,
        "token_type_ids": types,
    }


def pairs(rows: np.random.Generator) -> dict[str, Any]:
    return {"pixel_values": rows.random((4, 1, 1, 64, 64), np.float32).repeat(2, axis=1).repeat(3, axis=2)}


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "change", "draw"),
    [
        ("TAPAS", {}, tables),
        pytest.param("TAPAS", {"num_aggregation_labels": 0}, tables, marks=pytest.mark.large),
        ("EfficientLoFTR", {}, pairs),
    ],
)
def test_questions_about_tables_and_matches_of_images_are_those_of_transformers(
    name: str, change: dict[str, Any], draw: Any, reg: Reg, tmp_path: Path
) -> None:
    import onnxruntime
    import torch
    import transformers

    save(replace(BY_NAME[name], config=BY_NAME[name].config | change), tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_text("[PAD]\n")
    assert reg("export", "model", "--name", "acme/model", "--output", "out").status == 0
    kind = json.loads(Path("model/config.json").read_bytes())["architectures"][0]
    feed = draw(np.random.default_rng(0))
    with torch.no_grad():
        model = getattr(transformers, kind).from_pretrained("model").eval()
        expected = model(**{key: torch.from_numpy(array) for key, array in feed.items()})
    assert len(expected[0].unique()) > 2  # not only cells of other columns, or places without a match
    session = onnxruntime.InferenceSession("out/model.onnx")
    for item, array in zip(session.get_outputs(), session.run(None, feed), strict=True):
        np.testing.assert_allclose(array, expected[item.name].clamp(min=-88.7), atol=1e-3)
    assert (item.name == "logits") == bool(change) and Path("out/vocab.txt").is_file() == (name == "TAPAS")
    assert reg("run", "acme/model", "--self-test").ended(0, "pass")
    given = ("--text", "who?") if name == "TAPAS" else ("--image", photograph(tmp_path / "photo.png"))
    assert reg("run", "acme/model", *given).ended(2, "--input")


@pytest.mark.more
def test_a_text_is_spoken_without_noise_as_transformers_speaks_it(reg: Reg, tmp_path: Path) -> None:
    import onnxruntime
    import torch
    from transformers import VitsModel, VitsTokenizer

    ids = np.random.default_rng(0).integers(1, 28, (5, 23))
    mask = (np.arange(23) < np.array([[23], [1], [9], [22], [4]])).astype(np.int64)
    feed = {"input_ids": ids * mask, "attention_mask": mask}
    np.savez(tmp_path / "rows.npz", **feed)
    words = ["--quantize", "--eval-suite", "rows.npz", "--output", "out"]
    manifest = publish(reg, "VITS", tmp_path, *words)
    assert manifest["task"] == "text-to-audio" and manifest["recipe"]["parameters"]["got"]["noise_scale"] == 0
    model = VitsModel.from_pretrained("model", noise_scale=0.0, noise_scale_duration=0.0).eval()
    settings = json.loads(Path("out/config.json").read_bytes())
    assert (settings["noise_scale"], settings["noise_scale_duration"]) == (0, 0)
    with torch.no_grad():
        expected = model(**{name: torch.from_numpy(array) for name, array in feed.items()})
    for name in ("model", "model_int8"):  # INT8 makes sounds of the same lengths
        wave, lengths = onnxruntime.InferenceSession(f"out/{name}.onnx").run(None, feed)
        np.testing.assert_array_equal(lengths, expected.sequence_lengths)
        np.testing.assert_allclose(wave, expected.waveform, atol=1e-3 if name == "model" else 0.5)
    assert Path("out/model_int8.onnx").stat().st_size < 0.8 * Path("out/model.onnx").stat().st_size
    (judged,) = json.loads(Path("out/certificates/model_int8.onnx.json").read_bytes())["metrics"]
    assert judged["metric"] == "output_cosine" and judged["value"] > 0.9
    assert reg("run", "acme/model", "--self-test").ended(0, "pass")
    said = reg("run", "acme/model", "--text", "The work!", "--output", "a.wav", "--json").json
    # the slow tokenizer leaves out the 0 after a k at the end
    tokens = [*VitsTokenizer.from_pretrained("model")("The work")["input_ids"], 0]
    with torch.no_grad():
        wave = model(torch.tensor([tokens])).waveform[0]
    np.testing.assert_allclose(said["waveform"], wave, atol=1e-3)
    heard = read_sound(
        Path("a.wav"), AudioPreprocessing(sampling_rate=said["sampling_rate"], normalize=False)
    )
    np.testing.assert_allclose(heard[0], wave, atol=2e-3)
    assert reg("run", "acme/model", "--text", "?").ended(2, "no tokens")
    assert reg("run", "acme/model", "--self-test", "--output", "b.wav").ended(2, "no sound")


@pytest.mark.large
@pytest.mark.more
def test_a_search_for_a_model_that_speaks_keeps_the_lengths_of_its_sounds(reg: Reg, tmp_path: Path) -> None:
    rows = np.random.default_rng(0)
    mask = (np.arange(9) < rows.integers(2, 10, (420, 1))).astype(np.int64)
    np.savez(tmp_path / "rows.npz", input_ids=rows.integers(1, 28, mask.shape) * mask, attention_mask=mask)
    words = ("--certify", "--eval-suite", "rows.npz", "--objective", "bytes", "--candidate")
    small = publish(reg, "VITS", tmp_path, *words, "stored8-kernels")["artifacts"][1]
    assert small["certification"]["state"] == "certified"
    lost = reg("export", "model", "--name", "acme/model", *words, "mixed-int8")
    assert lost.ended(7, "none of 1 candidates passes")


@pytest.mark.more
def test_sam_is_two_graphs_that_give_its_masks_and_are_judged_together(reg: Reg, tmp_path: Path) -> None:
    import onnxruntime
    import torch
    from transformers import SamModel

    generator = np.random.default_rng(0)
    pixels = generator.normal(size=(5, 3, 64, 64)).astype(np.float32)
    points = generator.uniform(0, 64, (5, 2, 3, 2)).astype(np.float32)
    labels = generator.integers(0, 2, (5, 2, 3))
    np.savez(tmp_path / "clicks.npz", pixel_values=pixels, input_points=points, input_labels=labels)
    words = ["--quantize", "--eval-suite", "clicks.npz", "--output", "out"]
    manifest = publish(reg, "SAM", tmp_path, *words)
    members = [item["name"] for item in manifest["model_family"]["members"]]
    assert manifest["task"] == "mask-generation" and members == [
        "vision_encoder",
        "prompt_encoder_mask_decoder",
    ]
    feed: dict[str, Any] = {"pixel_values": pixels, "input_points": points, "input_labels": labels}
    for member in members:
        session = onnxruntime.InferenceSession(f"out/{member}.onnx")
        given = {item.name: feed[item.name] for item in session.get_inputs()}
        feed |= dict(
            zip([item.name for item in session.get_outputs()], session.run(None, given), strict=True)
        )
    model = SamModel.from_pretrained("model").eval()
    inputs = {name: torch.from_numpy(feed[name]) for name in ("pixel_values", "input_points", "input_labels")}
    with torch.no_grad():
        masks = model(**inputs).pred_masks
    np.testing.assert_allclose(feed["pred_masks"], masks, atol=1e-4 * float(masks.abs().max()))
    for member in members:
        file = Path("out/certificates", f"{member}_int8.onnx.json")
        (judged,) = json.loads(file.read_bytes())["metrics"]
        assert judged["metric"] == "output_cosine" and judged["value"] > 0.9


@pytest.mark.more
@pytest.mark.parametrize("row", ["SmolVLM", pytest.param("Idefics 3", marks=pytest.mark.large)])
def test_three_graphs_write_about_an_image_what_generate_writes(row: str, reg: Reg, tmp_path: Path) -> None:
    """As Transformers.js runs them."""
    import onnxruntime
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModelForImageTextToText

    manifest = publish(reg, row, tmp_path, "--output", "out")
    members = {item["name"]: item["artifacts"] for item in manifest["model_family"]["members"]}
    files = {
        "embed_tokens": "embed_tokens",
        "vision_encoder": "vision_encoder",
        "decoder": "decoder_model_merged",
    }
    assert members == {name: [f"{file}.onnx"] for name, file in files.items()}
    for graph in manifest["artifacts"]:
        agreement = next(check for check in graph["checks"] if check["name"] == "generation")
        assert (agreement["metric"], agreement["value"], agreement["verdict"]) == (
            "token_agreement",
            1.0,
            "pass",
        )
    image = Image.open(photograph(tmp_path / "photo.png"))
    pixels = AutoImageProcessor.from_pretrained("model", backend="pil")(image, return_tensors="np")
    run = {name: onnxruntime.InferenceSession(f"out/{file}.onnx") for name, file in files.items()}
    pixels = {name: pixels[name] for name in ("pixel_values", "pixel_attention_mask")}
    pixels["pixel_attention_mask"] = pixels["pixel_attention_mask"].astype(bool)
    (features,) = run["vision_encoder"].run(None, pixels)
    token = json.loads(Path("model/config.json").read_text())["image_token_id"]
    prompt = np.array([[7, 8, *[token] * features[..., 0].size, 9, 10]])
    (embeds,) = run["embed_tokens"].run(None, {"input_ids": prompt})
    embeds[prompt == token] = features.reshape(-1, features.shape[-1])
    names = [item.name for item in run["decoder"].get_inputs()]
    past = {
        name: np.zeros((1, 2, 0, 16), np.float32) for name in names if name.startswith("past_key_values.")
    }
    written = list[int]()
    while len(written) < 20:
        end = prompt.size + len(written)
        feed = {"inputs_embeds": embeds, "attention_mask": np.ones((1, end), np.int64), **past}
        feed["position_ids"] = np.arange(end - embeds.shape[1], end)[None]
        logits, *present = run["decoder"].run(None, feed)
        past = dict(zip(past, present, strict=True))
        written.append(int(logits[0, -1].argmax()))
        (embeds,) = run["embed_tokens"].run(None, {"input_ids": np.array([written[-1:]])})
    model = AutoModelForImageTextToText.from_pretrained("model").eval()
    inputs = {name: torch.from_numpy(array) for name, array in pixels.items()}
    ids = torch.from_numpy(prompt)
    settings = {"max_new_tokens": 20, "min_new_tokens": 20, "do_sample": False}
    expected = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **inputs, **settings)
    assert written == expected[0, prompt.size :].tolist() and len({*written}) > 3


@pytest.mark.more
@pytest.mark.parametrize("row", ["VideoMAE", pytest.param("TimeSformer", marks=pytest.mark.large)])
def test_an_animation_is_classified_by_images_evenly_apart(row: str, reg: Reg, tmp_path: Path) -> None:
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModelForVideoClassification

    manifest = publish(reg, row, tmp_path)
    assert manifest["task"] == "video-classification" and "sample" in manifest["preprocessing"]
    assert reg("run", "acme/model", "--self-test").ended(0, "pass")
    still = Image.open(photograph(tmp_path / "photo.png"))
    turned = [still.rotate(10 * angle) for angle in range(7)]
    turned[0].save("film.webp", save_all=True, append_images=turned[1:], lossless=True)
    found = reg("run", "acme/model", "--image", "film.webp", "--json").json["classes"]
    model = AutoModelForVideoClassification.from_pretrained("model").eval()
    pixels = AutoImageProcessor.from_pretrained("model", backend="pil")(turned[::2], return_tensors="pt")
    with torch.no_grad():
        scores = model(**pixels).logits.softmax(-1)[0]
    given = {item["label"]: item["score"] for item in found}
    np.testing.assert_allclose([given[name] for name in ("cat", "dog", "owl")], scores, atol=1e-4)


@pytest.mark.more
@pytest.mark.parametrize("row", ["OWL-ViT", pytest.param("OWLv2", marks=pytest.mark.large)])
def test_texts_name_the_objects_that_a_detector_finds(row: str, reg: Reg, tmp_path: Path) -> None:
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModelForZeroShotObjectDetection, AutoTokenizer

    manifest = publish(reg, row, tmp_path)
    assert manifest["task"] == "zero-shot-object-detection"
    assert reg("run", "acme/model", "--self-test").ended(0, "pass")
    photograph(tmp_path / "photo.png")
    words = ("word1 another word2", "word3")
    given = ("--image", "photo.png", "--text", words[0], "--text", words[1])
    if row == "OWLv2":  # it fills an image up to a square
        assert reg("run", "acme/model", *given).ended(2, "--input")
        return
    for one in (given[:2], given[2:]):
        assert reg("run", "acme/model", *one).ended(2, "it takes image with texts: --image and --text")
    found = reg("run", "acme/model", *given, "--json").json["objects"]
    model = AutoModelForZeroShotObjectDetection.from_pretrained("model").eval()
    texts = AutoTokenizer.from_pretrained("model")([*words], return_tensors="pt", padding=True)
    pixels = AutoImageProcessor.from_pretrained("model", backend="pil")(
        Image.open("photo.png"), return_tensors="pt"
    )
    with torch.no_grad():
        result = model(**pixels, **texts)
    scores, labels = result.logits[0].sigmoid().max(-1)
    order = [at for at in scores.argsort(descending=True).tolist() if scores[at] >= 0.1]
    assert [item["label"] for item in found] == [words[labels[at]] for at in order] != []
    np.testing.assert_allclose([item["score"] for item in found], scores[order], atol=1e-3)
    x, y, width, height = result.pred_boxes[0, order[0]].tolist()
    box = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    np.testing.assert_allclose(found[0]["box"], box, atol=1e-3)


@pytest.mark.more
def test_a_decoder_is_one_graph_with_keys_and_values_that_continues_a_text(reg: Reg, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    manifest = publish(reg, "Gemma 3", tmp_path)
    (graph,) = manifest["artifacts"]
    names = [item["name"] for item in graph["metadata"]["inputs"]]
    assert names[:4] == ["input_ids", "attention_mask", "position_ids", "past_key_values.0.key"]
    agreement = {check["metric"]: check for check in graph["checks"]}["token_agreement"]
    assert (agreement["value"], agreement["verdict"]) == (1.0, "pass")
    answer = reg("run", "acme/model", "--text", "word1 another", "--max-tokens", "12", "--json").json
    model, tokenizer = AutoModelForCausalLM.from_pretrained("model"), AutoTokenizer.from_pretrained("model")
    ids = tokenizer("word1 another", return_tensors="pt")
    written = model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert answer["completion"]["tokens"] == len(written)
    beyond = reg("run", "acme/model", "--text", "word1 another", "--max-tokens", "999", "--json").json
    assert beyond["completion"]["tokens"] <= 64 + 1 - ids["input_ids"].shape[1]
    assert reg("run", "acme/model", "--text", "word1 " * 70).ended(2, "takes 64 at most")


DECODERS = [
    pytest.param(row.name, marks=[pytest.mark.large] * (row.name != "Phi-3")) for row in ROWS["Decoders"]
]


@pytest.mark.more
@pytest.mark.parametrize("name", DECODERS)
def test_onnxruntime_genai_continues_with_the_tokens_of_generate(name: str, reg: Reg, tmp_path: Path) -> None:
    import onnxruntime_genai
    import torch
    from transformers import AutoModelForCausalLM

    manifest = publish(reg, name, tmp_path, "--quantize", "--output", "out")
    assert "genai_config.json" in {file["path"] for file in manifest["files"]}
    prompts = [[13, 9, 21, 12, 36, 33, 35], [29, 18, 11]]
    model = AutoModelForCausalLM.from_pretrained("model").eval()
    for graph in ("model.onnx", "model_int8.onnx"):
        config = onnxruntime_genai.Config("out")
        config.overlay(json.dumps({"model": {"decoder": {"filename": graph}}}))
        loaded, given = onnxruntime_genai.Model(config), []
        for prompt in prompts:
            most = len(prompt) + 20
            options = onnxruntime_genai.GeneratorParams(loaded)
            options.set_search_options(max_length=most, min_length=most)
            generator = onnxruntime_genai.Generator(loaded, options)
            generator.append_tokens(prompt)
            while not generator.is_done():
                generator.generate_next_token()
            given.append(generator.get_sequence(0).tolist())
        assert [len(tokens) for tokens in given] == [27, 23]
        if graph == "model.onnx":
            least = {"min_new_tokens": 20, "max_new_tokens": 20, "do_sample": False}
            expected = [model.generate(torch.tensor([prompt]), **least)[0].tolist() for prompt in prompts]
            assert given == expected and len({*given[0]}) > 5


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("SegFormer", "segments"),
        pytest.param("DPT", "depth", marks=pytest.mark.large),
        pytest.param("DINOv2", "vector", marks=pytest.mark.large),
        pytest.param("RT-DETR", "objects", marks=pytest.mark.large),
        pytest.param("TrOCR", "generated", marks=pytest.mark.large),
        pytest.param("Donut", "", marks=pytest.mark.large),
        pytest.param("YOLOS", "", marks=pytest.mark.large),
    ],
)
def test_an_image_is_answered_by_the_outputs_of_the_graph(
    name: str, key: str, reg: Reg, tmp_path: Path
) -> None:
    manifest = publish(reg, name, tmp_path)
    photograph(tmp_path / "photo.png")
    answer = reg("run", "acme/model", "--image", "photo.png", "--json")
    if key:
        assert not answer.err and key in answer.json and "preprocessing" in manifest
    else:  # the images keep their ratio
        assert answer.ended(2, "--input")
    if key == "generated":  # random weights write on until the last position
        assert (answer.json[key]["tokens"], answer.json[key]["finish"]) == (64, "length")
        Path("pages.jsonl").write_text(json.dumps({"image": "photo.png", "text": answer.json[key]["text"]}))
        words = "export model --name acme/model --quantize --eval-suite pages.jsonl --item-scores"
        assert reg(*words.split()).ended(0, "word_error_rate needs 200")
        assert reg("certificates", "acme/model", "--recompute").ended(0, "4 certificates as recorded")


BAD = {
    "a processor with a mistake": ("wav2vec2, CTC", "preprocessor_config.json", {"sampling_rate": "x"}, "could not be loaded"),
    "a config that lies": ("DINOv2", "config.json", {"num_channels": 4}, "shapes differ from its config"),
    "a choice at random": ("CLAP", "config.json", {"audio_config": {"enable_fusion": True}}, "with fusion"),
    "a task that is done elsewhere": ("VITS", "config.json", {"architectures": ["SpeechT5ForTextToSpeech"]}, "which no task here exports: text-to-audio"),
    "a tokenizer that calls a program": ("VITS", "tokenizer_config.json", {"is_uroman": True}, "no tokenizer.json has"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_and_nothing_is_published(case: str, reg: Reg, tmp_path: Path) -> None:
    name, file, change, message = BAD[case]
    path = save(BY_NAME[name], tmp_path / "model") / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert reg("export", "model", "--name", "acme/model").ended(2, message)
    assert "acme/model" not in reg("ls").out


@pytest.mark.large
@pytest.mark.more
@pytest.mark.parametrize("row", ["LayoutLMv3", "LayoutLMv3, answers"])
def test_a_page_is_read_with_its_boxes_and_its_image(row: str, reg: Reg, tmp_path: Path) -> None:
    (graph,) = publish(reg, row, tmp_path)["artifacts"]
    names = [item["name"] for item in graph["metadata"]["inputs"]]
    assert names == ["input_ids", "attention_mask", "bbox", "pixel_values"]
    for output in graph["metadata"]["outputs"]:  # none for parts of the image
        assert [axis["name"] for axis in output["shape"][:2]] == ["batch", "sequence"]
    assert reg("run", "acme/model", "--self-test").ended(0, "pass")
    assert reg("run", "acme/model", "--text", "word1").ended(2, "--input")


def test_a_static_embedding_is_the_mean_of_rows_without_special_tokens(reg: Reg, tmp_path: Path) -> None:
    from safetensors.numpy import save_file
    from tokenizers.processors import TemplateProcessing

    folder = tmp_path / "static" / "0_StaticEmbedding"
    folder.mkdir(parents=True)
    backend = word_tokenizer().backend_tokenizer
    special = [("[CLS]", 0), ("[SEP]", 2)]
    backend.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    backend.save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    save_file({"embedding.weight": table}, folder / "model.safetensors")
    kinds = {"StaticEmbedding": folder.name, "Normalize": "1_Normalize"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    (tmp_path / "static" / "modules.json").write_text(json.dumps(modules))

    made = reg("export", "static", "--name", "acme/static", "--quantize")
    assert made.status == 0 and "task pooling: modules.json says StaticEmbedding, Normalize" in made.err
    full = reg("run", "acme/static", "--text", "w5 w9 w9", "--json").json
    mean = table[[5, 9, 9]].mean(0)
    np.testing.assert_allclose(full["embeddings"][0]["vector"], mean / np.linalg.norm(mean), atol=1e-5)
    small = reg("run", "acme/static", "--text", "w5 w9 w9", "--precision", "int8", "--json").json
    assert np.dot(small["embeddings"][0]["vector"], full["embeddings"][0]["vector"]) > 0.99
    (folder / "tokenizer.json").unlink()
    assert reg("export", "static", "--name", "acme/other").ended(2, "has no 0_StaticEmbedding/tokenizer.json")


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # peft asks transformers
def test_an_adapter_is_merged_into_its_model_and_refused_on_another(reg: Reg, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    import torch
    from transformers import AutoModelForTokenClassification

    row = BY_NAME["BERT"]
    for name, change in {"base": {}, "other": {"num_hidden_layers": 3}, "wide": {"hidden_size": 64}}.items():
        save(replace(row, config={**row.config, "num_hidden_layers": 2, **change}), tmp_path / name)
    model = AutoModelForTokenClassification.from_pretrained("base").eval()
    settings = peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, settings).eval()
    adapted.save_pretrained("adapter")
    manifest: Any = {}
    for card, words in {"base": "mit", "adapter": "cc-by-nc-4.0"}.items():  # the second card is more specific
        (tmp_path / card / "README.md").write_text(f"---\nlicense: {words}\n---\n")
        made = reg("export", "adapter", "--name", "acme/model")
        assert made.status == 0 and "an adapter of a model whose config.json says BertForToken" in made.err
        manifest = reg("show", "acme/model", "--json").json
        assert manifest["license"] == words
    recipe = manifest["recipe"]
    recorded = recipe["parameters"]["got"]["adapter"]
    assert recipe["tools"]["peft"] == peft.__version__
    assert recorded["digest"].startswith("sha256:") and recorded["base"]["digest"].startswith("sha256:")
    feed = {"input_ids": [[5, 6, 7]], "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}
    (tmp_path / "x.json").write_text(json.dumps(feed))
    output = reg("run", "acme/model", "--input", "x.json", "--json").json["outputs"]["logits"]
    with torch.no_grad():
        expected = adapted(**{name: torch.tensor(ids) for name, ids in feed.items()}).logits.reshape(-1)
        with adapted.disable_adapter():
            plain = adapted(**{name: torch.tensor(ids) for name, ids in feed.items()}).logits.reshape(-1)
    np.testing.assert_allclose(output["data"], expected, atol=1e-4)
    assert abs(expected - plain).max() > 0.01

    path = tmp_path / "adapter" / "adapter_config.json"
    config = json.loads(path.read_text())
    absent = ("absent/../x", "an adapter of x, which is not here")
    for base, message in (("other", "another model"), ("wide", "query.lora_A"), absent):
        path.write_text(json.dumps({**config, "base_model_name_or_path": base}))
        assert reg("export", "adapter", "--name", "acme/no").ended(2, message)
    path.write_text(json.dumps(config))
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    assert reg("export", "adapter", "--name", "acme/no").ended(2, "no adapter_model.safetensors")

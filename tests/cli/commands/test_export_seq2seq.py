"""`reg export` of an encoder-decoder: graphs with Optimum's names, which generate what the model generates, also in `reg run`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import Reg
from support.sounds import write_sound
from support.tasks.seq2seq import KINDS, SPEECH, TEXT, save

from onnxreg.converters import export
from onnxreg.converters.tasks import task as kinds
from onnxreg.converters.tasks.generation import (
    ENCODER,
    MERGED,
    STAGES,
    Answer,
    Generator,
    ProcessedSeq2Seq,
    Rules,
    Seq2Seq,
    generate,
    prove,
)
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

SIDES = [f"{side}.{kind}" for side in ("decoder", "encoder") for kind in ("key", "value")]
STEPS = 15


def answer(source: Path, sound: Any) -> tuple[list[int], str]:
    """The tokens and the text that the model itself generates, by its own rules and greedily."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    if sound is None:
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(source)
        inputs = tokenizer(TEXT, return_tensors="pt")
    else:
        model = transformers.AutoModelForSpeechSeq2Seq.from_pretrained(source)
        extractor = transformers.AutoFeatureExtractor.from_pretrained(source)
        inputs = extractor(sound, sampling_rate=16_000, return_tensors="pt")
    with torch.no_grad():
        ids = model.eval().generate(**inputs, max_new_tokens=STEPS, do_sample=False, num_beams=1)
    return ids[0].tolist()[-STEPS:], tokenizer.decode(ids[0], skip_special_tokens=True)


def published(reg: Reg, kind: str, layers: int) -> dict[str, Any]:
    """The manifest: its graphs have the names of Optimum, the merged file is small, and the tokens agree."""
    manifest = reg("show", "acme/m", "--json").json
    manifest = manifest.get("manifest", manifest)
    assert [member["name"] for member in manifest["model_family"]["members"]] == list(STAGES)
    artifacts = {artifact["path"]: artifact for artifact in manifest["artifacts"]}
    names = {path: [item["name"] for item in one["metadata"]["inputs"]] for path, one in artifacts.items()}
    past = [f"past_key_values.{layer}.{side}" for layer in range(layers) for side in SIDES]
    mask = [] if kind in SPEECH else ["encoder_attention_mask"]
    assert names["encoder_model.onnx"] == {"whisper": ["input_features"], "moonshine": ["input_values"]}.get(
        kind, ["input_ids", "attention_mask"]
    )
    assert names["decoder_model.onnx"] == [*mask, "input_ids", "encoder_hidden_states"]
    assert names["decoder_with_past_model.onnx"] == [*mask, "input_ids", *past]
    assert names["decoder_model_merged.onnx"] == [*names["decoder_model.onnx"], *past, "use_cache_branch"]
    outputs = {path: [item["name"] for item in one["metadata"]["outputs"]] for path, one in artifacts.items()}
    present = [name.replace("past_key_values", "present") for name in past]
    assert outputs["decoder_model_merged.onnx"] == ["logits", *present]
    of_decoder = [name for name in present if "decoder" in name]
    assert outputs["decoder_with_past_model.onnx"] == ["logits", *of_decoder]
    sizes = {path: artifact["size"] for path, artifact in artifacts.items()}
    separate = sizes["decoder_model.onnx"] + sizes["decoder_with_past_model.onnx"]
    assert sizes["decoder_model_merged.onnx"] < 0.75 * separate
    for path, artifact in artifacts.items():
        (check,) = (check for check in artifact["checks"] if check["metric"] == "token_agreement")
        assert check["samples"] in (60, 80) and (check["verdict"] == "info") == ("int8" in path)
        assert check["value"] == 1 if check["verdict"] == "pass" else 0 < check["value"] <= 1
    return manifest  # type: ignore[no-any-return]


@pytest.mark.large
@pytest.mark.parametrize("kind", (*KINDS, *SPEECH))
def test_the_published_files_generate_what_the_model_generates(kind: str, reg: Reg, tmp_path: Path) -> None:
    source = save(kind, tmp_path / kind, 2)
    quantize = ("--quantize",) if kind in ("bart", "whisper") else ()
    made = reg("export", kind, "--name", "acme/m", "--output", "out", *quantize)
    task = "automatic-speech-recognition" if kind in SPEECH else "text2text-generation"
    assert made.status == 0 and f"task {task}: config.json says" in made.err, made.err
    manifest = published(reg, kind, 2)
    sound = write_sound(tmp_path / "a.wav") if kind in SPEECH else None
    given = ("--text", TEXT) if sound is None else ("--audio", "a.wav")
    ids, text = answer(source, sound)
    run = reg("run", "acme/m", *given, "--max-tokens", str(STEPS), "--json").json
    assert run["generated"] == {"text": text, "tokens": STEPS, "finish": "length"}
    assert run["paths"] == ["encoder_model.onnx", "decoder_model_merged.onnx"] and len({*ids}) > 1
    if quantize:
        small = reg("run", "acme/m", *given, "--max-tokens", "9", "--precision", "int8", "--json").json
        assert small["paths"] == ["encoder_model_int8.onnx", "decoder_model_merged_int8.onnx"]
        assert small["generated"]["text"]
    assert reg("run", "acme/m", "--member", "encoder", "--self-test").ended(0, "pass")
    if sound is not None:
        write_sound(tmp_path / "fast.wav", rate=44_100)
        assert reg("run", "acme/m", "--audio", "fast.wav").ended(2, "44100 samples a second", "-ar 16000")
        assert reg("run", "acme/m", "--text", "a").ended(2, "acme/m", "--audio")
        audio = manifest["audio_preprocessing"]
        assert audio["sampling_rate"] == 16_000 and audio.get("mels") == (80 if kind == "whisper" else None)
    if kind == "whisper":
        write_sound(tmp_path / "long.wav", seconds=2.5)
        assert reg("run", "acme/m", "--audio", "long.wav").ended(2, "lasts 2.5 seconds")


@pytest.mark.more
def test_a_translator_is_judged_by_what_its_published_files_write(reg: Reg, tmp_path: Path) -> None:
    """Each INT8 file with the others of its precision, against the model's own texts, which float32 writes exactly."""
    import sacrebleu
    import tokenizers
    import torch
    import transformers

    source = save("t5", tmp_path / "t5", 1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(source).eval()
    texts = [f"word{n % 9} another {n}" for n in range(480)]
    with torch.no_grad():
        given = tokenizer(texts, return_tensors="pt", padding=True)
        rows = model.generate(**given, max_new_tokens=8, num_beams=1)
    targets = tokenizer.batch_decode(rows, skip_special_tokens=True)
    said = [(text, target) for text, target in zip(texts, targets, strict=True) if target.strip()][:201]
    texts, targets = [text for text, _ in said], [target for _, target in said]
    settings = json.loads((source / "generation_config.json").read_text()) | {"max_new_tokens": 8}
    (source / "generation_config.json").write_text(json.dumps(settings))
    pairs = [{"text": text, "target": target} for text, target in zip(texts, targets, strict=True)]
    Path("suite.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    judged = ("--eval-suite", "suite.jsonl", "--item-scores", "--output", "out")
    words = ("--name", "acme/m", "--quantize", *judged)
    assert reg("export", "t5", *words).status == 0

    paths = {name: tmp_path / "out" / path.replace(".onnx", "_int8.onnx") for name, path in STAGES.items()}
    small = Generator({name: paths[name] for name in (ENCODER, MERGED)})
    reader = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    scores = []
    for text, target in zip(texts, targets, strict=True):
        encoded = reader.encode(text)
        feed = {"input_ids": np.array([encoded.ids]), "attention_mask": np.array([encoded.attention_mask])}
        written = reader.decode(generate(small, feed, Rules.read(settings))[0])
        scores.append(sacrebleu.sentence_chrf(written, [target]).score / 100)
    certificates = {
        path.name: json.loads(path.read_text()) for path in (tmp_path / "out/certificates").glob("*.json")
    }
    assert certificates.keys() == {f"{path.name}.json" for path in paths.values()}
    for name, one in certificates.items():
        (record,) = one["metrics"]
        assert (record["metric"], record["parent"], record["samples"]) == ("chrf", 1.0, 201)
        assert one["state"] == ("certified" if record["loss"] < 0.01 else one["state"]) != "unknown"
        graphs = record["settings"]["graphs"]
        assert one["artifact"] in graphs.values() and graphs.keys() < {*STAGES}
        if "encoder" in name or "merged" in name:
            assert record["value"] == pytest.approx(np.mean(scores)) and graphs.keys() == {ENCODER, MERGED}
    assert reg("certificates", "acme/m", "--recompute").ended(0, "4 certificates as recorded")
    assert reg("export", "t5", *words, "--certify").ended(2, "a search makes one graph")

    published(reg, "t5", 1)
    run = reg("run", "acme/m", "--text", texts[0], "--precision", "float32", "--json").json
    assert run["paths"] == ["encoder_model.onnx", "decoder_model_merged.onnx"]
    assert run["generated"]["text"] == targets[0]
    assert reg("run", "acme/m", "--audio", "a.wav").ended(2, "acme/m", "--text")
    assert reg("run", "acme/m", "--text", "a", "--context", "b").ended(2, "one text at a time")
    assert reg("run", "acme/m", "--member", "encoder", "--self-test").ended(0, "pass")
    short, full = (len(reg("show", "acme/m", *words).out.splitlines()) for words in ((), ("--full",)))
    assert 1.5 * short < full
    one_wrong_token_is_found(tmp_path / "out")
    absurd_settings_end_in_an_answer_or_an_error(tmp_path / "out")


@pytest.mark.large
def test_what_a_recognizer_hears_is_judged_by_its_words(reg: Reg, tmp_path: Path) -> None:
    save("whisper", tmp_path / "whisper", 1)
    lines = []
    for number in range(6):
        write_sound(tmp_path / f"{number}.wav", seconds=0.5 + number / 5)
        lines.append(json.dumps({"audio": f"{number}.wav", "text": "word1 another"}))
    suite = tmp_path / "suite.jsonl"
    suite.write_text("\n".join(lines))
    words = ("--name", "acme/w", "--quantize", "--eval-suite", "suite.jsonl", "--item-scores")
    made = reg("export", "whisper", *words)
    assert made.ended(0, "word_error_rate needs 200: nothing can be certified")
    assert reg("certificates", "acme/w", "--recompute").ended(0, "4 certificates as recorded")
    assert "encoder_model_int8.onnx            word_error_rate " in reg("show", "acme/w").out
    write_sound(tmp_path / "2.wav", rate=8_000)
    wrong = reg("export", "whisper", *words)
    assert wrong.ended(2, "suite.jsonl, line 3: ", "8000 samples a second") and "running" not in wrong.err


def absurd_settings_end_in_an_answer_or_an_error(files: Path) -> None:
    model = Generator({name: files / STAGES[name] for name in (ENCODER, MERGED)})
    feed = {"input_ids": np.array([[9, 8, 7]]), "attention_mask": np.ones((1, 3), np.int64)}
    start = {"decoder_start_token_id": 0}
    for absurd in (
        {"lang_to_id": {"en": 10**7, "de": -1}},
        {"decoder_start_token_id": -1, "repetition_penalty": 2.0},
        {"suppress_tokens": [-1, 10**9], "no_repeat_ngram_size": 10**9, "bad_words_ids": [[]]},
        {"max_new_tokens": -5, "max_length": -1},
    ):
        assert len(generate(model, feed, Rules.read(start | absurd), 2)[0]) == 2
    few = {"max_new_tokens": 10**9, "max_position_embeddings": 3}
    assert len(generate(model, feed, Rules.read(start | few))[0]) == 3
    for wrong in (
        {"decoder_start_token_id": 2**70},
        {"decoder_start_token_id": 10**9},
        {"eos_token_id": "a"},
    ):
        with pytest.raises((ConversionError, InputError)):
            generate(model, feed, Rules.read(start | wrong), 2)


def one_wrong_token_is_found(files: Path) -> None:
    """The proof takes the tokens that the files give, with either decoder, and refuses others by step and file."""
    ids, mask = np.array([[9, 8, 7, 6, 11, 12], [5, 9, 10, 0, 0, 0]]), np.array([[1] * 6, [1] * 3 + [0] * 3])
    feed = {"input_ids": ids, "attention_mask": mask}
    paths = {name: files / STAGES[name] for name in (ENCODER, MERGED)}
    model = Generator(paths)
    decode, tokens = model.decoding(model.encode(feed)), [np.zeros((2, 1), np.int64)]
    for _ in range(STEPS):
        tokens.append(decode(tokens[-1]).argmax(1)[:, None])
    expected = np.concatenate(tokens[1:], axis=1)
    wrong = expected.copy()
    wrong[1, 4] = (wrong[1, 4] + 1) % 20
    pieces = tuple(DraftArtifact("onnx", "float32", path, fields={"checks": []}) for path in STAGES.values())
    for changed, file in (({}, "decoder_model_merged"), ({MERGED: ""}, "decoder_with_past_model")):
        stages = {**STAGES, **changed}
        kept = tuple(piece for piece in pieces if piece.path in stages.values())
        family = {"members": [{"name": name, "artifacts": [path]} for name, path in stages.items()]}
        draft = Draft("acme/m", files, kept, (), {"model_family": family})
        proven = prove([Answer(feed, tokens[0], expected)], draft)
        assert {piece.fields["checks"][0]["value"] for piece in proven.artifacts} == {1}
        with pytest.raises(ConversionError, match=rf"{file}\.onnx generates another text .*: token 5"):
            prove([Answer(feed, tokens[0], wrong)], draft)


def bad(directory: Path, name: str) -> Path:
    save("t5", directory, layers=1)
    if name == "processor":
        (directory / "preprocessor_config.json").write_text("{}")
    for path in (directory / "config.json", directory / "generation_config.json"):
        settings = json.loads(path.read_bytes())
        if name == "start":
            settings.pop("decoder_start_token_id", None)
        path.write_text(json.dumps(settings))
    return directory


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("processor", "the checkpoint reads images or sound"),
        ("start", "has no decoder_start_token_id, with which an answer begins"),
    ],
)
def test_an_encoder_decoder_that_is_refused(name: str, message: str, tmp_path: Path) -> None:
    task = Seq2Seq.of(kinds.SEQ2SEQ)()
    source = str(bad(tmp_path / "t5", name))
    (tmp_path / "files").mkdir()
    with pytest.raises(InputError) as refused:
        task.load(task.find(source), "acme/m", tmp_path / "files")
    assert message in refused.value.message and refused.value.hint


@pytest.mark.parametrize("kind", SPEECH)
def test_an_encoder_decoder_of_sound_is_found_with_its_processor(kind: str, tmp_path: Path) -> None:
    task, source = ProcessedSeq2Seq.of(kinds.SPEECH)(), save(kind, tmp_path / kind, 1)
    assert task.find(str(source)).location
    (source / "preprocessor_config.json").unlink()
    with pytest.raises(InputError, match=r"preprocessor_config\.json"):
        task.find(str(source))


def test_what_three_graphs_do_not_take(reg: Reg, tmp_path: Path) -> None:
    save("t5", tmp_path / "t5", layers=1)
    (tmp_path / "s.jsonl").write_text('{"text": "a"}\n')
    assert reg("export", "t5", "--name", "acme/m", "--eval-suite", "s.jsonl").ended(2, "s.jsonl", "target")
    assert reg("export", "t5", "--name", "acme/m", "--task", "pooling").ended(2, "words so far")
    for output in (None, str(tmp_path / "a.onnx")):
        with pytest.raises(InputError, match="makes 4 graphs that work together"):
            export(str(tmp_path / "t5"), task="translation", output=output, opset=18)
    steps = [{"name": "a", "pass": "TransformersExport"}]
    for part, message in ((None, "the source has no part None"), ("x", "the source has no part x")):
        params = {} if part is None else {"params": {"part": part}}
        document = {"task": "translation", "steps": [{**steps[0], **params}]}
        (tmp_path / "r.json").write_text(json.dumps(document))
        assert reg("export", "t5", "--name", "acme/m", "--recipe", "r.json").ended(
            2, message, "encoder, decoder"
        )

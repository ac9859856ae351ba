"""Transformers.js and Optimum, unmodified, answer with encoder-decoders and models of images of `reg serve` what `reg run` does."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import npm, python_of
from e2e.test_hub_clients import loads
from support.servers.regserve import Site, running
from support.sounds import write_sound
from support.tasks.saved_images import SIDE, photograph
from support.tasks.seq2seq import save
from support.tasks.table import ROWS
from support.tasks.table import save as save_row

from onnxreg.converters.source.toolchain import instruction_set
from onnxreg.registry.server.settings import Settings

pytestmark = pytest.mark.timeout(1800)
TEXT, TOKENS = "word1 another 5 word7", 12
OPTIMUM = """
import json, sys
import numpy, torch
from huggingface_hub import hf_hub_download
from optimum.onnxruntime import ORTModelForSeq2SeqLM, ORTModelForSpeechSeq2Seq
from tokenizers import Tokenizer
from transformers import AutoFeatureExtractor
text, samples, tokens = sys.argv[1:]
def of(name):
    return Tokenizer.from_file(hf_hub_download(name, "tokenizer.json"))
answers, words = [], torch.tensor([of("acme/t5").encode(text).ids])
for use_merged in (True, False):
    model = ORTModelForSeq2SeqLM.from_pretrained("acme/t5", use_merged=use_merged)
    ids = model.generate(words, attention_mask=torch.ones_like(words), max_new_tokens=int(tokens))
    answers.append(of("acme/t5").decode(ids[0].tolist()))
sound = numpy.fromfile(samples, "<f4")
features = AutoFeatureExtractor.from_pretrained("acme/whisper")(sound, sampling_rate=16000, return_tensors="pt")
ids = ORTModelForSpeechSeq2Seq.from_pretrained("acme/whisper").generate(**features, max_new_tokens=int(tokens))
answers.append(of("acme/whisper").decode(ids[0].tolist()))
print(json.dumps(answers))
"""


@pytest.fixture
def site(reg: Callable[..., Any], tmp_path: Path) -> Iterator[Site]:
    for kind in ("t5", "whisper"):
        save(kind, tmp_path / kind, layers=1)
        reg("export", kind, "--name", f"acme/{kind}", "--quantize")
    with running(tmp_path / "home", Settings(origins=("*",))) as site:
        yield site


@pytest.mark.large
def test_clients_generate_what_reg_run_generates(site: Site, reg: Callable[..., Any], tmp_path: Path) -> None:
    write_sound(tmp_path / "a.wav").tofile(tmp_path / "a.f32")

    def own(model: str, *words: str) -> str:
        done = reg("run", model, *words, "--max-tokens", str(TOKENS), "--json")
        return str(json.loads(done.stdout)["generated"]["text"])

    def job(task: str, model: str, dtype: str, **more: str) -> tuple[dict[str, Any], str]:
        words = ["--text", TEXT] if "text" in more else ["--audio", "a.wav"]
        words += ["--precision", "int8"] if dtype == "q8" else []
        return {"task": task, "model": model, "dtype": dtype, "tokens": TOKENS, **more}, own(model, *words)

    samples = str(tmp_path / "a.f32")
    jobs = [
        job("translation", "acme/t5", "fp32", text=TEXT),
        job("text2text-generation", "acme/t5", "q8", text=TEXT),
        job("automatic-speech-recognition", "acme/whisper", "fp32", samples=samples),
        job("automatic-speech-recognition", "acme/whisper", "q8", samples=samples),
    ]
    modules = npm("hub-clients", "@huggingface/transformers@4.3.1", "playwright-core@1.65.1")
    script = Path(__file__).with_name("generation_client.mjs")
    words = [script, modules, site.url, tmp_path / "cache", json.dumps([one for one, _ in jobs])]
    expected = [text for _, text in jobs]
    answers = loads(["node", *words], site, tmp_path)
    pairs = [(told.strip(), text.strip()) for told, text in zip(answers, expected, strict=True)]
    isa = instruction_set()
    saturates = isa.startswith("x86_64") and "vnni" not in isa
    if saturates:  # INT8 products do in a client: other tokens
        pairs = [pair for pair, (one, _) in zip(pairs, jobs, strict=True) if one["dtype"] != "q8"]
    assert all(told == text for told, text in pairs), pairs

    words = [python_of("sentences"), "-c", OPTIMUM, TEXT, samples, TOKENS]
    text, speech = own("acme/t5", "--text", TEXT), expected[2]
    assert loads(words, site, tmp_path) == [text, text, speech]


@pytest.mark.large
def test_transformers_js_sees_what_reg_run_and_transformers_see(
    reg: Callable[..., Any], tmp_path: Path
) -> None:
    """A photograph of the size that both models take: the two libraries scale by filters of their own."""
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    rows = {row.name: row for rows in ROWS.values() for row in rows}
    for name in ("ViT", "CLIP"):
        save_row(rows[name], tmp_path / name.lower())
        reg("export", name.lower(), "--name", f"acme/{name.lower()}")
    photograph(tmp_path / "a.png", size=(SIDE, SIDE))
    classes = json.loads(reg("run", "acme/vit", "--image", "a.png", "--json").stdout)["classes"]
    texts = ["word1 another word2", "word3"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "clip")
    processor = AutoImageProcessor.from_pretrained(tmp_path / "clip")
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    pixels = processor(Image.open(tmp_path / "a.png"), return_tensors="pt")
    with torch.no_grad():
        logits = AutoModel.from_pretrained(tmp_path / "clip").eval()(**inputs, **pixels).logits_per_image[0]
    modules = npm("hub-clients", "@huggingface/transformers@4.3.1", "playwright-core@1.65.1")
    script = Path(__file__).with_name("image_client.mjs")
    with running(tmp_path / "home", Settings(origins=("*",))) as site:
        words = [script, modules, site.url, tmp_path / "cache", tmp_path / "a.png", json.dumps(texts)]
        seen, matched = loads(["node", *words], site, tmp_path)
    assert seen == pytest.approx({item["label"]: item["score"] for item in classes}, abs=1e-4)
    assert matched == pytest.approx(dict(zip(texts, logits.softmax(0).tolist(), strict=True)), abs=1e-4)

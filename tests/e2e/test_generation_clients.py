"""Transformers.js in Node and in Chromium, and Optimum, unmodified, answer with models of `reg serve` what `reg run` does.

The models: a T5 that translates, a Whisper, a ViT, and a CLIP, whose scores are compared with those of transformers.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e2e.conftest import environment_of, npm, python_of
from e2e.test_hub_clients import IMPORTS, WASM, downloads, loads
from support.servers.browser import browsing, needs_chromium, serving
from support.servers.regserve import Site, running
from support.sounds import write_sound
from support.tasks.saved_images import SIDE, photograph
from support.tasks.seq2seq import save
from support.tasks.table import ROWS
from support.tasks.table import save as save_row

from onnxreg.converters.source.toolchain import instruction_set
from onnxreg.registry.server.settings import Settings

pytestmark = [pytest.mark.large, pytest.mark.timeout(1800)]
TEXT, TEXTS, TOKENS = "word1 another 5 word7", ["word1 another word2", "word3"], 12
PAGE = f"""async (host, jobs) => {{{WASM}
  const {{ RawImage }} = await import('@huggingface/transformers')
  const {{ answer }} = await import('/pipelines.mjs')
  return answer({{ env, pipeline, RawImage }}, host, jobs)
}}"""
OPTIMUM = """
import json, sys
import numpy, torch
from huggingface_hub import hf_hub_download
from optimum.onnxruntime import ORTModelForImageClassification, ORTModelForSeq2SeqLM, ORTModelForSpeechSeq2Seq
from tokenizers import Tokenizer
from transformers import AutoFeatureExtractor
text, samples, pixels, tokens = sys.argv[1:]
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
model = ORTModelForImageClassification.from_pretrained("acme/vit")
scores = model(pixel_values=torch.tensor(numpy.load(pixels))).logits[0].softmax(-1).tolist()
answers.append({model.config.id2label[number]: score for number, score in enumerate(scores)})
print(json.dumps(answers))
"""


@dataclass(frozen=True)
class Published:
    """A registry with four models, the inputs beside it, and what `reg run` (for the CLIP, transformers) answers."""

    directory: Path
    translated: str
    translated_int8: str
    heard: str
    heard_int8: str
    classes: dict[str, float]
    matched: dict[str, float]

    def jobs(self, image: str, device: str | None = None) -> list[tuple[dict[str, Any], Any]]:
        """What each pipeline is asked, with the right answer."""
        samples = np.fromfile(self.directory / "a.f32", "<f4").tolist()
        t5: dict[str, Any] = {"model": "acme/t5", "text": TEXT, "options": {"max_new_tokens": TOKENS}}
        speech = {"task": "automatic-speech-recognition", **t5, "model": "acme/whisper", "samples": samples}
        vit = {"task": "image-classification", "model": "acme/vit", "image": image, "options": {"top_k": 3}}
        clip = {**vit, "model": "acme/clip", "texts": TEXTS, "options": {"hypothesis_template": "{}"}}
        top = dict(sorted(self.classes.items(), key=lambda item: -item[1])[:3])
        rows = [
            ({**t5, "task": "translation", "dtype": "fp32"}, self.translated),
            ({**speech, "dtype": "fp32"}, self.heard),
            ({**vit, "dtype": "fp32"}, top),
            ({**clip, "task": "zero-shot-image-classification", "dtype": "fp32"}, self.matched),
        ]
        isa = instruction_set()
        if not isa.startswith("x86_64") or "vnni" in isa:  # elsewhere INT8 products saturate in a client
            rows += [
                ({**t5, "task": "text2text-generation", "dtype": "q8"}, self.translated_int8),
                ({**speech, "dtype": "q8"}, self.heard_int8),
            ]
        return [({**job, "device": device} if device else job, right) for job, right in rows]


@pytest.fixture(scope="module")
def published(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Published:
    directory = tmp_path_factory.mktemp("generation-clients")

    def reg(*words: str) -> str:
        command = [sys.executable, "-m", "onnxreg.cli", *words]
        environment = environment_of(directory)
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def own(model: str, *words: str) -> str:
        printed = json.loads(reg("run", model, *words, "--max-tokens", str(TOKENS), "--json"))
        return str(printed["generated"]["text"])

    rows = {row.name: row for rows in ROWS.values() for row in rows}
    for kind in ("t5", "whisper"):
        save(kind, directory / kind, layers=1)
        reg("export", kind, "--name", f"acme/{kind}", "--quantize")
    for name in ("ViT", "CLIP"):
        save_row(rows[name], directory / name.lower())
        kind = name.lower()
        reg("export", kind, "--name", f"acme/{kind}", "--output", f"{kind}-files")
    write_sound(directory / "a.wav").tofile(directory / "a.f32")
    photograph(directory / "a.png", size=(SIDE, SIDE))  # libraries scale by filters of their own
    precisions = ([], ["--precision", "int8"])
    texts = [own("acme/t5", "--text", TEXT, *precision) for precision in precisions]
    texts += [own("acme/whisper", "--audio", "a.wav", *precision) for precision in precisions]
    classes = json.loads(reg("run", "acme/vit", "--image", "a.png", "--json"))["classes"]
    scores = {item["label"]: item["score"] for item in classes}
    return Published(directory, *texts, scores, matched(directory / "clip", directory / "a.png"))


def pixels_of(checkpoint: Path, image: Path) -> Any:
    """The image as PyTorch's tensor, by the checkpoint's own processor."""
    from PIL import Image
    from transformers import AutoImageProcessor

    return AutoImageProcessor.from_pretrained(checkpoint)(Image.open(image), return_tensors="pt")


def matched(checkpoint: Path, image: Path) -> dict[str, float]:
    """How well the texts fit the image, by transformers."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    inputs = AutoTokenizer.from_pretrained(checkpoint)(TEXTS, return_tensors="pt", padding=True)
    model = AutoModel.from_pretrained(checkpoint).eval()
    with torch.no_grad():
        logits = model(**inputs, **pixels_of(checkpoint, image)).logits_per_image[0]
    return dict(zip(TEXTS, logits.softmax(0).tolist(), strict=True))


@pytest.fixture
def site(published: Published) -> Iterator[Site]:
    with running(published.directory / "home", Settings(origins=("*",))) as site:
        yield site


@pytest.fixture(scope="module")
def modules() -> Path:
    return npm("hub-clients", "@huggingface/transformers@4.3.1", "playwright-core@1.65.1")


def compare(answers: list[Any], right: list[Any]) -> None:
    """Texts are equal but for the spaces around them, scores to a ten-thousandth."""
    assert len(answers) == len(right)
    for told, expected in zip(answers, right, strict=True):
        if isinstance(expected, str):
            assert told.strip() == expected.strip()
        else:
            assert told == pytest.approx(expected, abs=1e-4)


def test_transformers_js_in_node(site, published, modules, tmp_path):
    jobs, right = zip(*published.jobs(str(published.directory / "a.png")), strict=True)
    script, asked = Path(__file__).with_name("pipelines.mjs"), tmp_path / "jobs.json"
    asked.write_text(json.dumps(jobs))
    answers = loads(["node", script, modules, site.url, tmp_path / "cache", asked], site, tmp_path)
    compare(answers, list(right))


@needs_chromium
def test_transformers_js_in_a_browser(site, published, modules, tmp_path):
    """A second start of the browser fetches no file."""
    root = tmp_path / "site"
    root.mkdir()
    imports = json.dumps({"imports": IMPORTS})
    (root / "index.html").write_text(f'<!doctype html><script type="importmap">{imports}</script>')
    (root / "pipelines.mjs").symlink_to(Path(__file__).with_name("pipelines.mjs"))
    (root / "a.png").symlink_to(published.directory / "a.png")
    for name in ("@huggingface", "onnxruntime-common", "onnxruntime-web"):
        (root / name).symlink_to(modules / name)
    with serving(root) as url:
        jobs, right = zip(*published.jobs(f"{url}/a.png", "wasm"), strict=True)
        for _ in range(2):
            downloads(site)
            with browsing(modules, tmp_path / "profile") as evaluate:
                compare(evaluate(f"{url}/index.html", PAGE, site.url, jobs), list(right))
    assert downloads(site) == []


def test_the_runner_of_transformers(published):
    """It takes the names of the checkpoint's inputs, and gives the outputs in the form that an export recorded."""
    import onnxruntime
    import torch
    from torch.utils import _pytree
    from transformers.exporters.metadata import ExportMetadata
    from transformers.exporters.runners.runner_onnx import OnnxModelRunner

    form = _pytree.treespec_dumps(_pytree.tree_structure({"logits": 0}))
    graph = published.directory / "vit-files" / "model.onnx"
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    pixels = pixels_of(published.directory / "vit", published.directory / "a.png")
    logits = OnnxModelRunner(ExportMetadata(out_spec=form), session)(**pixels)["logits"]
    scores = torch.as_tensor(logits)[0].softmax(-1).tolist()
    assert sorted(scores) == pytest.approx(sorted(published.classes.values()), abs=1e-4)


def test_optimum(site, published, tmp_path):
    files = [published.directory / "a.f32", tmp_path / "pixels.npy"]
    np.save(files[1], pixels_of(published.directory / "vit", published.directory / "a.png")["pixel_values"])
    words = [python_of("sentences"), "-c", OPTIMUM, TEXT, *files, TOKENS]
    right = [published.translated, published.translated, published.heard, published.classes]
    compare(loads(words, site, tmp_path), right)

"""Other people's clients read `reg serve` as if it were the Hub: none of them is modified, each gets what `reg run` gets.

So does our adapter for Transformers.js: `pipeline()` gets the resolved, verified file, and again without a network.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e2e.conftest import Export, export_in_process, npm, python_of
from support.e2e.tried import TEXT, text_model
from support.sampling import sampled
from support.servers import client_package
from support.servers.browser import browsing, needs_chromium, serving
from support.servers.page_snippets import snippets_of
from support.servers.regserve import Site, running, wait

from onnxreg.registry.server.settings import Settings

# The first test of a client installs it, with PyTorch.
pytestmark = [pytest.mark.more, pytest.mark.timeout(1800)]
MODEL, INT8 = "acme/tiny", "model_int8.onnx"
IMPORTS = {
    "@huggingface/transformers": "/@huggingface/transformers/dist/transformers.web.js",
    "onnxruntime-common": "/onnxruntime-common/dist/esm/index.js",
    "onnxruntime-web/webgpu": "/onnxruntime-web/dist/ort.webgpu.bundle.min.mjs",
    "onnxruntime-web": "/onnxruntime-web/dist/ort.bundle.min.mjs",
    "@onnxreg/client": "/client/onnxreg.js",
    "@onnxreg/client/transformers": "/client/transformers.js",
}
LABELS = "(await tag(text, { ignore_labels: [] })).map(({ entity }) => entity)"
WASM = """
  const { env, pipeline } = await import('@huggingface/transformers')
  env.backends.onnx.wasm.wasmPaths = `${location.origin}/onnxruntime-web/dist/`
  env.backends.onnx.wasm.numThreads = 1"""
HUB_PAGE = f"""async (host, model, text, dtype) => {{{WASM}
  Object.assign(env, {{ remoteHost: host, allowLocalModels: false }})
  const tag = await pipeline('token-classification', model, {{ dtype, device: 'wasm' }})
  return {LABELS}
}}"""
ADAPTER_PAGE = f"""async (host, model, text, query) => {{{WASM}
  const {{ browserStore, preset, Registry }} = await import('@onnxreg/client')
  const {{ serveTransformers }} = await import('@onnxreg/client/transformers')
  const registry = new Registry(host, browserStore('models'))
  serveTransformers(env, registry, {{ query, device: preset('ort-web-1.30') }})
  const tag = await pipeline('token-classification', model, {{ device: 'wasm' }})
  const labels = {LABELS}
  return {{ labels, path: (await registry.slot(model)).current.artifact.path }}
}}"""
QUERY = {"formats": ["onnx-int8"]}

OPTIMUM = """
import json, sys
from optimum.onnxruntime import ORTModelForTokenClassification
from transformers import AutoTokenizer
name, text = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(name)
found = {}
for file in ("model.onnx", "model_int8.onnx"):
    model = ORTModelForTokenClassification.from_pretrained(name, file_name=file)
    logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
    found[file] = [model.config.id2label[int(number)] for number in logits.argmax(-1)]
print(json.dumps(found))
"""
SENTENCES = """
import json, sys
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], backend="onnx")
print(json.dumps(model.encode(sys.argv[2:]).tolist()))
"""
OPENMED = """
import json, sys
from openmed.onnx.inference import load_onnx_model
model = load_onnx_model(sys.argv[1], variant="int8")
spans = model.predict(sys.argv[2])
print(json.dumps([[span.start, span.end, span.label] for span in spans]))
"""


@pytest.fixture(scope="module")
def export(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Export:
    """A version that all clients can load: its tokenizer names a class that older releases of transformers have."""
    directory = tmp_path_factory.mktemp("hub-clients")
    source = text_model("token", directory / "checkpoint")
    settings = source / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"tokenizer_class": "BertTokenizer"}))
    return export_in_process(source, directory / "home", directory / "out")


@pytest.fixture(scope="module")
def site(export: Export) -> Iterator[Site]:
    with running(export.home, Settings(origins=("*",))) as site:
        yield site


@pytest.fixture(scope="module")
def labels(export: Export) -> dict[str, list[str]]:
    """For each graph the label of every token, by ONNX Runtime and `tokenizers`."""
    import onnxruntime

    names = json.loads((export.output / "id2label.json").read_text())
    found = {}
    for path in ("model.onnx", INT8):
        session = onnxruntime.InferenceSession(export.output / path, providers=["CPUExecutionProvider"])
        (logits,) = session.run(None, feed(export, TEXT, session))
        found[path] = [names[str(number)] for number in logits[0].argmax(-1)]
    return found


@pytest.fixture(scope="module")
def plain(export: Export, labels: dict[str, list[str]]) -> dict[str, list[str]]:
    """Them without those of special tokens, which Transformers.js leaves out."""
    from tokenizers import Tokenizer

    tokens = Tokenizer.from_file(str(export.output / "tokenizer.json")).encode(TEXT).tokens
    kept = [number for number, token in enumerate(tokens) if not token.startswith("[")]
    return {path: [found[number] for number in kept] for path, found in labels.items()}


def feed(export: Export, text: str, session: Any) -> dict[str, Any]:
    from tokenizers import Tokenizer

    encoding = Tokenizer.from_file(str(export.output / "tokenizer.json")).encode(text)
    values = {"attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids}
    values["input_ids"] = encoding.ids
    return {item.name: np.array([values[item.name]], np.int64) for item in session.get_inputs()}


def output(command: Sequence[str | Path], site: Site, home: Path) -> Any:
    """What a client printed, with the server as its Hub and a cache of its own."""
    own = {"HF_ENDPOINT": site.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env={**os.environ, **own}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def loads(command: Sequence[str | Path], site: Site, home: Path) -> Any:
    """Run a client twice: the second time it prints the same and fetches no file."""
    first = output(command, site, home)
    downloads(site)
    assert output(command, site, home) == first
    assert downloads(site) == []
    return first


def downloads(site: Site) -> list[str]:
    """The files that were sent since the last call."""
    site.get("/healthz")
    wait(lambda: any("/healthz" in line for line in site.lines))
    lines = [json.loads(line) for line in site.lines]
    site.lines.clear()
    sent = [line for line in lines if line["method"] == "GET" and line["bytes"] and line["status"] < 300]
    return [line["path"] for line in sent if "/resolve/" in line["path"]]


@pytest.mark.large
def test_optimum_and_transformers(site, labels, tmp_path):
    assert loads([python_of("sentences"), "-c", OPTIMUM, MODEL, TEXT], site, tmp_path) == labels


def test_the_lines_of_the_page_for_transformers_js(site, plain, modules, tmp_path):
    code = snippets_of(site, f"{MODEL}:0.1.0")["Transformers.js"]
    code = code.replace("const run", f"env.cacheDir = {json.dumps(str(tmp_path / 'cache'))}\nconst run")
    call = LABELS.replace("tag(text", f"run({json.dumps(TEXT)}")
    (tmp_path / "node_modules").symlink_to(modules)
    script = tmp_path / "snippet.mjs"
    script.write_text(f"{code}\nconsole.log(JSON.stringify({call}))\n", encoding="utf-8")
    assert output(["node", script], site, tmp_path) == plain["model.onnx"]


@pytest.mark.large
def test_openmed(site, export, reg, tmp_path):
    spans = loads([python_of("openmed"), "-c", OPENMED, MODEL, TEXT], site, tmp_path)
    run = reg("--registry", export.home, "run", MODEL, "--format", "onnx-int8", "--text", TEXT, "--json")
    assert spans == [[span["start"], span["end"], span["label"]] for span in json.loads(run.stdout)["spans"]]


@pytest.mark.large
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_transformers(pooling, export, reg, tmp_path):
    """Without its own files it takes the mean of the vectors; with them, here the normalized first one."""
    import onnxruntime

    out, source = tmp_path / "out", Path(shutil.copytree(export.checkpoint, tmp_path / "source"))
    if pooling == "cls":
        write_modules(source)
    reg("export", source, "--task", "default", "--name", "acme/sentences", "--output", out)
    with running(tmp_path / "home") as site:
        vectors = loads(
            [python_of("sentences"), "-c", SENTENCES, "acme/sentences", TEXT, "Anna"], site, tmp_path / "hf"
        )
    session = onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])
    for text, vector in zip((TEXT, "Anna"), vectors, strict=True):
        (states,) = session.run(None, feed(export, text, session))
        first = states[0][0] / np.linalg.norm(states[0][0])
        expected = first if pooling == "cls" else states[0].mean(axis=0)
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def write_modules(checkpoint: Path) -> None:
    """Make a checkpoint one of sentence-transformers, which takes the first vector and normalizes it."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    (checkpoint / "1_Pooling").mkdir()
    size = json.loads((checkpoint / "config.json").read_text())["hidden_size"]
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (checkpoint / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": size, **modes})
    )


@pytest.fixture(scope="module")
def modules() -> Path:
    """The packages of npm that the JavaScript clients need."""
    return npm("hub-clients", "@huggingface/transformers@4.3.1", "playwright-core@1.65.1")


def test_transformers_js_in_node(site, plain, modules, tmp_path):
    script = Path(__file__).with_name("hub_client.mjs")
    command = ["node", script, modules, site.url, tmp_path / "cache", MODEL, TEXT, "fp32", "q8"]
    assert loads(command, site, tmp_path) == {"fp32": plain["model.onnx"], "q8": plain[INT8]}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_package.build(tmp_path_factory.mktemp("adapter")) / "dist"


def test_our_adapter_in_node(site, plain, modules, dist, tmp_path):
    script = Path(__file__).with_name("adapter_client.mjs")
    words = [script, modules, dist, tmp_path / "store", site.url, MODEL, TEXT, json.dumps(QUERY)]
    site.lines.clear()
    answer = output(["node", *words], site, tmp_path)
    assert answer == {"labels": plain[INT8], "path": INT8, "missing": "not-found"}
    assert downloads(site) == []
    assert output(["node", *words], site, tmp_path) == answer
    assert not [line for line in site.lines if "/blobs/" in line]
    words[4] = "http://127.0.0.1:9"
    offline = output(["node", *words], site, tmp_path)
    assert (offline["labels"], offline["missing"]) == (answer["labels"], "remote")


@needs_chromium
@pytest.mark.parametrize("which", sampled(["adapter", "hub"], 2, pytest.mark.large))
def test_transformers_js_in_a_browser(which, site, plain, modules, dist, tmp_path):
    """By itself and with our adapter; a second start of the browser fetches no file."""
    root = tmp_path / "site"
    root.mkdir()
    imports = json.dumps({"imports": IMPORTS})
    (root / "index.html").write_text(f'<!doctype html><script type="importmap">{imports}</script>')
    (root / "client").symlink_to(dist)
    for name in ("@huggingface", "onnxruntime-common", "onnxruntime-web"):
        (root / name).symlink_to(modules / name)
    hub = which == "hub"
    code, last, expected = (
        (HUB_PAGE, "q8", plain[INT8]) if hub else (ADAPTER_PAGE, QUERY, {"labels": plain[INT8], "path": INT8})
    )
    with serving(root) as url:
        for _ in range(2):
            site.lines.clear()
            with browsing(modules, tmp_path / "profile") as evaluate:
                assert evaluate(f"{url}/index.html", code, site.url, MODEL, TEXT, last) == expected
    blobs = [line for line in site.lines if "/blobs/" in line]
    assert (blobs, downloads(site)) == ([], [])

"""The demo page in a real browser: a registry behind `reg serve`, a typed sentence in, labelled spans out."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import pytest

TESTS = Path(__file__).parents[1]
from support.e2e.pieces import VOCABULARY, wordpiece
from support.exports import export_android
from support.servers.faults import Proxy, at, proxy

from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.manifest.draft import Draft

Publish = Callable[[int], Path]

CLIENT = TESTS.parent / "examples" / "web-client"
NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LABELS = ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE"]
SENTENCES = (
    "Anna was born on 3 May 1990, in Straße 5.",
    "The patient 👩‍👩‍👧 Anna B. called 555-0199 on May 3rd!",
    "中文 and Éclair: unable, [SEP] typed",
    "nothing",
    "long " * 60,
)

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.skipif(
        not (CLIENT / "node_modules" / "playwright-core").exists(),
        reason="the demo's packages are not installed: cd examples/web-client && npm install --no-package-lock",
    ),
]


def checkpoint(directory: Path, seed: int) -> Path:
    """A tiny BERT token classifier with random weights and a WordPiece tokenizer."""
    import torch
    from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    labels = dict(enumerate(LABELS))
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        id2label=labels,
        label2id={label: number for number, label in labels.items()},
    )
    model = BertForTokenClassification(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(directory)
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    PreTrainedTokenizerFast(tokenizer_object=wordpiece(), model_max_length=64, **special).save_pretrained(
        directory
    )
    return directory


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> list[Draft]:
    """Two checkpoints, exported with the android profile."""
    root = tmp_path_factory.mktemp("drafts")
    found = []
    for seed in (1, 6):
        workspace = root / f"export{seed}"
        workspace.mkdir()
        source = checkpoint(root / f"checkpoint{seed}", seed)
        found.append(export_android(str(source), workspace, name="demo/pii", options={}))
    return found


@pytest.fixture
def publish(drafts: list[Draft], tmp_path: Path) -> Publish:
    """Publish an export as version 1.N.0; returns its directory."""
    registry = Registry(tmp_path / "home")
    DirectoryRegistry.create(registry.store.root)

    def run(number: int) -> Path:
        copied = shutil.copytree(drafts[number].root, tmp_path / f"export{number}")
        registry.add(replace(drafts[number], root=copied), f"1.{number}.0")
        return drafts[number].root

    return run


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Static files, as any web server has them."""

    class Quiet(SimpleHTTPRequestHandler):
        extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def page() -> Iterator[str]:
    with serving(CLIENT) as url:
        yield url


@pytest.fixture
def site(publish: Publish, environment: dict[str, str], tmp_path: Path, page: str) -> Iterator[Proxy]:
    """`reg serve` over the home registry, behind a proxy that can spoil it; its log is in serve.log."""
    command = [sys.executable, "-m", "onnxreg.cli", "serve", "--port", "0", "--cors", page]
    with (
        (tmp_path / "serve.log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None
            with proxy(found[0]) as running:
                yield running
        finally:
            server.terminate()


class Browser:
    """A headless browser with a profile of its own, in which nothing is kept but what the page keeps."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, *words: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        assert "failed" not in found, found
        return found


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    script = TESTS / "e2e" / "web_client.mjs"
    command = [str(NODE), script, CLIENT / "package.json", str(CHROMIUM), tmp_path / "profile"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    ) as process:
        yield Browser(process)
        assert process.stdin is not None
        process.stdin.close()


def demo(page: str, site: Proxy, **more: str) -> str:
    return f"{page}/index.html?{urlencode({'registry': site.url, 'model': 'demo/pii', **more})}"


def in_python(export: Path, artifact: str, text: str) -> list[str]:
    """The label of every code point, by ONNX Runtime, `tokenizers` and the decoder of our evaluations."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    from onnxreg.converters.evaluation.tokens import NOTHING, decode, tag_scheme

    tokenizer = Tokenizer.from_file(str(export / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(json.loads((export / "config.json").read_text())["max_sequence_length"])
    encoding = tokenizer.encode(text)
    session = onnxruntime.InferenceSession(str(export / artifact), providers=["CPUExecutionProvider"])
    values = {
        "input_ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "token_type_ids": encoding.type_ids,
    }
    feeds = {each.name: np.array([values[each.name]], np.int64) for each in session.get_inputs()}
    tags = session.run(["logits"], feeds)[0][0].argmax(-1)
    scheme = tag_scheme(LABELS)
    labels = decode(tags, np.array(encoding.offsets), len(text), scheme)
    return ["" if label == NOTHING else scheme.names[label] for label in labels]


def painted(text: str, spans: list[Any]) -> list[str]:
    labels = [""] * len(text)
    for start, end, label, shown in spans:
        assert shown == text[start:end]
        labels[start:end] = [label] * (end - start)
    return labels


def check_equal(browser: Browser, export: Path, artifact: str = "model_int8.onnx") -> None:
    found = [painted(text, browser("tag", text)) for text in SENTENCES]
    assert found == [in_python(export, artifact, text) for text in SENTENCES]
    assert {label for labels in found for label in labels} == {"", "NAME", "DATE"}


@pytest.mark.parametrize(
    ("where", "artifact"),
    [
        ("format = onnx-int8", "model_int8.onnx"),
        ("path = model.onnx", "model.onnx"),
        ("format = ort-android", "model.ort"),
    ],
)
def test_spans_are_those_of_python(
    publish: Publish, site: Proxy, page: str, browser: Browser, where: str, artifact: str
) -> None:
    export = publish(0)
    opened = browser("open", demo(page, site, where=where))
    assert opened["status"] == "Ready."
    assert opened["release"].startswith(f"demo/pii 1.0.0, {artifact} (")
    assert not opened["problems"]
    check_equal(browser, export, artifact)


def test_a_download_that_broke_off_goes_on(
    publish: Publish, site: Proxy, page: str, browser: Browser, tmp_path: Path
) -> None:
    export = publish(0)
    size = (export / "model_int8.onnx").stat().st_size
    cut, model = at(0, "faltering"), sha256_path(export / "model_int8.onnx")
    site.plan = lambda method, path: (cut(method, path) or "reset") if model in path else None
    assert "failed" in browser("open", demo(page, site))["status"]
    site.plan = lambda method, path: None
    assert browser("open", demo(page, site))["status"] == "Ready."
    check_equal(browser, export)
    log = [json.loads(line) for line in (tmp_path / "serve.log").read_text().splitlines() if line[:1] == "{"]
    sent = [line["bytes"] for line in log if model in line["path"] and line["method"] == "GET"]
    assert sent == [size, size - size // 2]


def sha256_path(path: Path) -> str:
    from hashlib import sha256

    return sha256(path.read_bytes()).hexdigest()


def test_a_flipped_byte_is_refused_and_the_present_release_stays(
    publish: Publish, site: Proxy, page: str, browser: Browser
) -> None:
    site.plan = lambda method, path: "garbled" if method == "GET" and "/blobs/" in path else None
    first = publish(0)
    opened = browser("open", demo(page, site))
    assert "sent other bytes" in opened["status"]
    assert opened["release"] == "No model yet."
    site.plan = lambda method, path: None
    assert browser("press", "update")["status"] == "Ready."
    publish(1)
    site.plan = lambda method, path: "garbled" if method == "GET" and "/blobs/" in path else None
    updated = browser("press", "update")
    assert "The present release stays" in updated["status"]
    assert updated["release"].startswith("demo/pii 1.0.0")
    check_equal(browser, first)


def test_offline_and_rollback(publish: Publish, site: Proxy, page: str, browser: Browser) -> None:
    first = publish(0)
    browser("open", demo(page, site))
    second = publish(1)
    assert browser("press", "update")["release"].startswith("demo/pii 1.1.0")
    check_equal(browser, second)

    site.plan = lambda method, path: "reset"
    assert browser("open", demo(page, site))["release"].startswith("demo/pii 1.1.0")
    check_equal(browser, second)
    assert browser("press", "rollback")["release"].startswith("demo/pii 1.0.0")
    check_equal(browser, first)
    site.plan = lambda method, path: None
    assert browser("open", demo(page, site))["release"].startswith("demo/pii 1.0.0")

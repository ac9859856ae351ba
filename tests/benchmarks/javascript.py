"""The JavaScript client in Node and in headless Chromium, beside the same work without it."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from support.registries.for_devices import blob, publish
from support.servers import client_package
from support.servers.nginx import nginx
from tokenizers import Tokenizer

from benchmarks.exports import NAME as EXPORTED
from benchmarks.exports import VERSIONS as EXPORTS
from benchmarks.exports import exported
from benchmarks.measure import Row, Run, pairs, row, run
from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.query.resolve import Query

DRIVER = Path(__file__).with_suffix(".mjs")
BLOCK = "server { listen 443 ssl http2; root /srv/models; access_log off; }"
SIZE = 100_000_000
NAME = "acme/pii"
QUESTION = json.dumps({"query": {"certified": True, "where": "size <= 200MB"}, "device": {"ort": "1.30"}})
CURL = 'curl -sS -o "$1" "$2" && sha256sum "$1" && rm "$1"'
SENTENCE = "Anna Berger was born on 3 May 1990 in Oslo; call her at 555-0199."
FORMAT = "onnx-int8"
PAGE = """<!doctype html><script type="importmap">
{"imports": {"onnxruntime-web": "/modules/onnxruntime-web/dist/ort.wasm.min.mjs"}}</script>
<script type="module">
import * as ort from 'onnxruntime-web'
ort.env.wasm.wasmPaths = `${location.origin}/modules/onnxruntime-web/dist/`
ort.env.wasm.numThreads = 1
%s
const session = await ort.InferenceSession.create(model)
const tensor = (value) => new ort.Tensor('int64', BigInt64Array.from(value.map(BigInt)), [1, value.length])
const values = %s
const feeds = Object.fromEntries(session.inputNames.map((name) => [name, tensor(values[name])]))
const { logits } = await session.run(feeds)
globalThis.answer = { milliseconds: performance.now(), logits: [...logits.data] }
</script>"""
OURS = """
import { browserStore, preset, Registry } from '/client/dist/onnxreg.js'
const registry = new Registry(`${location.origin}/registry`, browserStore('models'))
const question = { query: { formats: ['%s'] }, device: preset('ort-web-1.30') }
const { release } = await registry.update('%s', question)
const model = await registry.read(release, release.artifact.path)"""
BARE = """
await Promise.all(['tokenizer.json', 'id2label.json', 'config.json'].map((path) => fetch(`/files/${path}`)))
const model = new Uint8Array(await (await fetch('/files/%s')).arrayBuffer())"""


def benchmark(trained: Path) -> list[Row]:
    """Downloads from nginx on this machine; the page with the newer export of the demo's model."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        root = Path(directory)
        client = client_package.build(root / "package")
        return [_download(root, client), _first_sentence(root, client, trained)]


def _download(root: Path, client: Path, count: int = 7) -> Row:
    """Whole processes; ours starts Node, resolves, verifies each piece, and syncs the file."""
    registry = _new_registry(root / "download")
    files = publish(registry, root / "draft", "1.0.0", SIZE)
    path = blob(registry, files["model_int8.onnx"]).relative_to(registry.store.root)
    with nginx(root / "nginx", registry.store.root, BLOCK) as site:
        store = root / "store"

        def ours() -> Run:
            measured = run(["node", DRIVER, "download", client / "dist", site.url, store, NAME, QUESTION])
            shutil.rmtree(store)
            return measured

        def theirs() -> Run:
            return run(["sh", "-c", CURL, "sh", root / "curl", f"{site.url}/{path}"])

        walls = [(a.wall, b.wall) for a, b in pairs(ours, theirs, count)]
    return row("Node: download and verify 100 MB", "curl, then sha256sum", walls, "s", "<= 1.25")


def _first_sentence(root: Path, client: Path, trained: Path, count: int = 5) -> Row:
    """From a new profile of Chromium to the numbers of a sentence; both pages get the same files and the same runtime."""
    site = root / "site"
    site.mkdir()
    export = exported(trained)
    registry = Registry(export / "registry", create=False)
    artifact = registry.resolve(f"{EXPORTED}:{EXPORTS[1]}", Query(formats=(FORMAT,))).artifact
    (site / "files").symlink_to(export / EXPORTS[1])
    (site / "modules").symlink_to(client_package.TOOLS / "node_modules")
    (site / "client").symlink_to(client)
    (site / "registry").symlink_to(registry.store.root)
    encoding = Tokenizer.from_file(str(site / "files" / "tokenizer.json")).encode(SENTENCE)
    values = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask}
    feeds = json.dumps({**values, "token_type_ids": encoding.type_ids})
    (site / "ours.html").write_text(PAGE % (OURS % (FORMAT, EXPORTED), feeds))
    (site / "bare.html").write_text(PAGE % (BARE % artifact.path, feeds))
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    found = []
    types = "types { text/html html; text/javascript js mjs; application/wasm wasm; }"
    with nginx(root / "nginx-page", site, BLOCK.replace("root", f"{types} root")) as server:
        modules = client_package.TOOLS / "node_modules"

        def opened(page: str) -> Run:
            with tempfile.TemporaryDirectory(dir=root) as profile:
                answer = _node("open", modules, chromium, profile, f"{server.url}/{page}")
            found.append(answer["logits"])
            return Run(answer["milliseconds"] / 1000, 0, 0)

        measured = pairs(lambda: opened("ours.html"), lambda: opened("bare.html"), count)
    if not found[0] or any(logits != found[0] for logits in found):
        raise SystemExit("the two pages computed different numbers")
    walls = [(a.wall, b.wall) for a, b in measured]
    megabytes = artifact.size / 1e6
    what = f"Chromium: first tagged sentence, cold cache, {megabytes:.0f} MB"
    return row(what, "onnxruntime-web alone", walls, "s", "<= 1.3")


def _new_registry(home: Path) -> Registry:
    registry = Registry(home)
    DirectoryRegistry.create(registry.store.root)
    return registry


def _node(*words: Any) -> Any:
    done = subprocess.run(["node", DRIVER, *map(str, words)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)

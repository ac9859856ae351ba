"""The package `@onnxreg/client`: built, packed, installed and used, also in JavaScriptCore and in hosts that lack the web."""

import gzip
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.graphs import graph
from support.registries.for_devices import publish
from support.servers import client_package, static
from support.servers.client_package import CLIENT, REPOSITORY, TOOLS

from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.core.ref import Version
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.query.device import presets

JSC = shutil.which("jsc")
NODE = shutil.which("node")
SHELL = Path(__file__).with_name("jsc_shell.mjs")
VECTORS = REPOSITORY / "tests" / "vectors"
MAX_COMPRESSED_BYTES = 25_000
needs_jsc = pytest.mark.skipif(JSC is None, reason="no jsc: apt-get install libjavascriptcoregtk-4.0-bin")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")

USE = """
import * as client from '@onnxreg/client'
import { directoryStore } from '@onnxreg/client/node'
const { memoryStore, preset, Registry } = client
const [url, directory] = process.argv.slice(2)
const store = directory ? directoryStore(directory) : memoryStore()
const registry = new Registry(url, store)
const { release } = await registry.update('acme/pii', { device: preset('ort-desktop-1.30') })
const bytes = await registry.read(release, release.artifact.path)
const failed = (...words) => registry.update(...words).catch(({ name, message }) => [name, message])
const unknown = await failed('acme/none')
const misspelt = await failed('acme/pii', { chanel: 'stable' })
const renamed = Object.entries(client).filter(([name, { prototype }]) => prototype instanceof Error && prototype.constructor.name !== name)
console.log(JSON.stringify({ version: release.version, size: bytes.length, renamed, errors: [unknown[0], ...misspelt] }))
"""
RUNTIMES = {"onnxruntime-node": "1.30.0", "onnxruntime-react-native": "1.24.3"}
RUNTIMES |= dict.fromkeys(("react", "react-native"), "npm:pako@3.0.3")  # its peers, which no test loads
NATIVE = """
import { createRequire } from 'node:module'
import * as node from 'onnxruntime-node'

/** The native half of onnxruntime-react-native, as its `InferenceSessionHostObject.cpp`: of a model in memory it takes the whole buffer. */
class Session {
  async loadModel(model) {
    this.session = await node.InferenceSession.create(typeof model === 'string' ? model : new Uint8Array(model))
    const described = (each) => ({ ...each, type: 1, symbolicDimensions: each.shape, shape: each.shape.map(() => -1) })
    this.inputMetadata = this.session.inputMetadata.map(described)
    this.outputMetadata = this.session.outputMetadata.map(described)
  }
  run(feeds) {
    const tensors = Object.entries(feeds).map(([name, { type, data, dims }]) => [name, new node.Tensor(type, data, dims)])
    return this.session.run(Object.fromEntries(tensors))
  }
  dispose() {}
}
globalThis.OrtApi = { createInferenceSession: () => new Session(), listSupportedBackends: () => [{ name: 'cpu' }], initOrtOnce() {} }
const require = createRequire(import.meta.url)
require.cache[require.resolve('react-native')] = { exports: { NativeModules: { Onnxruntime: {} } } }
const ort = require('onnxruntime-react-native')
"""
TEST = """
import { memoryStore, Registry } from '@onnxreg/client'
import { goldenTest } from '@onnxreg/client/golden-test'
import { extract, file } from '@onnxreg/client/node'
const [url, directory] = process.argv.slice(2)
const registry = new Registry(url, memoryStore())
ort.env.wasm.numThreads = 1
const byPath = { open: async (release) => ort.InferenceSession.create(await file(registry, release, 'model.onnx', `${directory}-by-path`)) }
const options = process.argv[4] ? byPath : {}
const update = (tag) => registry.update('acme/golden', { tag }, { selfTest: goldenTest(registry, ort, options) })
const { release } = await update('1.0.0')
const errors = []
for (const tag of ['1.1.0', '1.2.0']) {
  errors.push(await update(tag).then(() => null, ({ name }) => name))
  await registry.clearRefusals('acme/golden') // they have the same graph
}
const path = await extract(registry, release, directory)
console.log(JSON.stringify({ current: (await registry.slot('acme/golden')).current.version, errors, path }))
"""
TYPED = """
import { memoryStore, preset, Registry, type Update } from '@onnxreg/client'
import * as ort from 'onnxruntime-common' // all that onnxruntime-react-native exports
import { goldenTest } from '@onnxreg/client/golden-test'
import { directoryStore } from '@onnxreg/client/node'
import { signedBy } from '@onnxreg/client/signatures'
import { serveTransformers } from '@onnxreg/client/transformers'

const trust = signedBy([`ed25519:${btoa('0'.repeat(32))}`], { releases: true })
const registry = new Registry('https://models.example', directoryStore('x'), { token: 't', trust })
const selfTest = goldenTest(registry, ort)
const { release, changed }: Update = await registry.update('acme/pii', { tag: 'stable', device: preset('ort-web-1.30') }, { selfTest })
const bytes: Uint8Array = await registry.read(release, release.artifact.path)
serveTransformers({}, new Registry('https://models.example', memoryStore()), { query: { certified: true } })
console.log(bytes.length, changed)
"""


def run(*words: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, timeout=300, cwd=cwd
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_package.build(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def app(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An app with the package installed."""
    return client_package.install(client_package.pack(built), tmp_path_factory.mktemp("app"))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "home")
    DirectoryRegistry.create(registry.store.root)
    publish(registry, tmp_path / "1", "1.0.0")
    return registry


@pytest.fixture
def url(registry: Registry) -> Iterator[str]:
    with static.serve(registry.store.root) as url:
        yield url


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    package = json.loads((CLIENT / "package.json").read_text("utf-8"))
    assert (package["name"], package["version"]) == ("@onnxreg/client", project["version"])
    assert "dependencies" not in package


@pytest.mark.more
def test_two_builds_are_the_same_bytes_of_which_an_app_loads_25_kilobytes(built, tmp_path):
    again = client_package.pack(client_package.build(tmp_path / "again"))
    assert client_package.pack(built).read_bytes() == again.read_bytes()
    loaded, waiting = set[str](), ["onnxreg.js"]
    while waiting:
        loaded.add(name := waiting.pop())
        text = (built / "dist" / name).read_text("utf-8")
        waiting += [other for other in re.findall(r'from"\./([^"]+)"', text) if other not in loaded]
    assert len(loaded) > 1
    exports = json.loads((built / "package.json").read_text("utf-8"))["exports"].values()
    entries = {Path(entry["default"]).name for entry in exports if isinstance(entry, dict)}
    assert (loaded & entries, len(entries)) == ({"onnxreg.js"}, 8)
    sizes = [len(gzip.compress((built / "dist" / name).read_bytes())) for name in loaded]
    assert sum(sizes) < MAX_COMPRESSED_BYTES


@pytest.mark.more
def test_a_package_that_lacks_a_module_is_not_packed(built, tmp_path):
    """`npm pack` builds first."""
    copy = tmp_path / "client"
    shutil.copytree(built, copy, symlinks=True, ignore=shutil.ignore_patterns("dist", "*.tgz", "where.mjs"))
    done = subprocess.run(["npm", "pack"], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "where.mjs" in done.stdout + done.stderr
    assert not [*copy.glob("*.tgz")]


@pytest.mark.more
@pytest.mark.parametrize("store", ["store", ""])
def test_an_app_uses_it(app, url, tmp_path, store):
    (app / "use.mjs").write_text(USE)
    answer = json.loads(run("node", app / "use.mjs", url, store and tmp_path / store))
    *names, message = answer.pop("errors")
    assert answer == {"version": "1.0.0", "size": 100_000, "renamed": []}
    assert names == ["NotFoundError", "InputError"] and "chanel" in message


def link(app: Path, package: Path) -> None:
    """Let an app import a package of the tools."""
    (app / "node_modules" / package.name).unlink(missing_ok=True)
    (app / "node_modules" / package.name).symlink_to(package)


@pytest.mark.more
@pytest.mark.parametrize(
    ("runtime", "way"),
    [("web", "bytes"), ("node", "path"), ("react-native", "bytes"), ("react-native", "path")],
)
def test_golden_vectors_decide_in_the_app_and_files_are_extracted(app, registry, url, tmp_path, runtime, way):
    """Of onnxruntime-react-native its own JavaScript, above a native half that is played by onnxruntime-node."""
    body = "y = Add(x, x) j = Add(i, i) g = Add(h, h) c = Not(b)"
    shapes = [
        f"{kind}[n, 2] {name}"
        for kind, name in (("float", "x"), ("int64", "i"), ("float16", "h"), ("bool", "b"))
    ]
    outputs = [
        f"{kind}[n, 2] {name}"
        for kind, name in (("float", "y"), ("int64", "j"), ("float16", "g"), ("bool", "c"))
    ]
    model = graph(body, ", ".join(shapes), ", ".join(outputs)).SerializeToString()

    def tensor(dtype: str, *data: Any, **tolerances: float) -> dict[str, Any]:
        return {"dtype": dtype, "shape": [1, 2], "data": data, **tolerances}

    def add(version: str, y: float, j: int = -6) -> None:
        given = {
            "x": tensor("float32", 1.5, -2),
            "i": tensor("int64", -3, 2**40),
            "b": tensor("bool", True, False),
        }
        given["h"] = tensor("float16", 0.25, -6e-8)
        expected = {"y": tensor("float32", y, -4, atol=0.01, rtol=0.001), "j": tensor("int64", j, 2**41)}
        expected |= {"g": tensor("float16", 0.5, 0, atol=0.001), "c": tensor("bool", False, True)}
        golden = {"format": "onnxreg-golden", "format_version": 1}
        golden["cases"] = [{"name": "row", "inputs": given, "outputs": expected}]
        with registry.workspace() as root:
            (root / "model.onnx").write_bytes(model)
            (root / "model.onnx.golden.json").write_text(json.dumps(golden))
            sidecar = DraftFile("golden", "model.onnx.golden.json")
            artifact = DraftArtifact(
                "onnx", "float32", "model.onnx", (sidecar,), fields={"metadata": {"opset": 18}}
            )
            registry.add(Draft("acme/golden", root, (artifact,)), Version.parse(version))

    for version, *wanted in (("1.0.0", 3.012), ("1.1.0", 3.014), ("1.2.0", 3, -7)):
        add(version, *wanted)
    modules, packages = TOOLS / "node_modules", ["onnxruntime-web"]
    if runtime != "web":
        packages, tools = [*RUNTIMES], json.dumps({"dependencies": RUNTIMES})
        modules = client_package.installed(TOOLS.with_name("runtimes"), tools)
    for name in packages:
        link(app, modules / name)
    program = NATIVE if runtime == "react-native" else f"import * as ort from 'onnxruntime-{runtime}'"
    (app / "test.mjs").write_text(program + TEST)
    words = (url, tmp_path / "files", *(["path"] if way == "path" else []))
    answer = json.loads(run("node", app / "test.mjs", *words).splitlines()[-1])
    failed = ["SelfTestError"] * 2
    assert answer == {"current": "1.0.0", "errors": failed, "path": str(tmp_path / "files" / "model.onnx")}
    assert (tmp_path / "files" / "model.onnx").read_bytes() == model
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == [
        "model.onnx",
        "model.onnx.golden.json",
    ]


@pytest.mark.more
def test_its_types_hold_in_a_strict_program(app):
    (app / "use.mts").write_text(TYPED)
    (app / "package.json").write_text('{"type": "module"}')
    link(app, TOOLS / "node_modules" / "onnxruntime-common")
    compiler = TOOLS / "node_modules" / "typescript" / "bin" / "tsc"
    words = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2024,dom"]
    run("node", compiler, *words, app / "use.mts", cwd=app)
    for right, wrong in (
        ("tag: 'stable'", "tag: 5"),
        ("certified: true", "certificated: true"),
        ("tag:", "chanel:"),
        ("(registry, ort)", "(registry, { Tensor: ort.Tensor })"),
    ):
        (app / "use.mts").write_text(TYPED.replace(right, wrong))
        command = ["node", compiler, *words, app / "use.mts"]
        done = subprocess.run(command, cwd=app, capture_output=True, text=True, check=False)
        assert re.search("TS2322|TS2353|TS2561|TS2741", done.stdout), done.stdout


def test_the_core_names_nothing_of_a_page():
    """Only the store of a browser and the script of a page may; the platform is replaceable."""
    pages = {"stores.mjs", "browser-stores.mjs", "build.mjs", "run-vectors.mjs", "spans.mjs", "try.mjs"}
    for path in CLIENT.glob("*.mjs"):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text("utf-8"), flags=re.DOTALL)
        of_pages = r"\b(?:document\.(?:get|query|create|body)|window\.|navigator\.|localStorage|indexedDB)"
        names = re.findall(of_pages, text)
        used = re.findall(r"\b(crypto|TextDecoder|TextEncoder|DecompressionStream|performance)\b", text)
        assert path.name in pages or not names, path.name
        assert (
            path.name in pages | {"platform.mjs", "directory-store.mjs", "react-native.mjs", "signatures.mjs"}
            or not used
        ), path.name


@needs_node
def test_presets_are_those_of_reg_devices():
    code = f"import {{ presets }} from '{CLIENT}/presets.mjs'; console.log(JSON.stringify(presets()))"
    devices = {name: device for name, (device, _) in presets().items()}
    expected = [
        {"name": name, "ort": each.ort, "platform": each.platform, "providers": list(each.providers)}
        for name, each in devices.items()
    ]
    assert json.loads(run("node", "--input-type=module", "-e", code)) == expected


MAPPED = [
    ("onnx/model_int8.onnx", "onnx/model.onnx", "onnx/model_int8.onnx"),
    ("onnx/model_int8.onnx", "onnx/model_q4f16.onnx", "onnx/model_int8.onnx"),
    ("ner.onnx", "onnx/model_quantized.onnx", "ner.onnx"),
    ("onnx/encoder_model.onnx", "onnx/encoder_model_fp16.onnx", "onnx/encoder_model.onnx"),
    ("onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx", None),
    ("model.onnx", "config.json", "config.json"),
    ("model.onnx", "tokenizer.json", "text/tokenizer.json"),
    ("a/model.onnx", "onnx/model.onnx_data", "a/model.onnx_data"),
    ("model.onnx", "nothing.json", None),
]


@needs_node
def test_the_adapter_never_gives_another_graph():
    files = [
        {"role": "config", "path": "config.json"},
        {"role": "tokenizer", "path": "text/tokenizer.json"},
        {"role": "external-data", "path": "a/model.onnx_data"},
    ]
    code = f"""
    import {{ fileFor }} from '{CLIENT}/transformers.mjs'
    const cases = {json.dumps([case[:2] for case in MAPPED])}
    console.log(JSON.stringify(cases.map(([path, request]) =>
      fileFor({{ artifact: {{ path }}, files: {json.dumps(files)} }}, request))))
    """
    answers = json.loads(run("node", "--input-type=module", "-e", code))
    assert answers == [expected for _, _, expected in MAPPED]


def jsc(*words: str | Path) -> str:
    """What the shell of JavaScriptCore prints."""
    return run(str(JSC), "-m", SHELL, "--", CLIENT / "onnxreg.mjs", client_package.tools(), *words)


@pytest.mark.more
@needs_jsc
def test_the_vectors_in_the_engine_of_iphones(tmp_path):
    out = jsc("vectors", VECTORS, *sorted(path.name for path in (VECTORS / "resolve").iterdir()))
    passed, failed = map(int, re.findall(r"\d+", out.splitlines()[-1]))
    assert (failed, passed > 800) == (0, True), out
    shutil.copytree(VECTORS, tmp_path / "vectors")
    where = tmp_path / "vectors" / "where.json"
    where.write_text(where.read_text().replace("format = onnx-int8", "format = onnx", 1))
    assert "1 failed" in jsc("vectors", tmp_path / "vectors")


@pytest.mark.more
@needs_jsc
def test_a_shell_without_the_web_updates_and_verifies(registry):
    def update(name: str = "acme/pii") -> Any:
        return json.loads(jsc("update", registry.store.root, name, '{"device": {"ort": "1.30"}}'))

    answer = update()
    expected = registry.resolve("acme/pii").artifact
    assert (answer["version"], answer["path"]) == ("1.0.0", expected.path)
    assert answer["digest"] == expected.digest.hex
    blobs = [path for path in answer["requests"] if path.startswith("blobs/")]
    assert len(blobs) == len(set(blobs))
    assert update("acme/nothing")["error"] == "not-found"
    blob = next(registry.store.root.glob(f"blobs/sha256/*/{expected.digest.hex}"))
    blob.chmod(0o644)
    blob.write_bytes(bytes(blob.stat().st_size))
    assert update()["error"] in ("integrity", "remote")


@pytest.mark.more
@needs_jsc
def test_one_script_is_enough_for_a_context_without_modules(built):
    code = "print(Object.keys(onnxreg).filter((name) => /^(Registry|usePlatform|preset)$/.test(name)).sort())"
    out = run(str(JSC), built / "dist" / "onnxreg.script.js", "-e", code)
    assert out.strip() == "Registry,preset,usePlatform"


BARE = """
import { readFileSync } from 'node:fs'
import vm from 'node:vm'
import { createHash, randomFillSync } from 'node:crypto'
import { inflateRawSync } from 'node:zlib'

const [script, url, clock] = process.argv.slice(2)
const context = vm.createContext({ done: (text) => console.log(text), URL: undefined, native: {
  sha256: (bytes) => new Uint8Array(createHash('sha256').update(bytes).digest()),
  inflate: (bytes) => [new Uint8Array(inflateRawSync(bytes))],
  random: (count) => randomFillSync(new Uint8Array(count)),
  encode: (text) => new Uint8Array(Buffer.from(text)),
  decode: (bytes) => Buffer.from(bytes).toString(),
  now: () => 0,
  wait: async () => {},
  fetch: async (address, { headers }) => {
    const answer = await fetch(address, { headers })
    const bytes = await answer.arrayBuffer()
    return { status: answer.status, headers: answer.headers, arrayBuffer: async () => bytes }
  },
} })
vm.runInContext(readFileSync(script, 'utf-8'), context)
if (clock) vm.runInContext('Date = function () { throw new Error("the clock was read") }; Date.now = Date', context)
vm.runInContext(`(async () => {
  onnxreg.usePlatform(native)
  const registry = new onnxreg.Registry('${url}', onnxreg.memoryStore())
  const { release } = await registry.update('acme/pii', { device: { ort: '1.30' } })
  const bytes = await registry.read(release, release.artifact.path)
  done([release.version, bytes.length].join(' '))
})().catch((error) => done(error.stack))`, context)
"""


@pytest.mark.more
@pytest.mark.parametrize("clock", ["", "wrong"])
def test_a_host_like_react_native_gives_what_it_lacks(built, url, tmp_path, clock):
    """No Web Crypto, no streams, no AbortController, no TextDecoder, no timers; and no clock that must be right."""
    (tmp_path / "bare.mjs").write_text(BARE)
    out = run("node", tmp_path / "bare.mjs", built / "dist" / "onnxreg.script.js", url, clock)
    assert out.strip() == "1.0.0 100000"


@needs_node
@pytest.mark.parametrize("files", [pytest.param("expo", marks=pytest.mark.more), "rnfs"])
def test_the_store_of_react_native_loses_no_value_and_its_files_have_paths(
    files: str, url: str, tmp_path: Path
) -> None:
    (tmp_path / "documents").mkdir()
    program = Path(__file__).with_name("react_native.mjs")
    tools = client_package.tools() if files == "expo" else ""
    out = run("node", program, files, CLIENT, tools, tmp_path / "documents", url)
    answer = json.loads(out)
    kept = answer.pop("kept")
    assert (answer.pop("texts"), answer.pop("isSame")) == (["one, two", "three", ""], True)
    assert answer.pop("refused") == ["failed", *["integrity"] * 4]
    assert answer.pop("extracted") == ["b.txt", "model_int8.onnx", "onnx", "onnx/a b.txt"]
    assert answer.pop("latest") == [2], "two writers at once"
    assert answer == {"changed": [True, False], "size": 100_000, "keys": [], "names": []}
    assert kept[0] == [1] and kept[-1] == [2]
    assert all(value in ([1], [2]) for value in kept), "the old value or the new one"


@pytest.mark.large
def test_the_vectors_and_an_update_in_the_engine_of_react_native(registry: Registry, tmp_path: Path) -> None:
    """Hermes 0.12, the newest with a shell on npm. Its stack ends before 65 nested parentheses, as Babel writes the parser."""
    tools = {"@babel/core": "8.1.3", "@babel/preset-env": "8.0.7", "hermes-engine-cli": "0.12.0"}
    tools |= {"@noble/hashes": "2.4.0", "esbuild": "0.28.2", "pako": "3.0.3"}
    modules = client_package.installed(REPOSITORY / ".cache" / "hermes", json.dumps({"dependencies": tools}))
    script, program = tmp_path / "app.js", Path(__file__).with_name("hermes.mjs")
    run("node", program, modules.parent, CLIENT, VECTORS, registry.store.root, script)
    answer = json.loads(run(modules / "hermes-engine-cli" / "linux64-bin" / "hermes", script))
    deep = [failure for failure in answer.pop("failures") if not re.match(r"error: (\(|not ){60}", failure)]
    assert deep == [] and answer.pop("passed") > 900
    assert answer == {"version": "1.0.0", "changed": True, "length": 100_000}

"""Lines to copy from a version's page: for each client, the code that gets the version's files from this server.

Every value is quoted for its language, so that names and paths, which other people chose, never run as code.
"""

from collections.abc import Iterator, Mapping
from json import dumps as literal
from posixpath import basename
from shlex import join, quote
from typing import NamedTuple
from urllib.parse import quote as url_quote

from onnxreg.registry.store.requests import variable
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.formats.hub_layout import LayoutFile, pipeline_tag
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.vocabulary import ASIDE

PIPELINES = {
    "token-classification": "token-classification",
    "text-classification": "text-classification",
    "feature-extraction": "feature-extraction",
    "sentence-similarity": "feature-extraction",
}
"""The pipeline of Transformers.js for each task name of the Hub."""
DTYPES = ("fp32", "fp16", "int8", "uint8", "q4")
"""The types of weights (`dtype`) in Transformers.js. It loads `model_fp16.onnx` for fp16, and `model.onnx` for fp32."""
TEXT_FILES = frozenset({"config.json", "tokenizer.json"})
"""The files that libraries of Hugging Face need beside the graph of a text model."""

STATIC_CLIENTS = frozenset({"reg", "JavaScript client", "JVM client"})
"""The clients that need no Hub protocol: a static web server with the registry's files is enough."""


class Snippet(NamedTuple):
    client: str
    language: str  # `sh`, `python`, `js` or `java`
    code: str
    remark: str = ""


def file_path(name: str, revision: str, path: str) -> str:
    """Return the path of a version's file on the server, in the Hub's protocol."""
    return f"/{url_quote(name)}/resolve/{url_quote(revision, safe=':')}/{url_quote(path)}"


def snippets(
    base: str,
    name: str,
    tag: str | None,
    channel: str | None,
    move_command: str | None,
    digest: Digest,
    manifest: Manifest,
    artifact: Artifact,
    files: Mapping[str, LayoutFile],
    has_token: bool,
) -> Iterator[Snippet]:
    """Yield a snippet for each client that can use an artifact from the server at `base`. Shell commands come first.

    `tag` is the version, or None if clients must use the digest. `channel` is a channel of this version, if any. Apps
    that request the channel get later versions too. `files` is the version in the layout of the Hub.
    """
    folder, revision, token = basename(name), tag or str(digest), variable(base)
    ref = f"{name}:{tag}" if tag else f"{name}@{digest}"
    query = ["--format", artifact.format, "--precision", artifact.precision]
    code = join(["reg", "pull", ref, base, "--output", folder])
    code += "\n" + join(["reg", "resolve", ref, "--remote", base, *query])
    remark = "Set {} to the token of this server." if has_token else ""
    yield Snippet("reg", "sh", code, remark.format(token))

    code = join(["hf", "download", name, "--revision", revision, "--local-dir", folder])
    yield Snippet("hf", "sh", f"HF_ENDPOINT={quote(base)} {code}", remark.format("HF_TOKEN"))

    header = f'--header "Authorization: Bearer ${token}" ' if has_token else ""
    needed = [file for file in artifact.all_files() if file.role not in ASIDE]
    lines = []
    for file in needed:
        own, url = basename(file.path), base + file_path(name, revision, file.path)
        lines.append(f"curl --fail {header}--output {quote(own)} {quote(url)}")
        lines.append(f"echo {quote(f'{file.digest.hex}  {own}')} | sha256sum --check")
    yield Snippet("curl", "sh", "\n".join(lines))

    path, source = artifact.path, f"{name!r}, revision={revision!r}"
    if path.endswith((".onnx", ".ort")):
        code = f"""\
import onnxruntime
from huggingface_hub import snapshot_download

folder = snapshot_download(
    {source}, endpoint={base!r},
    allow_patterns={[file.path for file in needed]!r}, local_dir={folder!r},
)
session = onnxruntime.InferenceSession(folder + "/" + {path!r})
print([(item.name, item.type, item.shape) for item in session.get_inputs()])"""
        yield Snippet("ONNX Runtime", "python", code)

    task, is_text = pipeline_tag(manifest), files.keys() >= TEXT_FILES
    server, model = literal(base), literal(name)
    loaded = {f"onnx/model_{dtype}.onnx".replace("_fp32", ""): dtype for dtype in DTYPES}
    fitting = (loaded[item] for item in loaded if item in files and files[item].digest == artifact.digest)
    dtype = next(fitting, None)
    if task in PIPELINES and dtype and is_text:
        options = f"{{ revision: {literal(revision)}, dtype: {literal(dtype)} }}"
        code = f"""\
import {{ env, pipeline }} from '@huggingface/transformers'

env.remoteHost = {server}
const run = await pipeline({literal(PIPELINES[task])}, {model}, {options})"""
        remark = "In a browser, the server must allow the page's origin (--cors)."
        yield Snippet("Transformers.js", "js", code, remark)

    if tag is None:
        return
    moving, kind, precision = literal(channel or tag), literal(artifact.format), literal(artifact.precision)
    option = f", {{ token: process.env.{token} }}" if has_token else ""
    code = f"""\
// not on npm: build and pack it in examples/web-client, then npm install the .tgz
import {{ preset, Registry }} from '@onnxreg/client'
import {{ directoryStore }} from '@onnxreg/client/node'

const registry = new Registry({server}, directoryStore('models'){option})
const query = {{ formats: [{kind}], precision: {precision} }}
const question = {{ tag: {moving}, query, device: preset('ort-desktop-1.30') }}
const {{ release }} = await registry.update({model}, question)
const model = await registry.read(release, release.artifact.path)"""
    remark = "In a browser: browserStore('models') of '@onnxreg/client', and preset('ort-web-1.30')."
    if move_command is not None:
        remark += f" A channel brings updates: {move_command}:{tag} stable."
    yield Snippet("JavaScript client", "js", code, remark)

    settings = f', new Settings().token(System.getenv("{token}"))' if has_token else ""
    code = f"""\
// not on Maven Central: build it in examples/jvm-client (python build.py maven)
import org.onnxreg.client.*;

Registry registry = new Registry({server}, new java.io.File("models"){settings});
Question question = new Question().tag({moving}).formats({kind}).precision({precision}).device(new Device("1.23.2"));
Release release = registry.update({model}, question).release;
java.io.File model = registry.file(release, release.artifact.path);"""
    yield Snippet("JVM client", "java", code)

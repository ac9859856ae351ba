"""Lines to copy from a version's page: how each client gets its files from this server.

Every value is quoted for the language that it is in, so that a name or path of somebody else is never code.
"""

from collections.abc import Iterator, Mapping
from json import dumps as literal
from posixpath import basename, split
from shlex import join, quote
from typing import NamedTuple
from urllib.parse import quote as url_quote

from onnxreg.registry.store.net.http_rules import variable
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.formats.hub_layout import LayoutFile, pipeline_tag
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.vocabulary import ASIDE

OPTIMUM_CLASSES = {
    "token-classification": "ORTModelForTokenClassification",
    "text-classification": "ORTModelForSequenceClassification",
    "question-answering": "ORTModelForQuestionAnswering",
}
"""Optimum's class for a task of texts."""
PIPELINES = {
    "token-classification": "token-classification",
    "text-classification": "text-classification",
    "feature-extraction": "feature-extraction",
    "sentence-similarity": "feature-extraction",
}
"""The pipeline of Transformers.js for a word of the Hub."""
DTYPES = {
    "model": "fp32",
    "model_fp16": "fp16",
    "model_int8": "int8",
    "model_uint8": "uint8",
    "model_q4": "q4",
}
"""The name of a type of weights in Transformers.js, by the stem of the file that it loads."""
TEXT_FILES = frozenset({"config.json", "tokenizer.json"})
"""Files that libraries of Hugging Face need beside a graph for texts."""


class Snippet(NamedTuple):
    """Lines in a language (`sh`, `python`, `js`, `java`) for one client, and a remark about them."""

    client: str
    language: str
    code: str
    remark: str = ""


class SnippetSubject(NamedTuple):
    """An artifact of a version on the server at `base`.

    `tag` is the version; None if only the digest gets it. `files` is the version in the layout of the Hub. `has_token`:
    the server demands a token.
    """

    base: str
    name: str
    tag: str | None
    digest: Digest
    manifest: Manifest
    artifact: Artifact
    files: Mapping[str, LayoutFile]
    has_token: bool = False


def file_path(name: str, revision: str, path: str) -> str:
    """The path of a version's file on the server, after the Hub's protocol."""
    return f"/{url_quote(name)}/resolve/{url_quote(revision, safe=':')}/{url_quote(path)}"


def snippets(subject: SnippetSubject) -> list[Snippet]:
    """The clients that can use an artifact, the shell first."""
    return [*_of_shell(subject), *_of_python(subject), *_of_apps(subject)]


def _of_shell(subject: SnippetSubject) -> Iterator[Snippet]:
    base, name, artifact, folder = subject.base, subject.name, subject.artifact, basename(subject.name)
    revision = subject.tag or str(subject.digest)
    ref = f"{name}:{subject.tag}" if subject.tag else f"{name}@{subject.digest}"
    token = variable(base)
    one = ["--format", artifact.format, "--precision", artifact.precision]
    pull = join(["reg", "pull", ref, base, "--output", folder])
    resolve = join(["reg", "resolve", ref, "--remote", base, *one])
    remark = "Set {} to the token of this server." if subject.has_token else ""
    yield Snippet("reg", "sh", f"{pull}\n{resolve}", remark.format(token))
    download = join(["hf", "download", name, "--revision", revision, "--local-dir", folder])
    yield Snippet("hf", "sh", f"HF_ENDPOINT={quote(base)} {download}", remark.format("HF_TOKEN"))
    header = f'--header "Authorization: Bearer ${token}" ' if subject.has_token else ""
    lines = []
    for file in artifact.all_files():
        if file.role not in ASIDE:
            own, url = basename(file.path), base + file_path(name, revision, file.path)
            lines.append(f"curl --fail {header}--output {quote(own)} {quote(url)}")
            lines.append(f"echo {quote(f'{file.digest.hex}  {own}')} | sha256sum --check")
    yield Snippet("curl", "sh", "\n".join(lines))


def _of_python(subject: SnippetSubject) -> Iterator[Snippet]:
    artifact, path = subject.artifact, subject.artifact.path
    source = f"{subject.name!r}, revision={subject.tag or str(subject.digest)!r}"
    if path.endswith((".onnx", ".ort")):
        patterns = [file.path for file in artifact.all_files() if file.role not in ASIDE]
        code = f"""\
import onnxruntime
from huggingface_hub import snapshot_download

folder = snapshot_download(
    {source}, endpoint={subject.base!r},
    allow_patterns={patterns!r}, local_dir={basename(subject.name)!r},
)
session = onnxruntime.InferenceSession(folder + "/" + {path!r})
print([(item.name, item.type, item.shape) for item in session.get_inputs()])"""
        yield Snippet("ONNX Runtime", "python", code)
    task = pipeline_tag(subject.manifest) or ""
    is_graph = path.endswith(".onnx") and subject.manifest.model_family is None
    if task in OPTIMUM_CLASSES and subject.files.keys() >= TEXT_FILES and is_graph:
        kind, (folder, file) = OPTIMUM_CLASSES[task], split(path)
        location = f"subfolder={folder!r}, file_name={file!r}" if folder else f"file_name={file!r}"
        code = f"""\
import os
os.environ["HF_ENDPOINT"] = {subject.base!r}

from optimum.onnxruntime import {kind}
from transformers import AutoTokenizer, pipeline

model = {kind}.from_pretrained({source}, {location})
tokenizer = AutoTokenizer.from_pretrained({source})
run = pipeline({task!r}, model=model, tokenizer=tokenizer)"""
        yield Snippet("Optimum and transformers", "python", code)


def _of_apps(subject: SnippetSubject) -> Iterator[Snippet]:
    """JSON in ASCII is a literal of JavaScript and of Java too."""
    base, name, artifact, files = (
        literal(subject.base),
        literal(subject.name),
        subject.artifact,
        subject.files,
    )
    task = PIPELINES.get(pipeline_tag(subject.manifest) or "")
    names = {f"onnx/{stem}.onnx": dtype for stem, dtype in DTYPES.items()}
    fitting = (names[path] for path in names if path in files and files[path].digest == artifact.digest)
    dtype = next(fitting, None)
    if task and dtype and files.keys() >= TEXT_FILES:
        revision = literal(subject.tag or str(subject.digest))
        code = f"""\
import {{ env, pipeline }} from '@huggingface/transformers'

env.remoteHost = {base}
const run = await pipeline({literal(task)}, {name}, {{ revision: {revision}, dtype: {literal(dtype)} }})"""
        remark = "In a browser, the server must allow the page's origin (--cors)."
        yield Snippet("Transformers.js", "js", code, remark)
    if subject.tag is None:
        return
    tag, kind, precision = literal(subject.tag), literal(artifact.format), literal(artifact.precision)
    token = variable(subject.base)
    option = f", {{ token: process.env.{token} }}" if subject.has_token else ""
    code = f"""\
// not on npm: build and pack it in examples/web-client, then npm install the .tgz
import {{ Registry }} from '@onnxreg/client'
import {{ directoryStore }} from '@onnxreg/client/node'

const registry = new Registry({base}, directoryStore('models'){option})
const question = {{ tag: {tag}, query: {{ formats: [{kind}], precision: {precision} }} }}
const release = await registry.update({name}, question)
const model = await registry.read(release, release.artifact.path)"""
    yield Snippet(
        "JavaScript client", "js", code, "In a browser: browserStore('models') of '@onnxreg/client'."
    )
    settings = f', new Settings().token(System.getenv("{token}"))' if subject.has_token else ""
    code = f"""\
// not on Maven Central: build it in examples/jvm-client (python build.py maven)
import org.onnxreg.client.*;

Registry registry = new Registry({base}, new java.io.File("models"){settings});
Question question = new Question().tag({tag}).formats({kind}).precision({precision});
Release release = registry.update({name}, question);
java.io.File model = registry.file(release, release.artifact.path);"""
    yield Snippet("JVM client", "java", code)

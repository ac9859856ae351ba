"""Lines to copy from a version's page: how each client gets its files from this server.

Every value is quoted for the language that it is in, so that a name or path of somebody else is never code.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from posixpath import basename, split
from shlex import join, quote
from urllib.parse import quote as url_quote

from onnxreg.registry.store.net.http_rules import variable
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.formats.hub_layout import LayoutFile, pipeline_tag
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
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


@dataclass(frozen=True)
class Snippet:
    """Lines in a language (`sh`, `python`, `js`, `java`) for one client, and a remark about them."""

    client: str
    language: str
    code: str
    remark: str = ""


@dataclass(frozen=True)
class SnippetSubject:
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

    @property
    def revision(self) -> str:
        return self.tag or str(self.digest)

    @property
    def ref(self) -> str:
        return f"{self.name}:{self.tag}" if self.tag else f"{self.name}@{self.digest}"

    @property
    def folder(self) -> str:
        return basename(self.name)

    @property
    def downloads(self) -> list[FileEntry]:
        """The files of the artifact that a runtime loads."""
        return [file for file in self.artifact.all_files() if file.role not in ASIDE]

    @property
    def token(self) -> str:
        """The environment variable that has the server's token, as for `reg`."""
        return variable(self.base)

    def url(self, path: str) -> str:
        """The URL of a file, which ends in its name."""
        return self.base + file_path(self.name, self.revision, path)

    def has(self, paths: frozenset[str]) -> bool:
        return paths <= self.files.keys()


def file_path(name: str, revision: str, path: str) -> str:
    """The path of a version's file on the server, after the Hub's protocol."""
    return f"/{url_quote(name)}/resolve/{url_quote(revision, safe=':')}/{url_quote(path)}"


def snippets(subject: SnippetSubject) -> list[Snippet]:
    """The clients that can use an artifact, the shell first."""
    makers = (_reg, _hf, _curl, _onnxruntime, _optimum, _transformers_js, _javascript, _jvm)
    return [snippet for make in makers for snippet in make(subject)]


def _reg(subject: SnippetSubject) -> Iterator[Snippet]:
    artifact = subject.artifact
    one = ["--format", artifact.format, "--precision", artifact.precision]
    lines = [
        join(["reg", "pull", subject.ref, subject.base, "--output", subject.folder]),
        join(["reg", "resolve", subject.ref, "--remote", subject.base, *one]),
    ]
    remark = f"Set {subject.token} to the token of this server." if subject.has_token else ""
    yield Snippet("reg", "sh", "\n".join(lines), remark)


def _hf(subject: SnippetSubject) -> Iterator[Snippet]:
    words = ["hf", "download", subject.name, "--revision", subject.revision, "--local-dir", subject.folder]
    remark = "Set HF_TOKEN to the token of this server." if subject.has_token else ""
    yield Snippet("hf", "sh", f"HF_ENDPOINT={quote(subject.base)} {join(words)}", remark)


def _curl(subject: SnippetSubject) -> Iterator[Snippet]:
    header = f'--header "Authorization: Bearer ${subject.token}" ' if subject.has_token else ""
    lines = []
    for file in subject.downloads:
        name = basename(file.path)
        lines.append(f"curl --fail {header}--output {quote(name)} {quote(subject.url(file.path))}")
        lines.append(f"echo {quote(f'{file.digest.hex}  {name}')} | sha256sum --check")
    yield Snippet("curl", "sh", "\n".join(lines))


def _onnxruntime(subject: SnippetSubject) -> Iterator[Snippet]:
    path = subject.artifact.path
    if not path.endswith((".onnx", ".ort")):
        return
    patterns = [file.path for file in subject.downloads]
    lines = [
        "import onnxruntime",
        "from huggingface_hub import snapshot_download",
        "",
        "folder = snapshot_download(",
        f"    {subject.name!r}, revision={subject.revision!r}, endpoint={subject.base!r},",
        f"    allow_patterns={patterns!r}, local_dir={subject.folder!r},",
        ")",
        f'session = onnxruntime.InferenceSession(folder + "/" + {path!r})',
        "print([(item.name, item.type, item.shape) for item in session.get_inputs()])",
    ]
    yield Snippet("ONNX Runtime", "python", "\n".join(lines))


def _optimum(subject: SnippetSubject) -> Iterator[Snippet]:
    task = pipeline_tag(subject.manifest)
    kind = OPTIMUM_CLASSES.get(task or "")
    if kind is None or not subject.has(TEXT_FILES) or not _is_graph(subject):
        return
    source = f"{subject.name!r}, revision={subject.revision!r}"
    folder, file = split(subject.artifact.path)
    location = f"subfolder={folder!r}, file_name={file!r}" if folder else f"file_name={file!r}"
    lines = [
        "import os",
        f'os.environ["HF_ENDPOINT"] = {subject.base!r}',
        "",
        f"from optimum.onnxruntime import {kind}",
        "from transformers import AutoTokenizer, pipeline",
        "",
        f"model = {kind}.from_pretrained({source}, {location})",
        f"tokenizer = AutoTokenizer.from_pretrained({source})",
        f"run = pipeline({task!r}, model=model, tokenizer=tokenizer)",
    ]
    yield Snippet("Optimum and transformers", "python", "\n".join(lines))


def _transformers_js(subject: SnippetSubject) -> Iterator[Snippet]:
    task = PIPELINES.get(pipeline_tag(subject.manifest) or "")
    dtype = _dtype(subject)
    if task is None or dtype is None or not subject.has(TEXT_FILES):
        return
    options = f"{{ revision: {_js(subject.revision)}, dtype: {_js(dtype)} }}"
    lines = [
        "import { env, pipeline } from '@huggingface/transformers'",
        "",
        f"env.remoteHost = {_js(subject.base)}",
        f"const run = await pipeline({_js(task)}, {_js(subject.name)}, {options})",
    ]
    remark = "In a browser, the server must allow the page's origin (--cors)."
    yield Snippet("Transformers.js", "js", "\n".join(lines), remark)


def _javascript(subject: SnippetSubject) -> Iterator[Snippet]:
    if subject.tag is None:
        return
    artifact = subject.artifact
    query = f"{{ formats: [{_js(artifact.format)}], precision: {_js(artifact.precision)} }}"
    lines = [
        "// not on npm: build and pack it in examples/web-client, then npm install the .tgz",
        "import { Registry } from '@onnxreg/client'",
        "import { directoryStore } from '@onnxreg/client/node'",
        "",
        f"const registry = new Registry({_js(subject.base)}, directoryStore('models'){_token_js(subject)})",
        f"const question = {{ tag: {_js(subject.tag)}, query: {query} }}",
        f"const release = await registry.update({_js(subject.name)}, question)",
        "const model = await registry.read(release, release.artifact.path)",
    ]
    remark = "In a browser: browserStore('models') of '@onnxreg/client'."
    yield Snippet("JavaScript client", "js", "\n".join(lines), remark)


def _jvm(subject: SnippetSubject) -> Iterator[Snippet]:
    if subject.tag is None:
        return
    artifact = subject.artifact
    settings = f', new Settings().token(System.getenv("{subject.token}"))' if subject.has_token else ""
    question = (
        f"new Question().tag({_java(subject.tag)}).formats({_java(artifact.format)})"
        f".precision({_java(artifact.precision)})"
    )
    lines = [
        "// not on Maven Central: build it in examples/jvm-client (python build.py maven)",
        "import org.onnxreg.client.*;",
        "",
        f'Registry registry = new Registry({_java(subject.base)}, new java.io.File("models"){settings});',
        f"Question question = {question};",
        f"Release release = registry.update({_java(subject.name)}, question);",
        "java.io.File model = registry.file(release, release.artifact.path);",
    ]
    yield Snippet("JVM client", "java", "\n".join(lines))


def _is_graph(subject: SnippetSubject) -> bool:
    return subject.artifact.path.endswith(".onnx") and subject.manifest.model_family is None


def _dtype(subject: SnippetSubject) -> str | None:
    """The type by which Transformers.js loads the artifact; None if no second name leads to it."""
    for stem, dtype in DTYPES.items():
        file = subject.files.get(f"onnx/{stem}.onnx")
        if file is not None and file.digest == subject.artifact.digest:
            return dtype
    return None


def _token_js(subject: SnippetSubject) -> str:
    return f", {{ token: process.env.{subject.token} }}" if subject.has_token else ""


def _js(text: str) -> str:
    """A string literal of JavaScript; JSON in ASCII is one."""
    return json.dumps(text)


_java = _js
"""A string literal of Java: the escapes of JSON in ASCII are those of Java too."""

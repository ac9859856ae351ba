"""Render HTML from templates, serve the few static files of the pages, and write a difference as one file.

A difference is one self-contained page, without external files, to mail, print and keep. Everything in a page is
escaped, and characters that do not print are spelt out: names, reasons and whole manifests come from unknown people.
The name of a static file has the digest of its bytes, so caches may keep it forever.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.server.pages import views
from onnxreg.registry.server.pages.snippets import file_path
from onnxreg.registry.store.layout import blob_path
from onnxreg.schema.compare.graphs import DeepDiff, TensorChange, TensorForm
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import DiffOverview
from onnxreg.schema.compare.severity import kind_words
from onnxreg.schema.core.units import format_size, measure
from onnxreg.schema.log.summary import suite_checks

HERE = Path(__file__).parent
MEDIA_TYPES = {".css": "text/css", ".svg": "image/svg+xml"}
MAX_JSON_CHARS = 2000
"""Characters of a JSON value on a page."""


class Rendering:
    """The templates, for a server that its clients reach below the path `root`."""

    def __init__(self, root: str, registry: str) -> None:
        contents = {path: path.read_bytes() for path in sorted((HERE / "static").iterdir())}
        names = {
            path: f"{path.stem}-{sha256(data).hexdigest()[:16]}{path.suffix}"
            for path, data in contents.items()
        }
        self.static = {names[path]: (data, MEDIA_TYPES[path.suffix]) for path, data in contents.items()}
        self._root = root
        self._environment = environment()
        self._environment.globals |= {
            "root": root,
            "registry": registry,
            "static": {path.name: f"{root}/static/{name}" for path, name in names.items()},
            "model_url": self.model_url,
            "version_url": self.version_url,
            "file_url": lambda name, revision, path: root + file_path(name, revision, path),
            "blob_url": lambda digest: f"{root}/{blob_path(digest)}",
            "diff_url": lambda old, new: f"{root}/diff?{urlencode({'old': str(old), 'new': str(new)})}",
            "history_url": lambda name, metric=None: (
                f"{root}/history?{urlencode({'model': name} | ({'metric': metric} if metric else {}))}"
            ),
            "models_url": self.models_url,
            "query_url": lambda expression: f"{root}/?{urlencode({'q': expression})}",
            "all_files": views.all_files,
            "absent_files": views.absent_files,
        }
        for name in self._environment.list_templates():
            self._environment.get_template(
                name
            )  # an update of the program must not mix new templates with old code

    def models_url(self, **typed: str) -> str:
        """The first page with what was typed into its search."""
        fields = {key: value for key, value in typed.items() if value}
        return f"{self._root}/?{urlencode(fields)}" if fields else f"{self._root}/"

    def model_url(self, name: str) -> str:
        return f"{self._root}/models/{quote(name)}"

    def version_url(self, name: str, version: object) -> str:
        return f"{self.model_url(name)}:{quote(str(version), safe='+')}"

    def page(self, template: str, **values: Any) -> bytes:
        """Render a page from a template and its values."""
        return self._environment.get_template(template).render(values).encode()


def environment() -> Environment:
    """The environment of all templates, with their filters."""
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable,
    )
    templates.filters |= {
        "size": format_size,
        "json": shown_json,
        "moment": moment,
        "share": share,
        "figure": figure,
        "sentence": sentence,
        "kind_words": kind_words,
    }
    templates.globals |= {
        "recalls": views.recalls,
        "largest_loss": views.largest_loss,
        "metrics": suite_checks,
        "reasons": views.reasons,
    }
    return templates


def printable(value: Any) -> Any:
    """A text in which characters that do not print, such as those that turn the direction of writing, are
    spelt out.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in value)


def moment(time: str) -> str:
    """`2026-01-02 03:04 UTC`, of the time of an event."""
    return f"{time[:10]} {time[11:16]} UTC"


def share(value: float) -> str:
    return f"{value:.4f}"


def figure(value: float) -> str:
    """A measured number of any size."""
    return f"{value:.4g}"


def sentence(text: str) -> str:
    """A message as a sentence: with a full stop, and a capital unless it begins with a name such as `acme/pii`."""
    first = text.partition(" ")[0]
    start = text[:1].upper() if first.strip(",:;").isalpha() else text[:1]
    return start + text[1:] + ("" if not text or text[-1] in ".?!" else ".")


def shown_json(value: Any) -> str:
    """A JSON value for people: a text as it is, anything else indented; the end of a long one is left out."""
    text = (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1)
    )
    return text if len(text) <= MAX_JSON_CHARS else f"{text[:MAX_JSON_CHARS]} …"


def report(
    old: PublishedVersion,
    new: PublishedVersion,
    manifest_diff: ManifestDiff,
    screen: DiffOverview,
    deep: Sequence[DeepDiff] | None = None,
    later: Sequence[str] = (),
) -> bytes:
    """The page, UTF-8. `screen` comes first. `deep`: differences inside the files, if compared; `later`: verdicts of later
    evaluations.
    """
    page = environment()
    page.globals |= {"figure": measure, "tensor_form": tensor_form}
    style = Markup((HERE / "static" / "style.css").read_text(encoding="utf-8"))
    sides = [
        {"ref": side.ref, "tag": side.ref.tag, "digest": side.digest, "manifest": side.manifest}
        for side in (old, new)
    ]
    values = {
        "old": sides[0],
        "new": sides[1],
        "diff": manifest_diff,
        "screen": screen,
        "deep": deep,
        "style": style,
    }
    values |= {"later": later}
    return page.get_template("report.html").render(values).encode()


def tensor_form(change: TensorChange) -> str:
    """`float32[384, 17]`, and both sides' if they differ in more than values."""
    sides = [_form(form, change.change == "renamed") for form in (change.old, change.new) if form]
    text = " → ".join(dict.fromkeys(sides))
    return f"{text}, dequantized" if change.dequantized else text


def _form(form: TensorForm, with_name: bool) -> str:
    text = f"{form.dtype}[{', '.join(map(str, form.dims))}]"
    return f"{form.name} {text}" if with_name else text

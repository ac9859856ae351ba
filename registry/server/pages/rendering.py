"""Render HTML from templates, and render the difference between two versions as one HTML file.

All values in a page are escaped, and unprintable characters become codes, because unknown people wrote the values.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from onnxreg.registry.log.contents import Release
from onnxreg.registry.server.pages.snippets import file_path
from onnxreg.registry.store.protocol import blob_path
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import DiffOverview
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.units import format_size
from onnxreg.schema.log.state import recalls, suite_checks
from onnxreg.schema.manifest.manifest import StoredFile
from onnxreg.schema.manifest.vocabulary import LOSS, UNJUDGED

HERE = Path(__file__).parent
MAX_JSON_CHARS = 2000
POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'"
"""The content security policy of all pages."""
SCRIPTS = "; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'"
"""An addition to `POLICY` for pages with the script that runs a model in the browser."""


class Links:
    """The links of a server's pages, below the path `root`. `tree` is the URL of the registry's files."""

    is_static = False

    def __init__(self, root: str) -> None:
        self.root, self.tree = root, f"{root}/"

    def url(self, path: str, **parameters: object) -> str:
        query = urlencode({key: str(value) for key, value in parameters.items() if value})
        return f"{self.root}/{path}{'?' if query else ''}{query}"

    def model_url(self, name: str, version: object = "") -> str:
        return f"{self.root}/models/{quote(name)}{':' if version else ''}{quote(str(version), safe='+')}"

    def file_url(self, name: str, revision: str, file: StoredFile) -> str:
        return self.root + file_path(name, revision, file.path)

    def blob_url(self, digest: Digest) -> str:
        return f"{self.tree}{blob_path(digest)}"


class StaticLinks(Links):
    """The links of pages that are files in one folder. File names contain `~` or `@`, which no model's name has."""

    is_static = True

    def __init__(self, tree: str) -> None:
        self.root, self.tree = ".", tree

    def policy(self, has_script: bool) -> str:
        """Return the content security policy to write into a page file, since its web server may send none."""
        tree = urlsplit(self.tree)
        host = f" {tree.scheme}://{tree.netloc}" if tree.netloc else ""
        return f"{POLICY}{SCRIPTS}{host}" if has_script else POLICY

    def url(self, path: str, **parameters: object) -> str:
        return quote(f"{path}~{parameters['model']}.html".replace("/", "~")) if path else "index.html"

    def model_url(self, name: str, version: object = "") -> str:
        return self.url("model", model=f"{name}@{version}" if version else name)

    def file_url(self, name: str, revision: str, file: StoredFile) -> str:
        return self.blob_url(file.digest)


def environment(**values: Any) -> Environment:
    """Return the jinja2 environment of the templates. Every template can use the filters and the `values`."""
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable,
    )
    filters: dict[str, Callable[..., str]] = {
        "size": format_size,
        "json": shown_json,
        "moment": lambda time: f"{time[:10]} {time[11:16]} UTC",
        "share": "{:.4f}".format,
        "figure": "{:.4g}".format,
        "grouped": "{:,}".format,
        "sentence": sentence,
    }
    templates.filters |= filters
    templates.globals |= {"recalls": recalls, "metrics": suite_checks, "loss": LOSS}
    templates.globals |= {"unjudged": UNJUDGED, **values}
    return templates


def printable(value: Any) -> Any:
    """Replace each unprintable character of a text, such as a reversal of the writing direction, by an escape code."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in value)


def sentence(text: str) -> str:
    """End a message with a full stop. Capitalize its first word, except for a name such as `acme/pii`."""
    first = text.partition(" ")[0]
    start = text[:1].upper() if first.strip(",:;").isalpha() else text[:1]
    return start + text[1:] + ("" if not text or text[-1] in ".?!" else ".")


def shown_json(value: Any) -> str:
    """Return a JSON value for people: a text unchanged, and any other value indented. Long values are cut off."""
    options: Any = {"ensure_ascii": False, "sort_keys": True, "indent": 1}
    text = value if isinstance(value, str) else json.dumps(value, **options)
    return text if len(text) <= MAX_JSON_CHARS else f"{text[:MAX_JSON_CHARS]} …"


def report(
    old: Release, new: Release, manifest_diff: ManifestDiff, screen: DiffOverview, later: Sequence[str] = ()
) -> bytes:
    """Return the difference between two versions as one HTML file. `later` has the verdicts of later evaluations."""
    templates = environment()
    style = Markup((HERE / "static" / "style.css").read_text(encoding="utf-8"))
    page = templates.get_template("report.html").render(
        old=old, new=new, diff=manifest_diff, screen=screen, later=later, style=style
    )
    return page.encode()

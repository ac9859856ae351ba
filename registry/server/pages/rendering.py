"""Render HTML from templates, and render a difference as one file.

All values in a page are escaped, and characters that do not print are written as codes, since names, reasons and manifests
come from unknown people.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from onnxreg.registry.log.contents import Release
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import DiffOverview
from onnxreg.schema.core.units import format_size
from onnxreg.schema.log.state import RECALL, suite_checks
from onnxreg.schema.manifest.manifest import Artifact
from onnxreg.schema.manifest.parts import Check
from onnxreg.schema.manifest.vocabulary import LOSS, UNJUDGED

HERE = Path(__file__).parent
MAX_JSON_CHARS = 2000
"""The most characters of a JSON value that a page shows."""


def environment(**values: Any) -> Environment:
    """Return the environment of all templates, with the filters; every template can use the `values`."""
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
    """Return a text with codes for characters that do not print, such as those that reverse the writing direction."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in value)


def sentence(text: str) -> str:
    """Return a message as a sentence: with a full stop, and a capital letter unless a name like `acme/pii` is first."""
    first = text.partition(" ")[0]
    start = text[:1].upper() if first.strip(",:;").isalpha() else text[:1]
    return start + text[1:] + ("" if not text or text[-1] in ".?!" else ".")


def shown_json(value: Any) -> str:
    """Return a JSON value for people: a text unchanged, other values indented; a long value is cut off."""
    options: Any = {"ensure_ascii": False, "sort_keys": True, "indent": 1}
    text = value if isinstance(value, str) else json.dumps(value, **options)
    return text if len(text) <= MAX_JSON_CHARS else f"{text[:MAX_JSON_CHARS]} …"


def recalls(artifact: Artifact) -> list[tuple[str, Check]]:
    """Return the label and the check of every measured recall, in the order of the manifest."""
    checks = [check for check in artifact.checks if check.name.startswith(RECALL) and check.value is not None]
    return [(check.name.removeprefix(RECALL), check) for check in checks]


def report(
    old: Release, new: Release, manifest_diff: ManifestDiff, screen: DiffOverview, later: Sequence[str] = ()
) -> bytes:
    """Return a difference as one self-contained HTML page (UTF-8), for mail, print and archives.

    `screen` comes first on the page. `later` has the verdicts of later evaluations.
    """
    templates = environment()
    style = Markup((HERE / "static" / "style.css").read_text(encoding="utf-8"))
    page = templates.get_template("report.html").render(
        old=old, new=new, diff=manifest_diff, screen=screen, later=later, style=style
    )
    return page.encode()

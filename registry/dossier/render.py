"""The page of a dossier: one self-contained HTML file to read, print and keep. It shows the document, and adds nothing."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.registry.dossier.profile_files import EXTRA
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import missing_extra
from onnxreg.schema.dossier.dossier import Citation, Dossier, DossierCell

FOLDER = Path(__file__).with_name("page")
MAX_VALUE_CHARS = 240
"""Characters of a value on the page; `dossier.json` has all."""


@dataclass(frozen=True)
class SourceEntry:
    """A source in the list at the end: its number, its name in words, and its digest."""

    number: int
    name: str
    digest: Digest


def render(dossier: Dossier) -> bytes:
    """The page, UTF-8. HostError that names the extra if jinja2 is not installed."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise missing_extra("jinja2", EXTRA, "making the page of a dossier") from error
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    sources = _sources(dossier)
    environment.filters |= {"shown": shown}
    environment.globals["numbers"] = lambda cells: sorted(
        {sources[citation.source].number for cell in cells for citation in cell.sources}
    )
    by_digest = {str(source.digest): source.number for source in sources.values()}
    environment.globals["numbered"] = lambda cell: by_digest.get(shown(cell))
    style = (FOLDER / "dossier.css").read_text(encoding="utf-8")
    page = environment.get_template("dossier.html")
    return page.render(dossier=dossier, style=style, sources=list(sources.values())).encode()


def _sources(dossier: Dossier) -> Mapping[Digest, SourceEntry]:
    """The sources of all cells, numbered in the order in which they appear."""
    sources: dict[Digest, SourceEntry] = {}
    for citation in _citations(dossier):
        if citation.source not in sources:
            name = "blob" if citation.log is None else f"line {citation.line} of {citation.log}"
            sources[citation.source] = SourceEntry(len(sources) + 1, name, citation.source)
    return sources


def _citations(dossier: Dossier) -> Iterator[Citation]:
    for field in dossier.fields:
        for table in field.tables:
            for cells in (table.about, *table.rows):
                yield from (citation for cell in cells for citation in cell.sources)


def shown(cell: DossierCell) -> str:
    """A value for people: a text as it is, a list of texts with commas, anything else as JSON; a long one is cut."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        text = ", ".join(value)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} …"


def _printable(value: Any) -> Any:
    """A text in which characters that do not print are spelt out; names and reasons come from unknown people."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return str(value) if isinstance(value, Digest) else value
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in value)

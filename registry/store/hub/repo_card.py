"""The README.md of a registry on the Hugging Face Hub, shown to visitors in a browser.

Each model has a section between two marks. A push rewrites its own model's section and nothing else, so that text of
people, and sections of other models, stay.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.text_files import VALUE_ERRORS
from onnxreg.schema.log.state import State, VersionEntry

PATH = "README.md"
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)
EMPTY_CARD = """---
library_name: onnxreg
tags:
- onnx
- onnxreg
---

# ONNX models

A registry of exported ONNX models: every file under `blobs/` is named by its SHA-256, every move of a name is on record.
"""


def updated(
    card: str | None,
    name: str,
    index: bytes,
    url: str,
    description: str | None = None,
    loading: Sequence[str] = (),
) -> str | None:
    """The card (None: there is none yet) with a model's section as its index file says. None if it says nothing.

    `loading` are lines about other libraries, at the end of the section.
    """
    try:
        state = State.decode(index.partition(b"\n")[0])
        section = "\n".join([*_section(state, url, description), *(["", *loading] if loading else [])])
    except InputError:
        return None
    text = EMPTY_CARD if card is None else card
    begin, end = _marks(name)
    section_pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    block = f"{begin}\n{section}\n{end}"
    if section_pattern.search(text):
        return section_pattern.sub(lambda _: block, text, count=1)
    return f"{text.rstrip()}\n\n{block}\n"


def described(card: str, metadata: Mapping[str, Any], written: Mapping[str, Any]) -> str:
    """The card with this metadata in place of what was `written` before; the keys of people stay.

    Unchanged if its metadata cannot be read.
    """
    import yaml

    match = _FRONT_MATTER.match(card)
    try:
        value = yaml.safe_load(match[1]) if match else {}
    except (yaml.YAMLError, RecursionError, *VALUE_ERRORS):
        return card
    if not isinstance(value, dict):
        return card
    of_people = {key: item for key, item in value.items() if key not in written or written[key] != item}
    new = {**of_people, **{key: item for key, item in metadata.items() if key not in of_people}}
    if new == value:
        return card
    text = _edited(match[1] if match else "", value, new)
    return f"---\n{text}---\n{card[match.end() :] if match else card}"


def _edited(text: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """YAML with other values of some top-level keys; the other lines stay, with their comments and quotes.

    Written anew as a whole if it cannot be edited by lines, such as a mapping in braces.
    """
    import yaml

    changed = {key: item for key, item in new.items() if key not in old or old[key] != item}
    lines = text.splitlines(keepends=True)
    for first, last in _lines_of(text, {key for key in old if key not in new} | changed.keys()):
        lines[first:last] = []
    added = yaml.safe_dump(changed, sort_keys=False, allow_unicode=True) if changed else ""
    edited = "".join(lines) + added
    try:
        is_right = yaml.safe_load(edited) == new
    except (yaml.YAMLError, *VALUE_ERRORS):
        is_right = False
    return edited if is_right else yaml.safe_dump(dict(new), sort_keys=False, allow_unicode=True)


def _lines_of(text: str, keys: Collection[str]) -> list[tuple[int, int]]:
    """The first line, and the line after the last, of each of these top-level keys of a YAML mapping, the last key first."""
    import yaml

    root = yaml.compose(text, Loader=yaml.SafeLoader) if text else None
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    places = [(key.start_mark.line, _last_line(item) + 1) for key, item in pairs if key.value in keys]
    return sorted(places, reverse=True)


def _last_line(node: Any) -> int:
    """The last line of a YAML value. The mark at the end of a block is only after the comments that follow it."""
    import yaml

    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    end = node.end_mark
    return int(end.line - 1 if end.column == 0 and end.line > node.start_mark.line else end.line)


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- onnxreg {name} -->", f"<!-- /onnxreg {name} -->"


def _section(state: State, url: str, description: str | None) -> Iterator[str]:
    """The versions that have a summary in the state line, one row for each artifact; the others are counted."""
    listed_versions = [version for version in _newest_first(state) if str(version) in state.summaries]
    yield f"## {state.name}"
    yield ""
    if description:
        yield _cell(description)
        yield ""
    if listed_versions:
        yield "| version | artifact | precision | size | certification |"
        yield "|---|---|---|---:|---|"
    for version in listed_versions:
        yield from _rows(state, version)
    older = [version for version in _newest_first(state) if version not in listed_versions]
    if older or state.catalog is not None:
        yield ""
        yield "Other versions: " + ", ".join(
            [*map(str, older[:MAX_LISTED_VERSIONS]), f"see `reg log {state.name}`"]
        )
    yield ""
    yield "```"
    yield f"reg pull {state.name}{f':{listed_versions[0]}' if listed_versions else ''} {url}"
    yield "```"


MAX_LISTED_VERSIONS = 20
"""So many versions without a summary are named."""


def _newest_first(state: State) -> list[Version]:
    versions = {**dict.fromkeys(state.newest), **dict.fromkeys(state.versions)}
    versions |= dict.fromkeys(channel.version for channel in state.channels.values())
    remaining = [version for version in versions if not _is_dropped(state.versions.get(version))]
    return sorted(remaining, key=lambda version: version.precedence, reverse=True)


def _is_dropped(entry: VersionEntry | None) -> bool:
    return entry is not None and entry.dropped


def _rows(state: State, version: Version) -> Iterator[str]:
    summary = state.effective_summary(version)
    channels = sorted(tag for tag, channel in state.channels.items() if channel.version == version)
    entry = state.versions.get(version)
    status = "" if entry is None else entry.status(summary)
    notes = [*channels, *([status] if status else [])]
    label = f"{version} ({', '.join(notes)})" if notes else str(version)
    held_paths = entry.held if entry is not None else None
    for artifact, size in summary.downloads(held_paths) if summary else ():
        cells = (label, artifact.format, artifact.precision, _size(size), artifact.state)
        yield f"| {' | '.join(map(_cell, cells))} |"


def _size(count: int) -> str:
    """Bytes in decimal units, as the Hub itself shows them."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _cell(text: str) -> str:
    """Text that stays inside its cell: no markup of a manifest reaches the page."""
    plain = re.sub(r"[\s\x00-\x1f]+", " ", text)
    return re.sub(r"([\\|`*_<>\[\]&#])", r"\\\1", plain)

"""A difference as Markdown, for a pull request or the summary of a build."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from onnxreg.cli.render import manifest_view, output
from onnxreg.cli.reports.deep_diff import lines as deep_lines
from onnxreg.registry.server.pages.views import ArtifactPair, artifact_pairs
from onnxreg.schema.compare.graphs import DeepDiff
from onnxreg.schema.compare.manifests import ManifestDiff

if TYPE_CHECKING:
    from onnxreg.registry.read.versions import PublishedVersion

OPEN = ("breaking", "degrading")
"""Severities whose changes are shown at once; the others can be unfolded."""


def markdown(
    old: "PublishedVersion",
    new: "PublishedVersion",
    changes: ManifestDiff,
    deep: list[DeepDiff] | None = None,
) -> str:
    """The whole text, with a newline at its end."""
    parts = [f"### {escaped(f'{old.ref} → {new.ref}')}", "", f"**{escaped(changes.summary)}**"]
    parts += _list(manifest_view.doubts_of((old, new)))
    for pair in artifact_pairs(old, new):
        parts += _recall(pair, str(old.version), str(new.version))
    for severity, count in changes.counts.items():
        messages = [escaped(change.message) for change in changes.changes if change.severity == severity]
        if count:
            parts += _group(f"{count} {severity}", [f"- {message}" for message in messages], severity in OPEN)
    if deep:
        inside = "\n".join(deep_lines(deep)).replace("```", "'''")
        parts += _group("inside the files", [f"```text{inside}\n```"], is_open=False)
    return "\n".join(parts) + "\n"


def _list(lines: Iterable[str]) -> list[str]:
    items = [f"- {escaped(line)}" for line in lines]
    return ["", *items] if items else []


def escaped(text: str) -> str:
    """Text from a stranger's document that Markdown and HTML take for nothing but text."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|&~$@-])", r"\\\1", output.printable(text))


def _recall(pair: ArtifactPair, old: str, new: str) -> Iterator[str]:
    """The labels of one artifact whose recall changed, in a table; one line if it was measured on another suite."""
    rows = [
        (label, before.value, after.value)
        for label, before, after in pair.recalls()
        if before and after and before.value != after.value
    ]
    if rows and not pair.is_comparable:
        yield from ("", f"recall of {escaped(pair.path)}: measured on another suite, so not compared")
        return
    if rows:
        yield from ("", f"| recall of {escaped(pair.path)} | {escaped(old)} | {escaped(new)} | change |")
        yield "|---|---:|---:|---:|"
    for label, before, after in rows:
        yield f"| {escaped(label)} | {before:.4f} | {after:.4f} | {after - before:+.4f} |"


def _group(title: str, body: list[str], is_open: bool) -> list[str]:
    if is_open:
        return ["", f"#### {title}", "", *body]
    return ["", f"<details><summary>{title}</summary>", "", *body, "", "</details>"]

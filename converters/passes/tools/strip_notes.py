"""Doc strings and metadata of a graph, where exporters and users leave paths of their machines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.tools.graph import containers
from onnxreg.converters.source.scrub import scrub


def drop(model: Any) -> None:
    """Drop all of them of the model and everything in it, in place."""
    for message in _noted(model):
        for field in ("doc_string", "metadata_props"):
            if field in message.DESCRIPTOR.fields_by_name:
                message.ClearField(field)


def take_paths_out(model: Any, *directories: Path) -> bool:
    """Leave the last part of each absolute path in them (`scrub`), in place; whether there were any."""
    texts = list(_texts(model))
    cleaned, changed = scrub([getattr(*text) for text in texts], "", *directories)
    if changed:
        for (message, field), text in zip(texts, cleaned, strict=True):
            setattr(message, field, text)
    return bool(changed)


def _texts(model: Any) -> Iterator[tuple[Any, str]]:
    """The messages and their fields that hold a text."""
    for message in _noted(model):
        if getattr(message, "doc_string", ""):
            yield message, "doc_string"
        yield from ((entry, "value") for entry in getattr(message, "metadata_props", ()))


def _noted(model: Any) -> Iterator[Any]:
    yield model
    for body in containers(model):
        yield body
        yield from body.node
        yield from body.value_info
        if hasattr(body, "initializer"):
            yield from (*body.initializer, *body.input, *body.output)

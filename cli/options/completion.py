"""Completion for the Tab key: models, their tags, channels and remotes. It must never print an error."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from onnxreg.cli import COMPLETES
from onnxreg.cli.context import Session
from onnxreg.schema.core.errors import RegError

if TYPE_CHECKING:
    from onnxreg.schema.log.state import State

BASH = "complete_bash"
MODEL = "_REG_COMPLETE_MODEL"
"""The variable that holds the part before the colon of the word that bash completes."""


def join_words() -> list[str]:
    """The words before the one that is completed.

    Bash takes a colon for a word of its own, and wants to hear what comes behind it. So NAME:TAG is joined again where
    typer looks for it; of the word that is completed only TAG is left there.
    """
    if os.environ.get(COMPLETES) != BASH:
        return os.environ.get("_TYPER_COMPLETE_ARGS", "").split(" ")[1:-1]
    line = os.environ.get("COMP_WORDS", "")
    between = "\n" if "\n" in line else " "  # what typer's script sets IFS to
    joined = re.sub(f"{between}(:+)(?:{between}|$)", r"\1", line)
    position = int(os.environ.get("COMP_CWORD", "0")) - (line.count(between) - joined.count(between))
    words = joined.split(between)
    if position < len(words) and ":" in words[position]:
        os.environ[MODEL], _, words[position] = words[position].partition(":")
    os.environ.update(COMP_WORDS=between.join(words), COMP_CWORD=str(position))
    return words[1:position]


def complete_name(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The models of the registry."""
    with suppress(RegError, OSError):
        names = _session(context).reader(checked=False).names()
        yield from (name for name in names if name.startswith(incomplete))


def complete_ref(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The models of the registry; behind a colon the channels and versions of one."""
    name, colon, _ = incomplete.partition(":")
    model = os.environ.get(MODEL)
    if not colon and model is None:
        yield from complete_name(context, incomplete)
        return
    before = f"{name}:" if model is None else ""
    with suppress(RegError, OSError):
        state = _state(context, name if model is None else model)
        tags = [*state.channels, *map(str, sorted(state.versions, reverse=True))]
        yield from (f"{before}{tag}" for tag in tags if f"{before}{tag}".startswith(incomplete))


def complete_channel(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The channels of the model that the preceding REF names."""
    with suppress(RegError, OSError):
        channels = _state(context, str(context.params.get("ref")).partition(":")[0]).channels
        yield from (channel for channel in channels if channel.startswith(incomplete))


def complete_remote(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The names of the configured remotes."""
    with suppress(RegError, OSError):
        yield from (name for name in _session(context).remotes().urls if name.startswith(incomplete))


def _session(context: typer.Context) -> Session:
    chosen = context.find_root().params.get(
        "registry"
    )  # a str in the shells whose words typer does not parse
    return Session(None if chosen is None else Path(chosen))


def _state(context: typer.Context, name: str) -> "State":
    from onnxreg.registry.log.lookup import open_log

    return open_log(_session(context).reader(checked=False), name).state

"""Consent to run code: a person names it on the command line, for one command. Nothing remembers it.

`net.py:build` is consent to one function, `net.py` to each that this file defines, never to what it imports.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from onnxreg.converters.tasks.code.factory import Definition, Factory
from onnxreg.schema.core.errors import InputError

MAX_SHOWN = 300
"""Characters of the arguments in a message."""


@dataclass(frozen=True)
class Consent:
    """The code that may run: `names` as `--allow-code` takes them, and a factory that was typed as the `source` itself.

    `is_recorded` says that a manifest names the code. It is then looked for in the directory of the source and among what is
    installed, and never in the working directory.
    """

    names: frozenset[str] = frozenset()
    source: str | None = None
    is_recorded: bool = False

    @classmethod
    def of(cls, names: Iterable[str] = (), source: str | None = None, is_recorded: bool = False) -> Self:
        """Consent to `module:function`, `file.py:function` or `file.py`; a file that is there means that file and no other of its name."""
        return cls(frozenset(map(absolute, names)), source, is_recorded)

    def check(
        self, factory: Factory, arguments: Mapping[str, Any] | None = None, source: str | None = None
    ) -> None:
        """Raise InputError, with what to type, unless a person named this code.

        Args:
            arguments: what the function is called with, for people to read.
            source: the text that the factory was found by, if it is the source of an export.
        """
        if source is not None and source == self.source:
            return
        definition = factory.definition
        if self.names.isdisjoint({factory.name} if definition is None else _names(definition)):
            name, described = _shown(factory, definition)
            given = f", called with {_text(arguments)}" if arguments else ""
            raise InputError(
                f"{described} is code{given}, which runs only if you allow it",
                f"read it, then pass --allow-code {name}",
            )


NO_CONSENT = Consent()


def absolute(name: str) -> str:
    """A name that means the same from any working directory: a file that is there by its whole path."""
    path, function = _split(name)
    return f"{Path(path).resolve()}{function}" if path.endswith(".py") and Path(path).is_file() else name


def _split(name: str) -> tuple[str, str]:
    """`net.py:build` as `net.py` and `:build`."""
    path, colon, function = name.rpartition(":")
    return (path, colon + function) if path.endswith(".py") else (name, "")


def _names(definition: Definition) -> set[str]:
    """Every way to name a function of a file: by the file, alone or with the function."""
    files = (definition.label, str(definition.file.resolve()))
    return {*files, *(f"{file}:{definition.function}" for file in files)}


def _shown(factory: Factory, definition: Definition | None) -> tuple[str, str]:
    """The name to type, and the code in words."""
    if definition is None:
        return factory.name, factory.name
    file = _file(definition)
    return f"{file}:{definition.function}", f"{file} ({definition.function})"


def _file(definition: Definition) -> str:
    """The file's name: short, unless it means another file here."""
    here, file = Path(definition.label), definition.file.resolve()
    if not here.is_file() or here.resolve() == file:
        return definition.label
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def _text(arguments: Mapping[str, Any]) -> str:
    """Arguments as JSON, the beginning if they are long."""
    text = json.dumps(arguments, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."

"""Consent to run code: a person names it on the command line, for one command. Nothing remembers it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from onnxreg.converters.tasks.code.factory import Factory
from onnxreg.schema.core.errors import InputError


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
        """Consent to `module:function` or `file.py`; a file that is there means that file and no other of its name."""
        return cls(frozenset(map(absolute, names)), source, is_recorded)

    def check(self, factory: Factory, source: str | None = None) -> None:
        """Raise InputError, with what to type, unless a person named this code.

        Args:
            source: the text that the factory was found by, if it is the source of an export.
        """
        if source is not None and source == self.source:
            return
        if self.names.isdisjoint(_names(factory)):
            name = _shown(factory)
            what = f"{name} ({factory.function})" if name.endswith(".py") else name
            raise InputError(
                f"{what} is code, which runs only if you allow it", f"read it, then pass --allow-code {name}"
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


def _names(factory: Factory) -> set[str]:
    """Every way to name a factory: an installed function by its module, any other by its file."""
    if factory.label is None:
        return {factory.name}
    files = (factory.label, str(factory.file.resolve()))
    return {*files, *(f"{file}:{factory.function}" for file in files)}


def _shown(factory: Factory) -> str:
    """The name to type: short, unless it means another file here."""
    label = factory.label
    if label is None:
        return factory.name
    here = Path(label)
    if not here.is_file() or here.resolve() == factory.file.resolve():
        return label
    file = factory.file.resolve()
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)

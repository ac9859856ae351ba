"""The global options, and the registry and output of every verb."""

import json
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.output import counted, duration, printable, write_json
from onnxreg.registry import system
from onnxreg.schema.core.errors import GateError

if TYPE_CHECKING:
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.remotes import Remotes
    from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
    from onnxreg.registry.trust.known_heads import KnownHeads, StaleNotice
    from onnxreg.schema.core.units import Progress


@dataclass(frozen=True)
class Session:
    """One run of `reg`: the global options, the registry, and the output.

    `registry` is the directory of `--registry` (None: the default registry); `max_age` is the greatest allowed age of a
    remote's index file in seconds (None: any age); `as_json` is true if programs read stdout and stderr.
    """

    registry: Path | None = None
    quiet: bool = False
    max_age: int | None = None
    as_json: bool = False
    _stale: set[tuple[str, str, int]] = field(default_factory=set, repr=False, compare=False)

    def limited(self, max_age: str | None) -> "Session":
        """Copy the session with the age limit `--max-age`, else `REG_MAX_AGE`; without a limit, return this session."""
        limit = max_age or system.variable("REG_MAX_AGE")
        if not limit:
            return self
        from onnxreg.schema.core.units import parse_duration

        return replace(self, max_age=parse_duration(limit))

    def open(self, create: bool | None = False) -> "Registry":
        """Open the registry. A missing registry: `create` True creates it, False raises NotFoundError, None ignores it."""
        from onnxreg.registry.registry import Registry

        registry = Registry(self.registry, create)
        registry.heads = self.heads()
        return registry

    def reader(
        self, remote: str | None = None, offline: bool = False, checked: bool = True
    ) -> "RegistryReader":
        """Open the registry, or one of its remotes, for reading. Imports little, for verbs that must start fast.

        `offline`: read the local copy of the remote and print its age. `checked`: compare the local registry with the
        known heads (a remote is always compared).
        """
        if remote is not None or offline:
            return self.remotes().read(remote, self.heads(), self._tell_age if offline else None)
        from onnxreg.registry.store.directory import DirectoryRegistry
        from onnxreg.registry.trust.known_heads import CheckedReader

        own = DirectoryRegistry.open(self.root)
        return CheckedReader(own, self.heads()) if checked else own

    @property
    def root(self) -> Path:
        """The registry's directory, which may not exist."""
        return self.registry or system.default_root()

    def remotes(self) -> "Remotes":
        """Return the configured remotes, even if the local registry does not exist."""
        from onnxreg.registry.remotes import Remotes
        from onnxreg.registry.store.directory import DirectoryRegistry

        return Remotes(DirectoryRegistry(self.root))

    def heads(self) -> "KnownHeads":
        """Return the user's known heads; notices about them are printed on stderr."""
        from onnxreg.registry.trust.known_heads import KnownHeads

        return KnownHeads(stale=self._tell_stale, warn=self.warn)

    def _tell_stale(self, notice: "StaleNotice") -> None:
        key = (notice.url, notice.name, notice.lines)
        if key not in self._stale:
            events = f"the last {counted(notice.lines, 'event')} of {notice.name}"
            self.warn(f"stale: {notice.url} lacks {events}, seen elsewhere {duration(notice.seconds)} ago")
        self._stale.add(key)
        self._check_age(notice.name, notice.seconds)

    def _tell_age(self, name: str, seconds: float) -> None:
        self.warn(f"offline: {name} as it was {duration(seconds)} ago")
        self._check_age(name, seconds)

    def _check_age(self, name: str, seconds: float) -> None:
        if self.max_age is not None and seconds > self.max_age:
            old = f"what is known of {name} is {duration(seconds)} old, at most {duration(self.max_age)} is allowed"
            raise GateError(old, "ask a place that is up to date, or allow more with --max-age")

    def warn(self, message: str) -> None:
        """Print a warning on stderr: a line with control characters escaped; with `as_json`, `{"warning": message}`."""
        if not self.quiet:
            document = {"warning": message.removeprefix("warning: ")}
            print(json.dumps(document) if self.as_json else printable(message), file=sys.stderr)

    def with_remote(self, remote: str | None) -> "tuple[Registry, RegistryStore | None]":
        """Open the registry and a remote to work on. With a remote, a missing local registry is not an error."""
        registry = self.open(create=False if remote is None else None)
        return registry, None if remote is None else registry.remotes.open(remote)

    @staticmethod
    def place(remote: "RegistryStore | None") -> str:
        """Return the last words of a sentence about a change: ` in URL` for a remote, "" for the local registry."""
        return "" if remote is None else f" in {remote.url}"

    def check_target(self, directory: Path) -> Path:
        """Return the folder for a version's files. Raise InputError if writing them would destroy other files."""
        from onnxreg.registry.transfer.export_files import check_target, folder_in

        folder = folder_in(directory)
        check_target(folder, self.root)
        return folder

    def show(self, document: object, *parts: str | Iterable[str] | None) -> None:
        """Print a result: `document` with `--json`, else `parts`. A part is a line, or several lines such as a `table`."""
        if self.as_json:
            write_json(document)
        else:
            for part in parts:
                self.say(*([part] if isinstance(part, str) else part or ()))

    def say(self, *lines: str) -> None:
        """Print lines for people on stdout; nothing with `--quiet` or `--json`."""
        if not (self.quiet or self.as_json):
            for line in lines:
                print(line)

    def progress(self, label: str) -> "AbstractContextManager[Progress]":
        """A context that draws the progress of a transfer on stderr; nothing if stderr is not a terminal."""
        from onnxreg.cli.output import files

        return files(label, silent=self.quiet or self.as_json)

    def steps(self) -> "AbstractContextManager[Progress]":
        """A context that shows the steps of long work on stderr."""
        from onnxreg.cli.output import steps

        return steps(silent=self.quiet or self.as_json)

"""The global options, and the registry and output of every verb."""

import json
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.output import counted, duration, printable, write_json
from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import GateError

if TYPE_CHECKING:
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.remotes import Remotes
    from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
    from onnxreg.registry.trust.known_heads import KnownHeads, StaleNotice
    from onnxreg.schema.core.progress import Progress


@dataclass(frozen=True)
class Session:
    """One run of `reg`.

    `registry` is the directory of `--registry`, None for the default one; `max_age` the greatest age in seconds of
    what is known of a remote, None for any; `as_json` is true if programs read stdout and stderr.
    """

    registry: Path | None = None
    quiet: bool = False
    max_age: int | None = None
    as_json: bool = False
    _stale: set[tuple[str, str, int]] = field(default_factory=set, repr=False, compare=False)

    def limited(self, max_age: str | None) -> "Session":
        """The same, with the limit that `--max-age` says, or else `REG_MAX_AGE`."""
        limit = max_age or environment.read("REG_MAX_AGE")
        if not limit:
            return self
        from onnxreg.schema.core.units import parse_duration

        return replace(self, max_age=parse_duration(limit))

    def open(self, create: bool | None = False) -> "Registry":
        """The registry. NotFoundError if it does not exist, unless `create` makes it, or (None) none is needed."""
        from onnxreg.registry.registry import Registry

        registry = Registry(self.registry, create)
        registry.heads = self.heads()
        return registry

    def reader(
        self, remote: str | None = None, offline: bool = False, checked: bool = True
    ) -> "RegistryReader":
        """The registry, or a remote of it, for reading. Light: for the verbs that must start at once.

        `offline`: the remote as it was last seen, and how long ago. Unless `checked`, the registry itself is not compared
        with the checkpoints.
        """
        if remote is not None or offline:
            return self.remotes().read(remote, self.heads(), self._tell_age if offline else None)
        from onnxreg.registry.store.directory import DirectoryRegistry
        from onnxreg.registry.trust.known_heads import CheckedReader

        own = DirectoryRegistry.open(self.root)
        return CheckedReader(own, self.heads()) if checked else own

    @property
    def root(self) -> Path:
        """The registry's directory, which need not be there."""
        return self.registry or environment.default_root()

    def remotes(self) -> "Remotes":
        """The configured remotes; the registry itself may be missing."""
        from onnxreg.registry.remotes import Remotes
        from onnxreg.registry.store.directory import DirectoryRegistry

        return Remotes.load(DirectoryRegistry(self.root))

    def heads(self) -> "KnownHeads":
        """The known heads of the user; notices about them go to stderr."""
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
        """A line on stderr, in which no text of others controls the terminal; with `as_json` it is `{"warning": message}`."""
        if not self.quiet:
            document = {"warning": message.removeprefix("warning: ")}
            print(json.dumps(document) if self.as_json else printable(message), file=sys.stderr)

    def with_remote(self, remote: str | None) -> "tuple[Registry, RegistryStore | None]":
        """The registry, and a remote of it to work on. Then the local registry may be missing; it is not created."""
        registry = self.open(create=False if remote is None else None)
        return registry, None if remote is None else registry.remotes.open(remote)

    @staticmethod
    def place(remote: "RegistryStore | None") -> str:
        """The end of a sentence about what was written: the remote, if it was one."""
        return "" if remote is None else f" in {remote.url}"

    def check_target(self, directory: Path) -> Path:
        """The folder that a version written there goes into. InputError if that would destroy something else."""
        from onnxreg.registry.transfer.export_files import check_target, folder_in

        folder = folder_in(directory)
        check_target(folder, self.root)
        return folder

    def show(self, document: object, *parts: str | Iterable[str] | None) -> None:
        """Print a result: its document with `--json`, else its lines. A part is a line, or lines such as `table`."""
        if self.as_json:
            write_json(document)
        else:
            for part in parts:
                self.say(*([part] if isinstance(part, str) else part or ()))

    def say(self, *lines: str) -> None:
        """Lines for people, on stdout."""
        if not self.quiet:
            for line in lines:
                print(line)

    def progress(self, label: str) -> "AbstractContextManager[Progress]":
        """Draw on stderr the files that move; nothing if it is not a terminal."""
        from onnxreg.cli.progress import files

        return files(label, silent=self.quiet or self.as_json)

    def steps(self) -> "AbstractContextManager[Progress]":
        """Show on stderr the steps of long work."""
        from onnxreg.cli.progress import steps

        return steps(silent=self.quiet or self.as_json)

"""The session of a command, and the arguments and options that several verbs share."""

import json
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from onnxreg.cli.output import counted, duration, files, printable, steps, write_json
from onnxreg.registry.system import default_root, variable
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import GateError, InputError, NotFoundError, RegError, about
from onnxreg.schema.core.files import read_given
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import Progress, parse_duration, parse_size
from onnxreg.schema.manifest.vocabulary import check_description, check_license

if TYPE_CHECKING:
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.remotes import Remotes
    from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
    from onnxreg.registry.trust.known_heads import KnownHeads, StaleNotice
    from onnxreg.schema.query.device import Device
    from onnxreg.schema.query.resolve import Query


class Session(msgspec.Struct, frozen=True):
    """One run of `reg`: the global options, the registry, and the output."""

    registry: Path | None = None  # the directory of --registry; None: the default
    quiet: bool = False
    max_age: int | None = None  # of a remote's index file, in seconds; None: any
    as_json: bool = False
    _told: set[str] = msgspec.field(default_factory=set)

    def with_max_age(self, max_age: str | None) -> "Session":
        """Return a copy that refuses data older than `max_age`, such as `7d`. The default is `REG_MAX_AGE`."""
        limit = max_age or variable("REG_MAX_AGE")
        return msgspec.structs.replace(self, max_age=parse_duration(limit)) if limit else self

    def open(self, create: bool | None = False) -> "Registry":
        """Open the registry. If no registry exists, `create=True` makes one, and `create=False` raises NotFoundError.

        If `create` is None, a registry need not exist. Without one, only the remotes of the result can be used.
        """
        from onnxreg.registry.registry import Registry

        registry = Registry(self.registry, create)
        registry.heads = self.heads()
        return registry

    def reader(
        self, remote: str | None = None, offline: bool = False, checked: bool = True
    ) -> "RegistryReader":
        """Open the registry or a remote for reading. This imports little, so that `reg` starts fast.

        If `offline` is set, read the local copy of the remote, and print its age. If `checked` is set, compare the
        local registry with the known heads. A remote is always compared with them.
        """
        if remote is not None or offline:
            return self.remotes().read(remote, self.heads(), self._tell_age if offline else None)
        from onnxreg.registry.store.directory import DirectoryRegistry
        from onnxreg.registry.trust.known_heads import CheckedReader

        own = DirectoryRegistry.open(self.root)
        return CheckedReader(own, self.heads()) if checked else own

    @property
    def root(self) -> Path:
        """The registry's directory, even if it does not exist."""
        return self.registry or default_root()

    def remotes(self) -> "Remotes":
        """Return the configured remotes. This works even if no local registry exists."""
        from onnxreg.registry.remotes import Remotes
        from onnxreg.registry.store.directory import DirectoryRegistry

        return Remotes(DirectoryRegistry(self.root))

    def heads(self) -> "KnownHeads":
        """Return this user's known heads, with which later reads of logs are compared. Notices go to stderr."""
        from onnxreg.registry.trust.known_heads import KnownHeads

        return KnownHeads(stale=self._tell_stale, warn=self.warn)

    def _tell_stale(self, notice: "StaleNotice") -> None:
        events = (
            f"the last {counted(notice.lines, 'event') if notice.lines > 1 else 'event'} of {notice.name}"
        )
        stale = f"stale: {notice.url} lacks {events}, seen elsewhere"
        self._tell_once(notice.name, stale, notice.seconds)

    def _tell_age(self, name: str, seconds: float) -> None:
        self._tell_once(name, f"offline: {name} as it was", seconds)

    def _tell_once(self, name: str, message: str, seconds: float) -> None:
        """Print `message` and its age as a warning, but only once. Raise GateError if the age exceeds `max_age`."""
        if message not in self._told:
            self.warn(f"{message} {duration(seconds)} ago")
        self._told.add(message)
        if self.max_age is not None and seconds > self.max_age:
            old = f"what is known of {name} is {duration(seconds)} old, at most {duration(self.max_age)} is allowed"
            raise GateError(old, "ask a place that is up to date, or allow more with --max-age")

    def warn(self, message: str) -> None:
        """Print a warning on stderr. With `--json` it is `{"warning": message}`, otherwise it is a line of text."""
        if not self.quiet:
            document = {"warning": message.removeprefix("warning: ")}
            print(json.dumps(document) if self.as_json else printable(message), file=sys.stderr)

    def with_remote(self, remote: str | None) -> "tuple[Registry, RegistryStore | None]":
        """Open the local registry, and the remote if `remote` is given. With a remote, no local registry is needed."""
        registry = self.open(create=False if remote is None else None)
        return registry, None if remote is None else registry.remotes.open(remote)

    @staticmethod
    def place(remote: "RegistryStore | None") -> str:
        """Return words for the end of a message: ` in URL` for a remote, or "" for the local registry."""
        return "" if remote is None else f" in {remote.url}"

    def check_target(self, directory: Path) -> Path:
        """Return the folder for a version's files. Raise InputError if writing them would destroy other files."""
        from onnxreg.registry.transfer.export_files import check_target, folder_in

        folder = folder_in(directory)
        check_target(folder, self.root)
        return folder

    def show(self, document: object, *parts: str | Iterable[str] | None) -> None:
        """Print `document` if `--json` is set. Otherwise print `parts`, which are lines or lists of lines."""
        if self.as_json:
            write_json(document)
        else:
            for part in parts:
                self.say(*([part] if isinstance(part, str) else part or ()))

    def say(self, *lines: str) -> None:
        """Print lines for people on stdout, unless `--quiet` or `--json` is set."""
        if not (self.quiet or self.as_json):
            for line in lines:
                print(line)

    def progress(self, label: str) -> AbstractContextManager[Progress]:
        """Return a context that shows the progress of a transfer on stderr, if it is a terminal."""
        return files(label, silent=self.quiet or self.as_json)

    def steps(self) -> AbstractContextManager[Progress]:
        return steps(silent=self.quiet or self.as_json)


def option(help: str, *names: str, default: Any = None, **more: Any) -> Any:
    """Declare an option with a value. Its default name is the parameter's name. `default=...` makes it required."""
    more |= {"show_default": default not in (None, ...), "readable": False}  # a file is checked by its reader
    return typer.Option(default, *names, help=help, **more)


def flag(help: str, *names: str) -> Any:
    """Declare an option without a value. Its default name is the parameter's name."""
    return typer.Option(False, *names, help=help)


def argument(help: str, metavar: str, models: bool = False, **more: Any) -> Any:
    """Declare an argument. A `metavar` such as `[NAME]` makes it optional. With `models`, the shell completes names."""
    default = more.pop("default", None if metavar.startswith("[") else ...)
    more |= {"show_default": False, "readable": False, "autocompletion": complete_name if models else None}
    return typer.Argument(default, help=help, metavar=metavar, **more)


def complete_name(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the models' names that begin with `incomplete`. Errors are ignored: a completion must not print them."""
    chosen = context.find_root().params.get("registry")  # a text in some shells
    with suppress(RegError, OSError):
        names = Session(None if chosen is None else Path(chosen)).reader(checked=False).names()
        yield from (name for name in names if name.startswith(incomplete))


def _not_empty(reason: str | None) -> str | None:
    if reason is not None and not reason.strip():
        raise InputError("the reason is empty", "write why, or leave --reason out")
    return reason


REF = argument("NAME[:TAG][@sha256:...]; without a tag the newest version.", "REF", models=True)
EXACT_REF = argument("NAME:TAG or NAME@sha256:...; a name alone is refused.", "REF", models=True)
NAME = argument("The model.", "NAME", models=True)
CHANNEL = argument("The channel, such as stable; a version never moves.", "CHANNEL")
REMOTE = option("Use this remote (a name, path or URL), not the local registry.", "--remote")
FORMATS = option("Only artifacts of this format; may be repeated.", "--format")
PRECISION = option("Only artifacts of this precision.")
OFFLINE = flag("Answer from the local copy of the remote, without a request, and print the age of the copy.")
MAX_AGE = option(
    "The maximum age of an answer, such as 12h or 7d; default: REG_MAX_AGE. If a copy is older, the exit status is 8. An older catalog is not used.",
    metavar="DURATION",
)
LICENSE = option(
    "The licence: an SPDX expression such as Apache-2.0, or a licence name of the Hub.",
    parser=check_license,
    metavar="LICENCE",
)
DESCRIPTION = option(
    "What the model does, in one line of at most 500 characters.", parser=check_description, metavar="TEXT"
)
VERSION = option(
    "A SemVer version; default: the next patch, or 0.1.0; another task needs a new major version.",
    parser=Version.parse,
)
OUTPUT = option("Also write the files into this directory: a new one, or that of an earlier export.")
ALLOW_CODE = option(
    "Run this code, which a recipe names: an installed module:function, file.py:function, or file.py for everything that it defines. The permission is not remembered.",
    metavar="NAME",
)
REASON = option("The reason, for the log.", callback=_not_empty)
DEVICE = option(
    "The device it must run on: a preset (see `reg builtin devices`) or a JSON file of one device."
)


def pairs(texts: list[str] | None, form: str, hint: str, empty: bool = False) -> Iterator[tuple[str, str]]:
    """Split each text at `=`. Raise InputError if a part is missing. With `empty`, the value may be missing."""
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not (name and sign and (value or empty)):
            raise InputError(f"write {form}, not {text[:80]!r}", hint)
        yield name, value


def query(
    session: Session,
    remote: str | None,
    offline: bool,
    formats: list[str] | None = option("An accepted format, best first; may be repeated.", "--format"),
    precision: str | None = PRECISION,
    certified: bool = flag("Only certified artifacts."),
    max_size: str | None = option(
        "The maximum size of the download in bytes, with all files: 30MB (10^6), 28MiB (2^20)."
    ),
    min_recall: list[str] | None = option(
        "The minimum measured recall of a label, such as PHONE=0.95; may be repeated.", metavar="LABEL=SHARE"
    ),
    where: str | None = option("A further condition, such as 'opset <= 18 and not yanked' (docs/query.md)."),
    member: str | None = option(
        "The stage of a pipeline, such as detector, or the member of a family, such as backbone.",
        metavar="NAME",
    ),
    context_tokens: int | None = option(
        "The number of tokens that a decoder must keep. For the memory of a device, this number counts instead of the decoder's longest context.",
        metavar="TOKENS",
        min=0,
    ),
    compatible_with: list[str] | None = option(
        "Only artifacts with the inputs, outputs, labels and tokenizer of this version, so that an app that was written for it can run them. A REF or the digest of a contract; may be repeated.",
        metavar="REF",
    ),
) -> "Query":
    """Make a query from options. Raise InputError for a malformed value, and NotFoundError for an unknown version."""
    from onnxreg.schema.query.expression import parse
    from onnxreg.schema.query.resolve import Query

    expression = None if where is None else parse(where)
    return Query(
        tuple(formats or ()),
        precision,
        certified,
        None if max_size is None else parse_size(max_size),
        dict(map(_recall, min_recall or ())),
        expression,
        member,
        context=context_tokens,
        contracts=tuple(_contracts(session, remote, offline, compatible_with or ())),
    )


def _recall(text: str) -> tuple[str, float]:
    label, _, least = text.rpartition("=")
    with suppress(ValueError):
        if label and 0 <= float(least) <= 1:
            return label, float(least)
    raise InputError(f"not a least recall: {text[:80]!r}", "write --min-recall LABEL=0.95")


def _contracts(session: Session, remote: str | None, offline: bool, words: Iterable[str]) -> Iterator[Digest]:
    from onnxreg.registry.resolution import contracts_of

    for word in words:
        if word.startswith("sha256:"):
            yield Digest.parse(word)
        else:
            yield from contracts_of(session.reader(remote, offline), Ref.parse(word))


def read_one_device(word: str | None) -> "Device | None":
    """Return the device of the option `--device`. Raise InputError if a file of devices does not have exactly one."""
    if word is None:
        return None
    devices = read_devices(word)
    if len(devices) != 1:
        raise InputError(f"{word} holds {len(devices)} devices", "name a file that holds one")
    return devices[0]


def read_devices(word: str) -> "list[Device]":
    """Return the devices that an option names. `word` is the name of a preset, or the path of a file of devices.

    Raise InputError, naming file and device, if a device is malformed. Raise NotFoundError if the file does not exist.
    """
    from onnxreg.schema.query.device import preset

    path = Path(word)
    if not path.exists():
        if path.suffix == ".json" or "/" in word:
            raise NotFoundError(
                f"there is no device file {word}",
                "check the path; `reg builtin devices` lists presets that need none",
            )
        return [preset(word)]
    document = canonical.decode(read_given(path).removeprefix(BOM_UTF8), word)
    if not isinstance(document, list):
        return [_device(document, path, "")]
    return [_device(item, path, f"[{index}]") for index, item in enumerate(document)]


def _device(value: Any, path: Path, index: str) -> "Device":
    from onnxreg.schema.query.device import Device

    with about(f"{path}{index}"):
        if isinstance(value, dict):
            value = {"name": f"{path.stem}{index}"} | value
        if isinstance(value, dict) and "operators_file" in value:
            name = value.pop("operators_file")
            if not isinstance(name, str) or "\0" in name:
                raise InputError("operators_file is not a path")
            try:
                data = read_given(path.parent / name, "operators_file", "the path starts at the device file")
                value["operators"] = data.decode()
            except UnicodeDecodeError as error:
                raise InputError(f"operators_file: {name} is not text") from error
        return Device.read(value)

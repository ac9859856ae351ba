"""Place existing files in a workspace: check their names, refuse pickles, and remove absolute paths from texts."""

import ast
import pickletools
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO

from onnxreg.converters.source.source_files import scrub_file
from onnxreg.schema.core.errors import HostError, InputError, about
from onnxreg.schema.core.files import HEAD_BYTES, FileState, check_content
from onnxreg.schema.core.ref import DistinctPaths, check_path
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.vocabulary import FILENAME

MAX_HEADER_BYTES = 2**16
MAX_OPCODES = 1_000_000
_NAMES = frozenset({"GLOBAL", "INST", "STACK_GLOBAL"})
_CALLS = frozenset({"REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST", "BUILD", "STOP"})
_NAME = re.compile(r"[\w.]+ [\w.]+")
_PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".dill", ".pt", ".pth", ".ckpt"})
_SAFE = frozenset({".onnx", ".ort", ".json", ".txt", ".config"})


def refuse_unfit(path: Path) -> None:
    """Raise InputError if the file is a pickle, or if `check_content` refuses it."""
    with path.open("rb") as file:
        check_content(file.read(HEAD_BYTES), path.name)
    if path.suffix.lower() in _PICKLES or (path.suffix.lower() not in _SAFE and _is_pickle(path)):
        message = f"{path.name} is a pickle, which runs code when it is loaded; it is not registered"
        raise InputError(message, "export the model to ONNX, or save its weights as safetensors")


def _is_pickle(path: Path) -> bool:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                with suppress(RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error):
                    # encrypted, of an unknown method, or damaged
                    if member.filename.endswith("data.pkl"):
                        return True
                    with archive.open(member) as file:
                        if _has_objects(file):
                            return True
        return False
    with path.open("rb") as file:
        return _has_objects(file) or _is_pickle_stream(file)


def _has_objects(file: IO[bytes]) -> bool:
    """Return True if an .npy file has Python objects, or an unreadable header."""
    from numpy.lib import format as npy

    magic = file.read(8)
    if magic[:6] != b"\x93NUMPY":
        return False
    size = int.from_bytes(file.read(2 if magic[6:7] == b"\x01" else 4), "little")
    try:
        header = ast.literal_eval(file.read(min(size, MAX_HEADER_BYTES)).decode("latin-1").strip())
        return bool(npy.descr_to_dtype(header["descr"]).hasobject)
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError):
        return True


def _is_pickle_stream(file: BinaryIO) -> bool:
    file.seek(0)
    is_named = has_protocol = False
    try:
        for opcode, argument, _ in islice(pickletools.genops(file), MAX_OPCODES):
            has_protocol |= opcode.name == "PROTO"
            is_named |= opcode.name in _NAMES and (not argument or bool(_NAME.fullmatch(str(argument))))
            if is_named and opcode.name in _CALLS:
                return True
    except (ValueError, OverflowError, MemoryError):
        return False
    return has_protocol


@dataclass(frozen=True)
class Difference:
    """A field whose value in a document is wrong. `path` is a name such as `artifacts.2.metadata.operators`."""

    path: str
    claimed: Any
    actual: Any


Adopted = tuple[Draft, list[Difference]]


@dataclass(frozen=True)
class Found:
    """A file of a source, with its role and path in the version. `drop` are top-level keys to remove from its JSON."""

    role: str
    file: Path
    path: str
    drop: tuple[str, ...] = ()


@dataclass
class Intake:
    """Places files in a workspace. `scrubbed` lists the fields that were removed or changed, as `FILE:FIELD`."""

    workspace: Path
    name: str
    scrubbed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    file_states: dict[str, FileState] = field(default_factory=dict)
    _states: dict[Path, FileState] = field(default_factory=dict)
    _taken: dict[str, Path] = field(default_factory=dict)
    _distinct: DistinctPaths = field(default_factory=lambda: DistinctPaths([FILENAME]))
    resolved: Callable[[Path], Path] = field(default_factory=lambda: cache(Path.resolve))

    def take(self, file: Found) -> DraftFile:
        """Place a file in the workspace, as a link if possible.

        A text is rewritten if it has absolute paths or keys to drop. Raises InputError if the file is a pickle, if a
        manifest cannot hold its path, or if another file has the same path.
        """
        source, relative, taken = file.file, file.path, DraftFile(file.role, file.path)
        real = self.resolved(source)
        if self.resolved(self._taken.get(relative, source)) != real:
            message = f"two files are called {relative}"
            raise InputError(message, "give each file of a version a different name, or add them apart")
        if relative in self._taken:
            return taken
        refuse_unfit(source)
        with about(f"{source.name} is a name that a manifest cannot hold", hint="rename the file"):
            self._distinct.add(check_path(relative))
        self._taken[relative] = source
        state = self.look(source)
        target = self.workspace / relative
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            changed = scrub_file(source, self.name, file.drop)
            if changed is not None:
                with target.open("xb") as rewritten:
                    rewritten.write(changed[0])
                self.scrubbed += [f"{relative}:{field_path}" for field_path in changed[1]]
            else:
                try:
                    target.symlink_to(real)
                    self.file_states[relative] = state
                except FileExistsError:  # a link may be to a user's file
                    raise
                except OSError:
                    with real.open("rb") as data, target.open("xb") as copy:
                        shutil.copyfileobj(data, copy, 2**20)
        except OSError as error:
            reason = error.strerror or error
            raise HostError(f"{relative} cannot be placed in the workspace: {reason}") from error
        return taken

    def draft(
        self, artifacts: tuple[DraftArtifact, ...], companions: tuple[DraftFile, ...], **more: Any
    ) -> Draft:
        more |= {"file_states": self.file_states, "warnings": tuple(self.warnings)}
        return Draft(self.name, self.workspace, artifacts, companions, **more)

    def look(self, source: Path) -> FileState:
        """Return the size and times that a file had at the first call. That call must come before the file is read."""
        real = self.resolved(source)
        if real not in self._states:
            self._states[real] = FileState.of(source.stat())
        return self._states[real]

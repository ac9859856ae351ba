"""Taking existing files into a workspace: safe names, no pickles, nothing of the machine they come from."""

import os
import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from onnxreg.converters.source.scrub import scrub_file
from onnxreg.schema.core.errors import HostError, InputError
from onnxreg.schema.core.file_state import FileState
from onnxreg.schema.core.paths import DistinctPaths, check_path
from onnxreg.schema.manifest.rules import FILENAME

_PICKLES = frozenset({".pkl", ".pickle", ".joblib", ".dill", ".pt", ".pth", ".ckpt"})
_SAFE = frozenset({".onnx", ".ort", ".json", ".txt", ".config"})


def refuse_pickle(path: Path) -> None:
    """Raise InputError for a file that runs code when it is loaded, by its suffix or by its bytes."""
    if path.suffix.lower() in _PICKLES or (path.suffix.lower() not in _SAFE and _is_pickle(path)):
        raise InputError(
            f"{path.name} is a pickle, which runs code when it is loaded; it is not registered",
            "export the model to ONNX, or save its weights as safetensors",
        )


def _is_pickle(path: Path) -> bool:
    """A pickle of protocol 2 or later (PROTO ... STOP), or a zip archive as torch.save writes it."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    if path.stat().st_size < 4:
        return False
    with path.open("rb") as file:
        head = file.read(2)
        file.seek(-1, os.SEEK_END)
        return head[0] == 0x80 and 2 <= head[1] <= 5 and file.read(1) == b"."


@dataclass
class Intake:
    """Fills a workspace. `scrubbed` lists what was changed on the way, as `<file>:<field>`; for `file_states` see `Draft`.

    With `root`, files keep their paths from there. With `hard` it gets hard links, because ONNX Runtime loads no
    graph through links that leave its folder.
    """

    workspace: Path
    name: str
    hard: bool = False
    root: Path | None = None
    scrubbed: list[str] = field(default_factory=list)
    file_states: dict[str, FileState] = field(default_factory=dict)
    _states: dict[Path, FileState] = field(default_factory=dict)
    _taken: dict[str, Path] = field(default_factory=dict)
    _distinct: DistinctPaths = field(default_factory=lambda: DistinctPaths([FILENAME]))
    _real: dict[Path, Path] = field(default_factory=dict)

    def take(self, source: Path, relative: str, drop: tuple[str, ...] = ()) -> str:
        """Place `source` at `relative` in the workspace and return `relative`.

        JSON files, templates and operator configs are rewritten if they hold absolute paths (or the keys `drop`); of all
        others there is a link, or a copy if that is not possible. Raises InputError for a path that a manifest
        cannot hold, for two files of one path, and for pickles.
        """
        real = self.resolved(source)
        if self.resolved(self._taken.get(relative, source)) != real:
            raise InputError(
                f"two files are called {relative}",
                "give each file of a version a different name, or add them apart",
            )
        if relative in self._taken:
            return relative
        self._check(source, relative)
        self._taken[relative] = source
        state = self.look(source)
        target = self.workspace / relative
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            changed = scrub_file(source, self.name, drop)
            if changed is None:
                if self._link(real, target):
                    self.file_states[relative] = state
            else:
                with target.open("xb") as file:
                    file.write(changed[0])
                self.scrubbed += [f"{relative}:{field_path}" for field_path in changed[1]]
        except OSError as error:
            raise HostError(
                f"{relative} cannot be placed in the workspace: {error.strerror or error}"
            ) from error
        return relative

    def _link(self, source: Path, target: Path) -> bool:
        """Make a symbolic link and return True, unless the name exists: it may be a link to somebody's file."""
        try:
            target.hardlink_to(source) if self.hard else target.symlink_to(source)
        except FileExistsError:
            raise
        except OSError:
            with source.open("rb") as data, target.open("xb") as file:
                shutil.copyfileobj(data, file, 2**20)
            return False
        return not self.hard

    def path_of(self, source: Path) -> str:
        """The path of a file in the version."""
        return source.name if self.root is None else source.relative_to(self.root).as_posix()

    def look(self, source: Path) -> FileState:
        """A file's state when it was looked at first, which is to be before it is read."""
        real = self.resolved(source)
        if real not in self._states:
            self._states[real] = FileState.of(source.stat())
        return self._states[real]

    def resolved(self, source: Path) -> Path:
        """The real path of a file; the system is asked once."""
        if source not in self._real:
            self._real[source] = source.resolve()
        return self._real[source]

    def look_below(self, directory: Path) -> None:
        for path in directory.rglob("*"):
            if path.is_file():
                self.look(path)

    def _check(self, source: Path, relative: str) -> None:
        if not source.is_file():
            raise InputError(
                f"no such file: {relative}", "check the spelling; a directory is added file by file"
            )
        refuse_pickle(source)
        try:
            self._distinct.add(check_path(relative))
        except ValueError as error:
            raise InputError(
                f"{source.name} is a name that a manifest cannot hold: {error}", "rename the file"
            ) from error

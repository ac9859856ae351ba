"""`module:function`: a function that makes a torch module, found and hashed without running it."""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import packages_distributions
from pathlib import Path
from traceback import extract_tb
from typing import Any

from onnxreg.converters.passes.quiet import quiet
from onnxreg.schema.errors import ConversionError, InputError, NotFoundError

HINT = "a factory is module:function, or path/to/file.py:function; it returns a torch.nn.Module"


@dataclass(frozen=True)
class Factory:
    """A function by name in a module of this machine. `paths` is where its imports are looked for first;
    `is_file` whether it was named by the path of its file.

    `files` are the Python files that its digest is over, by their names in it: that of the module, or of the whole
    package that it is in.
    """

    module: str
    function: str
    file: Path
    paths: tuple[str, ...]
    is_file: bool
    files: Mapping[str, Path]

    @property
    def name(self) -> str:
        """As it is published: no directory is in it."""
        return f"{self.module}:{self.function}"

    @property
    def packages(self) -> tuple[str, ...]:
        """The installed packages that its files import by name; a file that is no Python has none."""
        installed = packages_distributions()
        imported = {top for path in self.files.values() for top in _imports(path)}
        return tuple(sorted({package for top in imported for package in installed.get(top, ())}))

    @property
    def covered(self) -> set[Path]:
        return {path.resolve() for path in self.files.values()}


def is_factory(source: str) -> bool:
    """Whether a source names a function, and no file or directory."""
    module, _, function = source.rpartition(":")
    return bool(module) and function.isidentifier() and not Path(source).exists()


def find(source: str, directory: Path) -> Factory:
    """Find a factory; nothing of it is imported.

    A file, or a module, is looked for in `directory` and in the working directory; a module then where Python looks
    for modules.

    Raises InputError for a text that names none, NotFoundError where there is no such file or module.
    """
    if not is_factory(source):
        raise InputError(f"{source[:80]!r} is no factory", HINT)
    module, _, function = source.rpartition(":")
    places = tuple(dict.fromkeys(str(place.resolve()) for place in (directory, Path())))
    if module.endswith(".py"):
        return _in_file(module, function, places)
    if not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f"{source[:80]!r} is no factory", HINT)
    return _in_module(module, function, places)


def _in_file(path: str, function: str, places: tuple[str, ...]) -> Factory:
    file = next((file for place in places if (file := Path(place, path)).is_file()), None)
    if file is None:
        raise NotFoundError(f"there is no file {path}", HINT)
    return Factory(file.stem, function, file, (str(file.parent),), True, {file.name: file})


def _in_module(module: str, function: str, places: tuple[str, ...]) -> Factory:
    top, *_ = names = module.split(".")
    spec = root = PathFinder.find_spec(top, places) or _installed(top)
    for depth in range(2, len(names) + 1):
        inside = spec.submodule_search_locations if spec is not None else None
        spec = PathFinder.find_spec(".".join(names[:depth]), list(inside)) if inside is not None else None
    if spec is None or root is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise NotFoundError(f"there is no Python module {module}", HINT)
    file = Path(spec.origin)
    folders = [Path(folder) for folder in root.submodule_search_locations or ()]
    found = {
        path.relative_to(folder.parent).as_posix(): path
        for folder in folders
        for path in folder.rglob("*.py")
    }
    return Factory(module, function, file, places, False, found or {file.name: file})


def _installed(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except ValueError:
        return None


def _imports(path: Path) -> Iterator[str]:
    """The first names of what a Python file imports."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names = [node.module]
        yield from (name.partition(".")[0] for name in names)


def make(factory: Factory, arguments: Mapping[str, Any]) -> Any:
    """Call a factory: a torch module with whatever weights it begins with. What it prints goes to stderr.

    Raises InputError where it is not there, gives something else, or imports code beside it that its digest does not
    cover; ConversionError where it raises.
    """
    import torch

    with _importing(factory), torch.random.fork_rng(devices=[]), quiet(), redirect_stdout(sys.stderr):
        torch.manual_seed(0)
        try:
            made = _function(factory)(**arguments)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise _raised(factory, error) from error
    if not isinstance(made, torch.nn.Module):
        raise InputError(f"{factory.name} gives a {type(made).__name__}, not a torch.nn.Module", HINT)
    return made


def _raised(factory: Factory, error: BaseException) -> ConversionError:
    """What a factory raised, and at which line of its files (a SyntaxError says that itself)."""
    names = {path.resolve(): name for name, path in factory.files.items()}
    lines = [
        f" at {names[path]}:{frame.lineno}"
        for frame in extract_tb(error.__traceback__)
        if (path := Path(frame.filename).resolve()) in names
    ]
    reason = (str(error).strip() or "no message").splitlines()[0][:300]
    where = lines[-1] if lines else ""
    return ConversionError(f"the factory {factory.name} raised {type(error).__name__}{where}: {reason}")


def _function(factory: Factory) -> Any:
    module = _from_file(factory.file) if factory.is_file else _imported(factory)
    if not callable(found := getattr(module, factory.function, None)):
        raise InputError(f"{factory.file.name} has no function {factory.function}", HINT)
    return found


def _from_file(file: Path) -> Any:
    """A file as a module under a name that nothing else has."""
    name = f"onnxreg_factory_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _imported(factory: Factory) -> Any:
    """The module as its files are now: whatever was imported under its name before, and is not installed, goes first."""
    top = factory.module.partition(".")[0]
    if not _is_installed(factory.file.resolve()):
        for name in [name for name in sys.modules if name.partition(".")[0] == top]:
            del sys.modules[name]
    return importlib.import_module(factory.module)


@contextmanager
def _importing(factory: Factory) -> Iterator[None]:
    """Imports are looked for in the factory's places first, and those that its digest does not cover are refused."""
    before, known, writes_none = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    sys.path[:0] = factory.paths
    sys.dont_write_bytecode = True
    try:
        yield
        strangers = {name: path for name, path in _not_covered(factory) if name not in known}
    finally:
        sys.path[:], sys.dont_write_bytecode = before, writes_none
    if strangers:
        for name in strangers:
            del sys.modules[name]
        names = ", ".join(sorted(path.name for path in strangers.values()))
        raise InputError(
            f"{factory.file.name} imports {names}, which its digest does not cover",
            "put them into one package, and name that: package.module:function",
        )


def _not_covered(factory: Factory) -> Iterator[tuple[str, Path]]:
    """Modules that are neither the factory's files, nor installed, nor ours."""
    covered = factory.covered
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        path = Path(origin).resolve() if origin else None
        if path is None or path in covered or name.partition(".")[0] == "onnxreg":
            continue
        if not _is_installed(path):
            yield name, path


def _is_installed(path: Path) -> bool:
    """Whether a file is of Python itself or of a package that was installed: such do not change under a version."""
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return True
    return any(path.is_relative_to(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix))

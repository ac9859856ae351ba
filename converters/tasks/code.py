"""Factories: Python functions, named `module:function`, that make torch modules. They run only with consent.

A digest covers the file or package of a factory. If the factory is installed, the digest covers its distribution's name
and version. A file may import only its own package and installed packages. See docs/threat-model.md.
"""

import ast
import importlib.util
import json
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from traceback import extract_tb
from types import CodeType, ModuleType
from typing import Any

from onnxreg.converters.runtime.sessions import quiet
from onnxreg.converters.source.source_files import below, digest_file
from onnxreg.converters.source.toolchain import distribution_of, distributions
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest, directory_digest
from onnxreg.schema.core.errors import ConversionError, InputError, IntegrityError, NotFoundError, why
from onnxreg.schema.manifest.manifest import Code

FACTORY_HINT = "a factory is module:function, or path/to/file.py:function; it returns a torch.nn.Module"
_RECORDED = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")


@dataclass(frozen=True)
class Factory:
    """A Python function on this machine that makes a torch module. Its imports are searched in `paths` first.

    `files` are the Python files that its digest covers, by name. An installed function has none.
    """

    module: str
    function: str
    file: Path
    paths: tuple[str, ...]
    files: Mapping[str, Path]

    @property
    def name(self) -> str:
        return f"{self.module}:{self.function}"

    @cached_property
    def covered(self) -> dict[Path, str]:
        return {path.resolve(): name for name, path in self.files.items()}

    @property
    def label(self) -> str | None:
        """The module's file name, such as `net.py` or `kit/nets/small.py`; None for an installed function."""
        return next((name for name, path in self.files.items() if path == self.file), None)

    @property
    def digests(self) -> dict[str, Digest]:
        """The digests of `files` by name. An installed factory has a digest of its name, package and version."""
        digests = {f"code/{name}": digest_file(path) for name, path in self.files.items()}
        return digests or {f"code/{self.name}": Digest.of(canonical.encode(self.code.to_json()))}

    @property
    def code(self) -> Code:
        if not self.files:
            distribution, version = distribution_of(self.module) or (None, None)
            return Code(name=self.name, distribution=distribution, version=version)
        digests = {name: digest_file(path) for name, path in self.files.items()}
        digest = directory_digest(digests) if len(digests) > 1 else digests.popitem()[1]
        return Code(name=self.name, digest=digest)

    @property
    def packages(self) -> tuple[str, ...]:
        imported = set() if self.files else {self.module.partition(".")[0]}
        for path in self.files.values():
            for node in _nodes(path) or ():
                if isinstance(node, ast.Import):
                    imported |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                    imported.add(node.module.partition(".")[0])
        installed = distributions()
        return tuple(sorted({package for top in imported for package in installed.get(top, ())}))


def _nodes(file: Path) -> list[ast.AST] | None:
    try:
        return list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def is_factory(source: str) -> bool:
    """Return True if a source is the name of a function, not of a file or directory."""
    module, _, function = source.rpartition(":")
    return bool(module) and function.isidentifier() and not Path(source).exists()


def find(source: str, *places: Path) -> Factory:
    """Find a factory in `places`, then on Python's path. No code runs. Raise NotFoundError if it is missing."""
    module, _, function = source.rpartition(":")
    top, *_ = names = module.split(".")
    if not is_factory(source) or not (module.endswith(".py") or all(map(str.isidentifier, names))):
        raise InputError(f"{source[:80]!r} is not a factory", FACTORY_HINT)
    paths = tuple(dict.fromkeys(str(folder.resolve()) for folder in places))
    if module.endswith(".py"):
        file = next((path for folder in paths if (path := Path(folder, module)).is_file()), None)
        if file is None:
            raise NotFoundError(f"there is no file {module}", FACTORY_HINT)
        return Factory(file.stem, function, file, (str(file.parent),), {file.name: file})
    spec = root = PathFinder.find_spec(top, paths)
    if spec is None:
        with suppress(ValueError):
            spec = root = importlib.util.find_spec(top)
    for depth in range(2, len(names) + 1):
        inside = spec and spec.submodule_search_locations
        spec = PathFinder.find_spec(".".join(names[:depth]), list(inside)) if inside else None
    if spec is None or root is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise NotFoundError(f"there is no Python module {module}", FACTORY_HINT)
    file = Path(spec.origin)
    if is_installed(file) and distribution_of(module) is not None:
        return Factory(module, function, file, paths, {})
    files = {
        path.relative_to(Path(folder).parent).as_posix(): path
        for folder in root.submodule_search_locations or ()
        for path in below(Path(folder))
        if path.suffix == ".py"
    }
    return Factory(module, function, file, paths, files or {file.name: file})


def find_recorded(name: str, folder: Path) -> Factory:
    """Find a manifest's factory in a folder or among installed packages. Raise IntegrityError for an unusable name."""
    module, _, function = name.rpartition(":")
    if not is_factory(name) or not _RECORDED.fullmatch(module):
        raise IntegrityError(f"the recipe names {name[:80]!r} as its factory, which is not module:function")
    if (folder / f"{module}.py").is_file():
        return find(f"{module}.py:{function}", folder)
    factory = find(name, folder)
    if factory.files and not factory.file.resolve().is_relative_to(folder.resolve()):
        message = f"there is no Python module {module} in {folder}"
        raise NotFoundError(message, "name the directory that holds it: --source DIR")
    return factory


def make(factory: Factory, arguments: Mapping[str, Any]) -> Any:
    """Call a factory, and return its torch module with initial weights.

    Raises InputError if the factory is not defined, does not return a torch module, or imports code that its digest
    does not cover, and ConversionError if the factory raises an error.
    """
    import torch

    with _guarded_imports(factory), torch.random.fork_rng(devices=[]), quiet(), redirect_stdout(sys.stderr):
        torch.manual_seed(0)
        at = ""
        try:
            module = _function(factory)(**arguments)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raised = f"the factory {factory.name} raised {type(error).__name__}"
            for frame in extract_tb(error.__traceback__):
                if name := factory.covered.get(Path(frame.filename).resolve()):
                    at = f" at {name}:{frame.lineno}"
            raise ConversionError(f"{raised}{at}: {why(error)}") from error
    if not isinstance(module, torch.nn.Module):
        message = f"{factory.name} gives a {type(module).__name__}, not a torch.nn.Module"
        raise InputError(message, FACTORY_HINT)
    return module


def _function(factory: Factory) -> Any:
    if list(factory.files) == [factory.file.name]:  # a single file, whose name another module may have
        name = f"onnxreg_factory_{factory.file.stem}"
        loader = SourceLoader(name, str(factory.file))
        spec = importlib.util.spec_from_loader(name, loader)
        assert spec is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    else:
        top = factory.module.partition(".")[0]
        for name in [name for name in sys.modules if factory.files and name.partition(".")[0] == top]:
            del sys.modules[name]
        module = importlib.import_module(factory.module)
    if not callable(function := getattr(module, factory.function, None)):
        raise InputError(f"{factory.file.name} has no function {factory.function}", FACTORY_HINT)
    origin = getattr(function, "__module__", None) or ""
    if factory.files:
        file = getattr(sys.modules.get(origin), "__file__", None)
        is_own = file is not None and Path(file).resolve() in factory.covered
    else:
        own = distribution_of(factory.module)
        is_own = origin.partition(".")[0] == factory.module.partition(".")[0]
        is_own = is_own or (own is not None and own[0] != "python" and own == distribution_of(origin))
    if not is_own:
        message = f"{factory.label or factory.module} does not define {factory.function}"
        hint = "name a function by the module that defines it"
        raise InputError(f"{message}: it is of {origin or 'no module'}", hint)
    return function


@dataclass(frozen=True)
class Consent:
    """The code that the user allowed to run: `names` from `--allow-code`, and a factory that was typed as the `source`.

    `net.py:build` allows a function, `net.py` all functions in the file. If `is_recorded`, a manifest names the
    factory, which is then not searched in the working directory.
    """

    names: frozenset[str] = frozenset()
    source: str | None = None
    is_recorded: bool = False

    @classmethod
    def of(
        cls, names: "Iterable[str] | Consent", source: str | None = None, is_recorded: bool = False
    ) -> "Consent":
        """Make a consent to each name: `module:function`, `file.py:function` or `file.py`."""
        if isinstance(names, Consent):
            return names
        return cls(frozenset(map(absolute, names)), source, is_recorded)

    def check(self, factory: Factory, arguments: Mapping[str, Any], source: str | None = None) -> None:
        """Raise InputError unless the user allowed this code. The error names the command-line option that allows it.

        `source` is the export's source, if the source is the factory. No code runs.
        """
        if source is not None and source == self.source:
            return
        name = description = factory.name
        names = {name}
        if factory.label is not None:
            _check_defined(factory.file, factory.label, factory.function)
            file, here, folder = factory.file.resolve(), Path(factory.label), Path.cwd()
            paths = {factory.label, str(file)}
            names = paths | {f"{path}:{factory.function}" for path in paths}
            short = factory.label  # unless another file here has this name
            if here.is_file() and here.resolve() != file:
                short = str(file.relative_to(folder) if file.is_relative_to(folder) else file)
            name, description = f"{short}:{factory.function}", f"{short} ({factory.function})"
        if self.names.isdisjoint(names):
            given = f", called with {json.dumps(arguments, default=str)[:300]}" if arguments else ""
            message = f"{description} is code{given}, which runs only if you allow it"
            raise InputError(message, f"read it, then pass --allow-code {name}")


NO_CONSENT = Consent()


def _check_defined(file: Path, label: str, function: str) -> None:
    nodes = _nodes(file)
    if nodes is None:
        raise InputError(f"{label} cannot be parsed as Python", "look at who made it")
    if not any(isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == function for node in nodes):
        hint = "only what the named file itself defines can be allowed: name the file that defines it"
        raise InputError(f"{label} does not define {function}, by def or class", hint)


def absolute(name: str) -> str:
    """Make the path in `file.py:function` or `file.py` absolute, if the file exists."""
    path, colon, function = name.rpartition(":") if not name.endswith(".py") else (name, "", "")
    is_file = path.endswith(".py") and Path(path).is_file()
    return f"{Path(path).resolve()}{colon}{function}" if is_file else name


class SourceLoader(SourceFileLoader):
    """Loads a module from its source text, never from a compiled file."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def is_installed(path: Path) -> bool:
    return any(path.resolve().is_relative_to(root) for root in _roots())


@cache
def _roots() -> tuple[Path, ...]:
    """Return the directories of Python and its packages. Call it before `sys.path` changes."""
    python_paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    package_paths = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return tuple({Path(path).resolve() for path in (*python_paths, *package_paths)})


@dataclass
class _Guard:
    """A finder of imports. It allows modules that the digest covers, installed modules, and onnxreg."""

    factory: Factory
    refused: set[str] = field(default_factory=set)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        finders = (finder for finder in sys.meta_path if finder is not self)
        specs = (spec for finder in finders if (spec := finder.find_spec(name, path, target)) is not None)
        spec = next(specs, None)
        if spec is None or spec.origin is None or not spec.has_location:
            return spec
        file = Path(spec.origin)
        if file.resolve() in self.factory.covered:
            spec.loader = SourceLoader(spec.name, spec.origin)
        elif not is_installed(file) and name.partition(".")[0] != "onnxreg":
            self.refused.add(file.name)
            self.check()
        return spec

    def check(self) -> None:
        if self.refused:
            files = ", ".join(sorted(self.refused))
            message = f"{self.factory.file.name} imports {files}, which its digest does not cover"
            raise InputError(message, "put them into one package, and name that: package.module:function")


@contextmanager
def _guarded_imports(factory: Factory) -> Iterator[None]:
    """A context that searches modules in the factory's `paths` first. `_Guard` checks all imports."""
    _roots()
    guard, before = _Guard(factory), (list(sys.path), sys.dont_write_bytecode)
    sys.path[:0] = factory.paths
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, guard)
    try:
        yield
    finally:
        sys.meta_path.remove(guard)
        sys.path[:], sys.dont_write_bytecode = before
    guard.check()

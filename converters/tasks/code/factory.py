"""`module:function`: a function that makes a torch module, found and hashed without running it.

Its definition is found in the text of the files that the digest covers. A name counts as defined if each statement that
binds it at the top of its module is a `def` or a `class`, or an import of such a name from another covered file. What a file
imports from anywhere else (`from subprocess import getoutput`) is not its own.
"""

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path, PurePosixPath
from traceback import extract_tb
from typing import Any

from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.source.source_files import below, digest_file
from onnxreg.converters.source.toolchain import distribution_of, distributions
from onnxreg.converters.tasks.code.import_factory import SourceLoader, import_context, is_installed
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import ConversionError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.manifest.parts import Code

FACTORY_HINT = "a factory is module:function, or path/to/file.py:function; it returns a torch.nn.Module"
_RECORDED = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")
"""The module of a factory as a manifest names it: never a path."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True)
class Definition:
    """A `def` or `class` by its name, in a file: its name in the digest, and its path."""

    label: str
    file: Path
    function: str


@dataclass(frozen=True)
class Factory:
    """A function by name in a module of this machine. `paths` is where its imports are looked for first;
    `is_file` whether it was named by the path of its file.

    `files` are the Python files that its digest is over, by their names in it: that of the module, or of the whole
    package that it is in. An installed function has none: it is bound by its distribution and the version of that.
    """

    module: str
    function: str
    file: Path
    paths: tuple[str, ...]
    is_file: bool
    files: Mapping[str, Path]

    @property
    def name(self) -> str:
        """The name as it is published: it holds no directory."""
        return f"{self.module}:{self.function}"

    @property
    def label(self) -> str | None:
        """The name of its file in the digest, such as `net.py` or `kit/nets/small.py`; None for an installed function."""
        if not self.files:
            return None
        return next((name for name, path in self.files.items() if path == self.file), self.file.name)

    @property
    def definition(self) -> Definition | None:
        """The place in its files that defines it; None for an installed function. InputError if none of them does."""
        return None if self.label is None else find_definition(self.files, self.label, self.function)

    @property
    def code(self) -> Code:
        """The record of it in a manifest."""
        if self.label is None:
            distribution, version = distribution_of(self.module) or (None, None)
            return Code(name=self.name, distribution=distribution, version=version)
        digests = {name: digest_file(path) for name, path in self.files.items()}
        single = next(iter(digests.values())) if len(digests) == 1 else None
        return Code(name=self.name, digest=single or directory_digest(digests))

    @property
    def digests(self) -> dict[str, Digest]:
        """The digest of each file of its code, or of the record of its distribution, as parts of a source."""
        if not self.files:
            return {f"code/{self.name}": Digest.of(canonical.encode(self.code.to_json()))}
        return {f"code/{name}": digest_file(path) for name, path in self.files.items()}

    @property
    def packages(self) -> tuple[str, ...]:
        """The installed packages that its files import by name, or that it is in; a file that is not Python has none."""
        installed = distributions()
        imported = {top for label, path in self.files.items() for top in _imports(path, label)}
        imported |= {self.module.partition(".")[0]} if self.label is None else set()
        return tuple(sorted({package for top in imported for package in installed.get(top, ())}))


def is_factory(source: str) -> bool:
    """Return True if a source names a function, and no file or directory."""
    module, _, function = source.rpartition(":")
    return bool(module) and function.isidentifier() and not Path(source).exists()


def find(source: str, *places: Path) -> Factory:
    """Find a factory; nothing of it is imported.

    A file, or a module, is looked for in `places`, in their order; a module then where Python looks for
    modules.

    Raises InputError for a text that names none, NotFoundError if there is no such file or module.
    """
    module, function = _parts(source)
    paths = tuple(dict.fromkeys(str(folder.resolve()) for folder in places))
    if module.endswith(".py"):
        return _in_file(module, function, paths)
    return _in_module(module, function, paths)


def find_recorded(name: str, folder: Path) -> Factory:
    """Find the factory that a manifest names, in a folder that a person named, or else among what is installed.

    Raises IntegrityError for a text that `Factory.name` never is, such as a path, and as `find` does.
    """
    module, function = _parts(name)
    if not _RECORDED.fullmatch(module):
        raise IntegrityError(f"the recipe names {name[:80]!r} as its factory, which is not module:function")
    file = folder / f"{module}.py"
    if file.is_file():
        return _in_file(file.name, function, (str(folder.resolve()),))
    factory = _in_module(module, function, (str(folder.resolve()),))
    if factory.label is not None and not factory.file.resolve().is_relative_to(folder.resolve()):
        raise NotFoundError(
            f"there is no {module} in {folder}", "name the directory that holds it: --source DIR"
        )
    return factory


def make(factory: Factory, arguments: Mapping[str, Any]) -> Any:
    """Call a factory: a torch module with whatever weights it begins with. What it prints goes to stderr.

    Raises InputError if it is not there, is of another distribution than its module, gives something else, or imports
    code beside it that its digest does not cover, which is not run; ConversionError if it raises.
    """
    import torch

    own = {path.resolve() for path in factory.files.values()}
    with (
        import_context(factory.file.name, factory.paths, own),
        torch.random.fork_rng(devices=[]),
        quiet(),
        redirect_stdout(sys.stderr),
    ):
        torch.manual_seed(0)
        try:
            module = _function(factory)(**arguments)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise _raised(factory, error) from error
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"{factory.name} gives a {type(module).__name__}, not a torch.nn.Module", FACTORY_HINT
        )
    return module


def find_definition(files: Mapping[str, Path], label: str, function: str) -> Definition:
    """Find the definition of a name of the module `label`; `files` are all that the digest covers.

    Raises InputError if it is not defined in these files, or if a file cannot be parsed.
    """
    file, name, visited = label, function, set[tuple[str, str]]()
    while file in files and (file, name) not in visited:
        visited.add((file, name))
        statements = list(_binding(_module(files[file], file), name))
        if statements and all(
            isinstance(statement, ast.FunctionDef | ast.ClassDef) for statement in statements
        ):
            return Definition(file, files[file], name)
        if len(statements) != 1 or not isinstance(statements[0], ast.ImportFrom):
            break
        file, name = _import_origin(files, file, statements[0], name)
    raise InputError(
        f"{label} does not define {function}, by def or class",
        "only what the files of the source themselves define can be allowed",
    )


def parse(path: Path, label: str) -> ast.Module | None:
    """The syntax tree of a Python file; None if it is not Python. InputError if it is too deeply nested to be parsed."""
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None
    except (MemoryError, RecursionError) as error:
        raise InputError(
            f"{label} cannot be parsed: it is nested too deeply", "look at who made it"
        ) from error


def _parts(source: str) -> tuple[str, str]:
    if not is_factory(source):
        raise InputError(f"{source[:80]!r} is not a factory", FACTORY_HINT)
    module, _, function = source.rpartition(":")
    return module, function


def _in_file(path: str, function: str, places: tuple[str, ...]) -> Factory:
    file = next((file for folder in places if (file := Path(folder, path)).is_file()), None)
    if file is None:
        raise NotFoundError(f"there is no file {path}", FACTORY_HINT)
    return Factory(file.stem, function, file, (str(file.parent),), True, {file.name: file})


def _in_module(module: str, function: str, places: tuple[str, ...]) -> Factory:
    top, *_ = names = module.split(".")
    if not all(part.isidentifier() for part in names):
        raise InputError(f"{f'{module}:{function}'[:80]!r} is not a factory", FACTORY_HINT)
    spec = root = PathFinder.find_spec(top, places) or _installed(top)
    for depth in range(2, len(names) + 1):
        inside = spec.submodule_search_locations if spec is not None else None
        spec = PathFinder.find_spec(".".join(names[:depth]), list(inside)) if inside is not None else None
    if spec is None or root is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise NotFoundError(f"there is no Python module {module}", FACTORY_HINT)
    file = Path(spec.origin)
    if is_installed(file) and distribution_of(module) is not None:
        return Factory(module, function, file, places, False, {})
    folders = [Path(folder) for folder in root.submodule_search_locations or ()]
    files = {
        path.relative_to(folder.parent).as_posix(): path
        for folder in folders
        for path in below(folder)
        if path.suffix == ".py"
    }
    return Factory(module, function, file, places, False, files or {file.name: file})


def _installed(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except ValueError:
        return None


def _imports(path: Path, label: str) -> Iterator[str]:
    """The first names of what a Python file imports; none of a file that is not Python."""
    module = parse(path, label)
    for node in () if module is None else ast.walk(module):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names = [node.module]
        yield from (name.partition(".")[0] for name in names)


def _raised(factory: Factory, error: BaseException) -> ConversionError:
    """The error that a factory raised, with the line of its files (a SyntaxError says that itself)."""
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
    if not callable(function := getattr(module, factory.function, None)):
        raise InputError(f"{factory.file.name} has no function {factory.function}", FACTORY_HINT)
    if factory.label is None:
        _check_own(factory, getattr(function, "__module__", None) or "")
    return function


def _check_own(factory: Factory, module: str) -> None:
    """InputError if an installed function is of another distribution than its module: the version would not bind it.

    Of Python's own, `module` must be in the same package: `shop:getoutput` may not be `subprocess:getoutput`.
    """
    own, other = distribution_of(factory.module), distribution_of(module)
    is_same_package = module.partition(".")[0] == factory.module.partition(".")[0]
    if not is_same_package and (own != other or own is None or own[0] == "python"):
        raise InputError(
            f"{factory.name} is of {module or 'no module'}, and not of {factory.module}",
            "name a function by the module that defines it",
        )


def _from_file(file: Path) -> Any:
    """A file as a module under a name that nothing else has."""
    name = f"onnxreg_factory_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file, loader=SourceLoader(name, str(file)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _imported(factory: Factory) -> Any:
    """The module as its files are now: whatever was imported under its name before, and is not installed, goes first."""
    top = factory.module.partition(".")[0]
    if not is_installed(factory.file):
        for name in [name for name in sys.modules if name.partition(".")[0] == top]:
            del sys.modules[name]
    return importlib.import_module(factory.module)


def _module(path: Path, label: str) -> ast.Module:
    if (module := parse(path, label)) is None:
        raise InputError(f"{label} is not valid Python")
    return module


def _binding(module: ast.Module, name: str) -> Iterator[ast.AST]:
    """The statements and expressions that bind a name at the top of a module."""
    yield from (node for node in ast.walk(module) if isinstance(node, ast.Global) and name in node.names)
    nodes: list[ast.AST] = [*module.body]
    while nodes:
        node = nodes.pop()
        if name in _names(node):
            yield node
        if not isinstance(node, _SCOPES):
            nodes.extend(ast.iter_child_nodes(node))


def _names(node: ast.AST) -> set[str | None]:
    """The names that a node itself binds."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        case ast.Name(ctx=ast.Store() | ast.Del()):
            return {node.id}
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            return {node.name}
        case ast.MatchMapping():
            return {node.rest}
        case _:
            return set()


def _import_origin(
    files: Mapping[str, Path], label: str, statement: ast.ImportFrom, name: str
) -> tuple[str, str]:
    """The covered file that a name is imported from, or "", and its name there."""
    folder, module = PurePosixPath(label).parent, (statement.module or "").split(".")
    if statement.level:
        base = PurePosixPath(*folder.parts[: max(len(folder.parts) - statement.level + 1, 0)])
    else:
        base = PurePosixPath()
    target = base.joinpath(*module)
    candidates = (f"{target}.py", str(target / "__init__.py"))
    original = next(alias.name for alias in statement.names if name == (alias.asname or alias.name))
    return next((file for file in candidates if file in files), ""), original

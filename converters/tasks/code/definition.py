"""The definition of a function in files that a digest covers, found in their text: nothing is imported.

A name counts as defined if each statement that binds it at the top of its module is a `def` or a `class`, or an import of such
a name from another covered file. What a file imports from anywhere else (`from subprocess import getoutput`) is not its own.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onnxreg.schema.core.errors import InputError

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True)
class Definition:
    """A `def` or `class` by its name, in a file: its name in the digest, and its path."""

    label: str
    file: Path
    function: str


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
        file, name = _imported(files, file, statements[0], name)
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


def _imported(files: Mapping[str, Path], label: str, statement: ast.ImportFrom, name: str) -> tuple[str, str]:
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

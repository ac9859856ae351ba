"""Guarded imports: code that the factory's digest does not cover is refused before any of it runs."""

import sys
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from onnxreg.schema.core.errors import InputError


@contextmanager
def import_context(label: str, paths: Sequence[str], covered: Collection[Path]) -> Iterator[None]:
    """Look up imports in `paths` first. Compiled files beside covered code are neither read nor written.

    Raises InputError, at the end too, if an imported module is neither covered, nor installed, nor of
    onnxreg.

    Args:
        label: the file whose imports these are.
        covered: the files that its digest is over, resolved.
    """
    guard = _Guard(label, covered)
    before = list(sys.path), sys.dont_write_bytecode
    sys.path[:0] = paths
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, guard)
    try:
        yield
    finally:
        sys.meta_path.remove(guard)
        sys.path[:], sys.dont_write_bytecode = before
    if guard.refused:
        raise guard.refusal()


class SourceLoader(SourceFileLoader):
    """Loader of a module from its text alone: a compiled file beside it may come from another text."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def is_installed(path: Path) -> bool:
    """Tell if a file belongs to Python or to an installed package: such files do not change under a version.

    A folder that is merely named `site-packages` does not count.
    """
    return any(path.resolve().is_relative_to(root) for root in _roots())


@cache
def _roots() -> tuple[Path, ...]:
    """Directories of Python and its packages, computed before a factory's directories are added."""
    python_paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    package_paths = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return tuple({Path(path).resolve() for path in (*python_paths, *package_paths)})


class _Guard:
    """First finder in the chain: lets the others find a module, and refuses modules that are not covered."""

    def __init__(self, label: str, covered: Collection[Path]) -> None:
        self.label, self.covered = label, covered
        _roots()
        self.refused: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        finders = (finder for finder in sys.meta_path if finder is not self)
        specs = (spec for finder in finders if (spec := finder.find_spec(name, path, target)) is not None)
        spec = next(specs, None)
        if spec is None or spec.origin is None or not spec.has_location:
            return spec
        file = Path(spec.origin)
        if file.resolve() in self.covered:
            spec.loader = SourceLoader(spec.name, spec.origin)
        elif not is_installed(file) and name.partition(".")[0] != "onnxreg":
            self.refused.add(file.name)
            raise self.refusal()
        return spec

    def refusal(self) -> InputError:
        return InputError(
            f"{self.label} imports {', '.join(sorted(self.refused))}, which its digest does not cover",
            "put them into one package, and name that: package.module:function",
        )

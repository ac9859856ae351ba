"""The tools and the machine that make exports: versions, processor, free memory, and plug-ins."""

import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from onnxreg.schema.core.errors import ConflictError, HostError, InputError, missing_extra, suggest, why

OTHERS = ("onnxruntime-genai", "onnxscript", "jiwer", "pycocotools", "sacrebleu", "scikit-learn", "scipy")
"""The tools of some passes and metrics. A recipe records those that its passes need. A cache key has all of them."""
PLUG_INS = ("metrics", "passes", "profiles")
TOOLS = (
    "flatbuffers", "numpy", "onnx", "onnx-ir", "onnxruntime", "protobuf", "tokenizers", "torch", "transformers",
)  # fmt: skip
EXTRA = ("PIL", "onnx_ir", "onnxscript", "safetensors", *TOOLS)
"""The modules that the extra `export` installs."""
_CLASSES = {
    "x86_64": ("avx512_vnni", "avx512f", "avx_vnni", "avx2", "avx"),
    "arm64": ("i8mm", "sve", "asimddp", "asimdhp", "asimd"),
}
"""The vector extensions by which ONNX Runtime chooses kernels, the widest first, in Linux's names."""
_NAMES = {"amd64": "x86_64", "aarch64": "arm64"}
_CPUINFO = Path("/proc/cpuinfo")


def require(*modules: str, extra: str = "export", purpose: str = "exporting a checkpoint") -> None:
    for module in modules:
        if find_spec(module) is None:
            raise missing_extra(module, extra, purpose)


def refuse_missing(error: BaseException, purpose: str) -> BaseException:
    """Return the original cause of a library's error. Raise HostError if the cause is a missing package."""
    cause = error
    while True:
        module = (getattr(cause, "name", None) or "").partition(".")[0]
        if isinstance(cause, ModuleNotFoundError) and module in EXTRA:
            raise missing_extra(module, "export", purpose) from error
        if isinstance(cause, ModuleNotFoundError) or (type(cause) is ImportError and not module):
            message = f"{purpose} needs a package: {why(cause, 300)}"
            raise HostError(message, "install the package that it names") from error
        if cause.__cause__ is None:
            return cause
        cause = cause.__cause__


@cache
def tool_versions(more: tuple[str, ...] = ()) -> Mapping[str, str]:
    """Return the versions of `TOOLS` and of `more`, and the instruction set as `isa`."""
    versions = package_versions((*TOOLS, *more))
    public = {name: release.partition("+")[0] for name, release in versions.items() if release}
    return {**public, "isa": instruction_set()}


@cache
def tools() -> Mapping[str, str]:
    """Return the versions for a cache key: all tools, onnxreg, and all packages with plug-ins."""
    entries = (entry for kind in PLUG_INS for entry in entry_points(group=f"onnxreg.{kind}"))
    packages = {entry.dist.name for entry in entries if entry.dist is not None}
    return tool_versions((*OTHERS, "onnxreg", *sorted(packages)))


def package_versions(names: Iterable[str]) -> dict[str, str | None]:
    versions: dict[str, str | None] = dict.fromkeys(names)
    for name in versions:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@cache
def distributions() -> Mapping[str, list[str]]:
    """Return the distributions that install each top-level module, such as `{"PIL": ["pillow"]}`."""
    return packages_distributions()


def distribution_of(module: str) -> tuple[str, str] | None:
    """Return a module's distribution and its version, such as `("pillow", "11.0")`; None if it is not installed."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "python", platform.python_version()
    versions = package_versions(sorted(set(distributions().get(top, ()))))
    installed = ((name, release.partition("+")[0]) for name, release in versions.items() if release)
    return next(installed, None)


def cpu_model() -> str:
    return _cpu_value(_CPUINFO, "model name", "Model") or platform.processor() or platform.machine()


def instruction_set(cpuinfo: Path = _CPUINFO) -> str:
    """Return the processor's family with its widest vector extension, such as `x86_64+avx512_vnni`."""
    machine, flags = platform.machine().lower(), _cpu_value(cpuinfo, "flags", "Features").split()
    family = _NAMES.get(machine, machine)
    best = next((name for name in _CLASSES.get(family, ()) if name in flags), None)
    return f"{family}+{best}" if best else family


def _cpu_value(cpuinfo: Path, *keys: str) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.startswith(keys) and value.strip()), "")


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of free memory, within the limit of the control group; None if it is unknown."""
    sizes: list[int] = []
    with suppress(OSError, ValueError):
        lines = (root / "proc/meminfo").read_text("ascii").splitlines()
        sizes += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):
        group = root / "sys/fs/cgroup"
        limit, used = (int((group / f"memory.{name}").read_text("ascii")) for name in ("max", "current"))
        sizes.append(max(0, limit - used))
    return min(sizes, default=None)


def require_memory(size: int | None, work: str) -> None:
    """Raise HostError if `work` needs more than the free memory. `size` is in bytes, or None if it is unknown."""
    free = free_memory()
    if size is not None and free is not None and size > free:
        message = f"{work} takes about {size / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free"
        hint = "close other programs, or export it on a machine with more memory"
        raise HostError(message, hint)


T = TypeVar("T")


@dataclass(frozen=True)
class PlugIns(Generic[T]):
    """The plug-ins of a kind: onnxreg's (`built_in`), and those that other packages declare as entry points of `group`.

    `noun` is the kind with an article, such as `a pass`. `accept` turns a loaded object into a plug-in or returns None.
    `find` and `names` raise ConflictError if two packages use a name; `find` does not check built-in names.
    """

    group: str
    noun: str
    built_in: Mapping[str, T]
    accept: Callable[[EntryPoint, Any], T | None]

    def names(self) -> list[str]:
        return [*self.built_in, *sorted(self._others())]

    def find(self, name: str) -> T:
        """Return a plug-in. Raise InputError if no plug-in has the name, and HostError if the plug-in does not load."""
        if name in self.built_in:
            return self.built_in[name]
        kind, others = self.noun.partition(" ")[2], self._others()
        if name not in others:
            raise InputError(f"no {kind} is called {name[:80]!r}", suggest(name, self.names()))
        entry = others[name]
        try:
            thing = self.accept(entry, entry.load())
        except Exception as error:
            raise HostError(f"the {kind} {name} ({entry.value}) does not load: {error}") from error
        if thing is None:
            message = f"{entry.value} is not {self.noun} with the id {name}"
            raise HostError(message, "report it to the authors of its package")
        return thing

    def _others(self) -> dict[str, EntryPoint]:
        entries: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            if entry.name in self.built_in or entries.get(entry.name, entry).value != entry.value:
                message = f"two packages bring {self.noun} called {entry.name}: {entry.value} is one of them"
                raise ConflictError(message, "uninstall one of them")
            entries[entry.name] = entry
        return entries

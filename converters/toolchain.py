"""The tools that shape exported bytes, by name and version, without anything of the one machine."""

import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from onnxreg.schema.errors import missing_extra

TOOLS = ("flatbuffers", "numpy", "onnx", "onnxruntime", "protobuf", "tokenizers", "torch", "transformers")
_X86_CLASSES = ("avx512_vnni", "avx512f", "avx_vnni", "avx2", "avx")
_CPUINFO = Path("/proc/cpuinfo")


def require(*modules: str) -> None:
    """Raise HostError for the first of these modules that is not installed; nothing is imported."""
    for module in modules:
        if find_spec(module) is None:
            raise missing_extra(module, "export", "exporting a checkpoint")


def tool_versions() -> dict[str, str]:
    """Versions of the installed tools, and as `isa` the instruction-set class of this machine.

    A local part such as `+cpu` is left out: it names a build of the same code.
    """
    found = {}
    for name in TOOLS:
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
    return {**found, "isa": instruction_set()}


def instruction_set(cpuinfo: Path = _CPUINFO) -> str:
    """The processor family and its widest vector extension, such as `x86_64+avx512_vnni`; the family alone if unknown."""
    family = platform.machine().lower().replace("amd64", "x86_64")
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return family
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    best = next((name for name in _X86_CLASSES if name in flags), None)
    return f"{family}+{best}" if best else family

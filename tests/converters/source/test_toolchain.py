"""Tool facts: what shapes bytes, and nothing of one machine."""

from pathlib import Path

import pytest

from onnxreg.converters.source import toolchain
from onnxreg.converters.source.toolchain import refuse_missing
from onnxreg.schema.core.errors import HostError, missing_extra


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu sse2 avx avx2 avx512f avx512_vnni", "x86_64+avx512_vnni"),
        ("fpu sse2 avx avx2 avx_vnni", "x86_64+avx_vnni"),
        ("fpu sse2 avx avx2", "x86_64+avx2"),
        ("fpu sse2", "x86_64"),
    ],
)
def test_instruction_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, expected: str) -> None:
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: {flags}\n")
    assert toolchain.instruction_set(cpuinfo) == expected
    assert toolchain.instruction_set(tmp_path / "absent") == "x86_64"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module", name="onnx_ir.passes"), ("x needs onnx_ir, which is not installed", missing_extra("", "export", "").hint)),
        (ModuleNotFoundError("No module named 'einops'", name="einops"), ("x needs a package: No module named 'einops'", "install the package that it names")),
        (ImportError("T requires the SentencePiece library"), ("x needs a package: T requires the SentencePiece library", "install the package that it names")),
    ],
)  # fmt: skip
def test_a_missing_package_is_named_however_deep_it_is(error: Exception, told: tuple[str, str]) -> None:
    toolchain.require("json", "onnx")
    with pytest.raises(HostError, match="needs no_such_tool, which is not installed") as caught:
        toolchain.require("json", "no_such_tool")
    assert "[export]" in caught.value.hint
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = error
    with pytest.raises(HostError) as caught:
        refuse_missing(wrapped, "x")
    assert (caught.value.message, caught.value.hint) == told
    for other in (ValueError("no"), ImportError("cannot import name", name="torch")):
        refuse_missing(other, "x")

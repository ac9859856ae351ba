"""Pointers of Git LFS and pages of a login in place of the files of an export."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxreg.converters.evaluation.suite import read_bytes
from onnxreg.converters.runtime.golden import read_arrays
from onnxreg.converters.tasks.checkpoint import TOKENS, find_checkpoint
from onnxreg.schema.core.errors import InputError

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 400000\n"
PAGE = b"<!doctype html><html><title>Sign in</title></html>"

pytestmark = pytest.mark.parametrize("data", [POINTER, PAGE], ids=["pointer", "page"])


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
)
def test_a_checkpoint(make_checkpoint: Callable[..., Path], name: str, data: bytes) -> None:
    checkpoint = make_checkpoint()
    (checkpoint / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{re.escape(name)} is a (Git LFS pointer|web page)"):
        find_checkpoint(str(checkpoint), TOKENS)


def test_a_suite(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "suite.jsonl").write_bytes(data)
    with pytest.raises(InputError, match=r"suite\.jsonl is a (Git LFS pointer|web page)"):
        read_bytes(tmp_path / "suite.jsonl")


def test_calibration_data(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "rows.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"rows\.npz is a (Git LFS pointer|web page)"):
        read_arrays(tmp_path / "rows.npz")

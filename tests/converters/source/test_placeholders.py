"""Pointers of Git LFS and pages of a login in place of the files of an export."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(("name", "read"), [("suite.jsonl", read_bytes), ("rows.npz", read_arrays)])
def test_a_suite_and_calibration_data(
    tmp_path: Path, name: str, read: Callable[[Path], Any], data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{re.escape(name)} is a (Git LFS pointer|web page)"):
        read(tmp_path / name)

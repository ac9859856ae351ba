"""Files that people write may begin with a byte order mark, as editors on Windows leave it."""

from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reg = Callable[..., Any]


@pytest.mark.usefixtures("fleet")
def test_a_device_and_a_policy_with_a_byte_order_mark_are_read(reg: Reg, tmp_path: Path) -> None:
    device, policy = tmp_path / "device.json", tmp_path / "policy.toml"
    device.write_bytes(BOM_UTF8 + b'{"ort": "1.23"}')
    policy.write_bytes(BOM_UTF8 + b'[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]\n')
    assert reg("resolve", "acme/fleet", "--device", device).status == 0
    assert reg("policy", "set", policy).status == 5

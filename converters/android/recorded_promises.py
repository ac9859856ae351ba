"""The promises of an export as its recipe recorded them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.android.android_profile import AndroidContract


def contract_of(parameters: Mapping[str, Any], suite: Path | None) -> AndroidContract:
    """The contract of the profile: the same for every export; the recipe names the evaluation."""
    return AndroidContract()

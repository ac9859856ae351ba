"""The promises of an export as its recipe recorded them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.android.android_profile import AndroidContract
from onnxreg.converters.evaluation.rule import Floors
from onnxreg.converters.evaluation.suite import load as load_suite
from onnxreg.schema.core.codec import count, mapping, number


def contract_of(parameters: Mapping[str, Any], suite: Path | None) -> AndroidContract:
    """Raise InputError if the recorded evaluation is malformed, or the suite cannot be read."""
    settings, default = mapping(parameters.get("evaluation", {})), Floors()
    floors = Floors(
        count(settings.get("min_gold_chars", default.gold_chars)),
        number(settings.get("min_parent_recall", default.parent_recall)),
    )
    return AndroidContract(None if suite is None else load_suite(suite), floors)

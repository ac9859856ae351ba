"""OpenMed's mobile-safe set and its sentences."""

import json
from pathlib import Path

from onnxreg.converters.onnx.mobile_rules import MOBILE_SAFE_OPS, android_warnings

BERT = Path(__file__).parents[1].parent / "fixtures/openmed-v1/bert"


def test_the_set_of_mobile_safe_operators() -> None:
    assert len(MOBILE_SAFE_OPS) == 45
    assert {"Gelu", "LayerNormalization", "Where"} <= MOBILE_SAFE_OPS
    assert not {"GreaterOrEqual", "IsNaN", "MatMulInteger"} & MOBILE_SAFE_OPS


def test_the_sentences_are_those_of_the_real_tool() -> None:
    artifacts = json.loads((BERT / "openmed-onnx.json").read_text())["artifacts"]
    for metadata in (artifact["metadata"] for artifact in artifacts[:2]):
        warnings = android_warnings(metadata["operators"])
        assert warnings == {key: metadata[key] for key in warnings}


def test_a_domain_is_never_safe() -> None:
    assert android_warnings(["Add", "com.microsoft:Add"])["unsupported_ops"] == ["com.microsoft:Add"]

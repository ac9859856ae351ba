"""The values that the quick verbs need are imported in milliseconds: no pydantic, no codec, no ML library."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    *("pydantic", "pydantic_core", "rfc8785", "typing_extensions", "annotated_types", "ipaddress"),
    *("torch", "onnx", "onnxruntime", "transformers", "numpy", "jsonschema", "asyncio", "logging", "uuid"),
}


def loaded(module: str) -> set[str]:
    """What importing a module adds to `sys.modules` in a fresh interpreter."""
    code = (
        "import sys, json; before = set(sys.modules)\n"
        f"import {module}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("module", ["core.errors", "core.digest", "core.ref"])
def test_values_are_light(module: str) -> None:
    names = loaded(f"onnxreg.schema.{module}")
    assert f"onnxreg.schema.{module}" in names
    assert names & (HEAVY | {"typing", "json", "hashlib", "unicodedata"}) == set()


@pytest.mark.parametrize(
    "module",
    [
        "core.canonical",
        "core.paths",
        "log.events",
        "log.state",
        "log.summary",
        "query.requirements",
        "query.expression.parser",
        "query.resolve",
        "query.device",
        "manifest.operators",
        "inputs.lockfile",
    ],
)
def test_index_is_read_without_pydantic(module: str) -> None:
    names = loaded(f"onnxreg.schema.{module}")
    assert f"onnxreg.schema.{module}" in names
    assert names & HEAVY == set()


def test_documents_do_need_pydantic() -> None:
    """The probe sees what it looks for."""
    assert "pydantic" in loaded("onnxreg.schema.manifest.manifest")

"""The catalog: ours, others', and the table in the documentation."""

import json
import sys
from pathlib import Path

import pytest
from support.plug_ins import install

from onnxreg.converters.passes import pass_catalog
from onnxreg.schema.core.errors import ConflictError, HostError, InputError

PAGE = Path(__file__).parents[3] / "docs" / "passes.md"
MODULE = '''
from onnxreg.converters.passes.base import GraphPass
class Other(GraphPass):
    """Do nothing. And that well."""
    id = "Other"
    def apply(self, subject):
        return subject
'''


@pytest.mark.parametrize("name", pass_catalog.BUILT_IN)
def test_every_pass_is_described(name):
    from jsonschema import Draft202012Validator

    found = pass_catalog.describe(name)
    json.dumps(found)
    Draft202012Validator.check_schema(found["parameters"])
    assert found["summary"]
    assert found["parameters"]["additionalProperties"] is False


def test_the_table_of_the_documentation_is_generated():
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("<!-- generated: passes -->\n")[2].partition("<!-- end -->")[0]
    rows = [f"| `{name}` | {pass_catalog.describe(name)['summary']} |" for name in pass_catalog.BUILT_IN]
    assert table.split("\n") == ["", "| pass | what it does |", "|---|---|", *rows, "", ""]


def test_a_pass_of_another_package(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "passes", "Other = other_plug_ins:Other", module=MODULE)
    assert pass_catalog.names() == [*pass_catalog.BUILT_IN, "Other"]
    assert "other_plug_ins" not in sys.modules
    found = pass_catalog.describe("Other")
    assert (found["package"], found["summary"]) == ("other_plug_ins", "Do nothing")


@pytest.mark.parametrize(
    ("entry", "module", "message"),
    [
        ("Other = other_plug_ins:Missing", MODULE, "does not load"),
        ("Other = other_plug_ins:Other", "1 / 0", "does not load: division by zero"),
        ("Wrong = other_plug_ins:Other", MODULE, "is not a pass with the id Wrong"),
        ("Other = other_plug_ins:GraphPass", MODULE, "is not a pass with the id Other"),
        ("OnnxConversion = other_plug_ins:Other", MODULE, "two packages bring a pass called OnnxConversion"),
    ],
)
def test_a_pass_that_is_broken_or_has_a_name_that_is_taken_is_named(
    entry, module, message, tmp_path, monkeypatch
):
    install(tmp_path, monkeypatch, "passes", entry, module=module)
    with pytest.raises(ConflictError if "two" in message else HostError, match=message):
        pass_catalog.find(entry.partition(" ")[0] if "two" not in message else "Other")


def test_an_unknown_name_tells_the_nearest_or_all():
    with pytest.raises(InputError, match="no pass is called 'onnxconversoin'") as caught:
        pass_catalog.find("onnxconversoin")
    assert caught.value.hint.startswith("did you mean OnnxConversion")
    with pytest.raises(InputError) as caught:
        pass_catalog.find("zzz")
    assert "OnnxConversion, TransformersExport" in caught.value.hint

"""A checkpoint whose own code runs, once it is trusted."""

import json
import shutil
from pathlib import Path

import pytest
from support.exports import export_android

from onnxreg.converters.runtime.sessions import load_session
from onnxreg.schema.core.errors import InputError

OWN_CODE = """
from transformers import BertForTokenClassification

class Tagger(BertForTokenClassification):
    def forward(self, *args, **kwargs):
        found = super().forward(*args, **kwargs)
        found.logits = found.logits + 100.0
        return found
"""


@pytest.fixture
def own(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A BERT whose own code adds 100 to every logit."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    directory = Path(shutil.copytree(bert, tmp_path / "own_checkpoint"))
    (directory / "own.py").write_text(OWN_CODE)
    config = json.loads((directory / "config.json").read_text())
    config["auto_map"] = {"AutoModelForTokenClassification": "own.Tagger"}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def test_trusted_code_is_exported_and_the_trust_recorded(own: Path, bert: Path, tmp_path: Path) -> None:
    for source, trusted in ((own, True), (bert, False)):
        workspace = tmp_path / f"trusted is {trusted}"
        workspace.mkdir()
        options = {"int8": False}
        draft = export_android(source, workspace, "acme/own", options, trust_remote_code=trusted)
        assert draft.fields["recipe"]["trust_remote_code"] is trusted
        session = load_session(workspace / "model.onnx")
        (logits,) = session.run(["logits"], {item.name: [[1, 1, 1]] for item in session.get_inputs()})
        assert (logits.min() > 50) is trusted


def test_code_that_is_not_trusted_leaves_nothing(own: Path, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    with pytest.raises(InputError, match="wants its own code to run"):
        export_android(str(own), tmp_path / "w", name="acme/own")
    assert list((tmp_path / "w").iterdir()) == []

"""The demo's story, on tiny checkpoints instead of the trained ones."""

import json
from types import SimpleNamespace

import demo
import pytest

from onnxreg.cli.main import main


@pytest.mark.more
def test_the_demo_plays_to_its_end(make_checkpoint, tmp_path, monkeypatch, capfd):
    """Its commands are run by this process, which has imported PyTorch already."""
    run = lambda command, **_: SimpleNamespace(returncode=main(list(command[1:])))
    monkeypatch.setattr(demo, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setenv("REG_HOME", "home")
    monkeypatch.chdir(tmp_path)
    for version, seed in zip(demo.VERSIONS, (1, 2), strict=True):
        (tmp_path / version).symlink_to(make_checkpoint(seed=seed))
    text = "the patient was seen by Dr w20"
    span = {"start": 27, "end": 30, "label": "NAME", "text": "w20"}
    for number, suite in enumerate(demo.SUITES):
        rows = ({"id": f"{n}", "text": f"{text} w{number}", "gold_spans": [span]} for n in range(80))
        (tmp_path / suite).write_text("".join(json.dumps(row) + "\n" for row in rows))
    demo.play(demo.Shell(tmp_path))
    demo.summary(tmp_path)
    said = capfd.readouterr().out
    assert "--certify --confirm-suite confirm.jsonl" in said
    assert "No candidate passed." in said
    assert "$ reg push demo/pii:0.2.0" in said
    assert "nothing to do" in said
    assert "all intact" in said
    assert "│ NAME" in said
    assert (tmp_path / "export-0.2.0" / "openmed-onnx.json").is_file()


def test_a_failing_command_ends_the_demo(tmp_path, capfd):
    with pytest.raises(SystemExit) as stop:
        demo.play(demo.Shell(tmp_path))
    assert stop.value.code == 3
    assert "evaluation suite heldout.jsonl" in capfd.readouterr().err

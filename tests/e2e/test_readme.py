"""The Python of the README works as it stands there; its commands are run by tests/docs."""

import re
from pathlib import Path

from support.docs.nets import write_mlp

README = Path(__file__).parents[2] / "README.md"


def test_the_ten_lines_of_python(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    write_mlp(tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    exec(code, {})  # noqa: S102
    digest, path, url = capsys.readouterr().out.split()
    assert digest.startswith("sha256:") and path == "model.onnx" and url.startswith("file://")
    assert (tmp_path / "shared" / "index" / "me" / "model.jsonl").is_file()

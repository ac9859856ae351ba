"""The Python of the README works as it stands there; its commands are run by tests/docs."""

import re
import runpy
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_ten_lines_of_python(bert, tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "checkpoint").symlink_to(bert)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.py").write_text(code)
    runpy.run_path("lines.py")
    digest, path, url = capsys.readouterr().out.split()
    assert digest.startswith("sha256:") and path == "model.ort" and url.startswith("file://")
    assert (tmp_path / "shared" / "index" / "acme" / "pii.jsonl").is_file()

"""The Python of the README works as it stands there; its commands are run by tests/docs."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_ten_lines_of_python(make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "checkpoint").symlink_to(make_checkpoint())
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    digest, path, url = done.stdout.split()
    assert digest.startswith("sha256:") and path == "model.ort" and url.startswith("file://")
    assert (tmp_path / "shared" / "index" / "acme" / "pii.jsonl").is_file()

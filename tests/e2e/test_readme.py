"""What the README shows works as it stands there."""

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
    assert digest.startswith("sha256:") and path == "model_int8.onnx" and url.startswith("file://")
    assert (tmp_path / "shared" / "index" / "acme" / "pii.jsonl").is_file()


def test_every_link_leads_somewhere() -> None:
    for page in (README, *README.parent.glob("docs/**/*.md"), README.with_name("CONTRIBUTING.md")):
        prose = re.sub(r"`[^`]*`", "", page.read_text())
        for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_verb_of_the_readme_exists() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "onnxreg.cli", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for verb in set(re.findall(r"^\$ reg (?:--\w+ \S+ )*([a-z]+)", README.read_text(), re.MULTILINE)):
        assert re.search(rf"\b{verb}\b", help_text), verb

"""The Python names that the page of stability promises are there."""

import re
import runpy
from pathlib import Path

from support.docs.pages import REPOSITORY

PAGE = (REPOSITORY / "docs" / "stability.md").read_text("utf-8")


def test_the_promised_names_are_there(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "names.py").write_text(block)
    names = runpy.run_path(str(tmp_path / "names.py"))
    (methods,) = re.findall(r"these are stable:\s+`Registry\(root\)`,\s+(.*?)\.", PAGE, re.DOTALL)
    wanted = re.findall(r"`(\w+)`", methods)
    assert len(wanted) > 5
    assert [name for name in wanted if not callable(getattr(names["Registry"], name, None))] == []
    assert issubclass(names["RegError"], Exception) and names["RegError"].family


def test_the_names_of_the_readme_are_promised() -> None:
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    imported = re.findall(r"^from onnxreg\.\S+ import \w+$", readme, re.MULTILINE)
    assert imported and [line for line in imported if line not in PAGE] == []
    called = set(re.findall(r"registry\.(\w+)\(", readme))
    assert {name for name in called if f"`{name}`" not in PAGE} == set()

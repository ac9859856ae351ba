"""Which function of a file is its own: found in the text, before anything is imported."""

from pathlib import Path

import pytest

from onnxreg.converters.tasks.code import factory
from onnxreg.converters.tasks.code.factory import find_definition
from onnxreg.schema.core.errors import InputError

OWN = {
    "a function": "def build():\n    pass\n",
    "a class": "class build:\n    pass\n",
    "a decorated function": "import functools\n@functools.cache\ndef build():\n    pass\n",
    "one of two": "if True:\n    def build():\n        pass\nelse:\n    def build():\n        pass\n",
    "a name that is bound elsewhere too": "def build():\n    pass\ndef other():\n    from os import system as build\n",
}
FOREIGN = {
    "an import": "from os import system as build\n",
    "an import of a module": "import os as build\n",
    "a star": "from os import *\n",
    "a value": "import os\nbuild = os.system\n",
    "an import that comes later": "def build():\n    pass\nfrom os import system as build\n",
    "an import before": "from os import system as build\nif False:\n    def build():\n        pass\n",
    "a walrus": "import os\nif (build := os.system):\n    pass\n",
    "a loop": "import os\nfor build in [os.system]:\n    pass\n",
    "a context": "import os\nwith os.scandir() as build:\n    pass\n",
    "a pattern": "import os\nmatch os.system:\n    case build:\n        pass\n",
    "a global": "def build():\n    pass\ndef other():\n    global build\n    from os import system as build\nother()\n",
    "a deletion": "def build():\n    pass\ndel build\n",
    "a method": "class Net:\n    def build(self):\n        pass\n",
    "a coroutine": "async def build():\n    pass\n",
    "itself": "from net import build\n",
    "no Python": "def (:\n",
}
DEEP = {"operators": "-" * 200_000, "attributes": f"a{'.a' * 100_000}\n"}


def write(root: Path, **files: str) -> dict[str, Path]:
    """Files of the package `kit`, by their names in its digest; `init` is `__init__`."""
    (root / "kit").mkdir()
    found = {f"kit/{name.replace('init', '__init__')}.py": text for name, text in files.items()}
    for label, text in found.items():
        (root / label).write_text(text, "utf-8")
    return {label: root / label for label in found}


@pytest.mark.parametrize("case", OWN)
def test_definitions_of_a_file(tmp_path: Path, case: str) -> None:
    files = write(tmp_path, net=OWN[case])
    assert find_definition(files, "kit/net.py", "build").file == tmp_path / "kit" / "net.py"


@pytest.mark.parametrize("case", FOREIGN)
def test_names_without_a_definition_are_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises(InputError, match=r"kit/net\.py (does not define build|is not valid Python)"):
        find_definition(write(tmp_path, net=FOREIGN[case]), "kit/net.py", "build")


@pytest.mark.parametrize(
    "text",
    ["from .net import make as build\n", "from kit.net import make as build\n", "from .net import other as make, make as build\n"],
)  # fmt: skip
def test_an_import_from_a_covered_file_is_followed(tmp_path: Path, text: str) -> None:
    files = write(tmp_path, init=text, net="def make():\n    pass\ndef other():\n    pass\n")
    found = find_definition(files, "kit/__init__.py", "build")
    assert (found.label, found.function) == ("kit/net.py", "make")


@pytest.mark.parametrize(
    "text", ["from ..os import system as build\n", "from . import build\n", "from .x import build\n"]
)
def test_an_import_from_elsewhere_is_not(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="does not define build"):
        find_definition(write(tmp_path, init=text), "kit/__init__.py", "build")


@pytest.mark.parametrize("case", DEEP)
def test_a_file_that_is_nested_too_deeply(tmp_path: Path, case: str) -> None:
    write(tmp_path, init="", net=DEEP[case])
    with pytest.raises(InputError, match=r"kit/net\.py cannot be parsed"):
        assert factory.find("kit.net:build", tmp_path).packages
    with pytest.raises(InputError, match=r"kit/net\.py cannot be parsed"):
        assert factory.find("kit.net:build", tmp_path).definition


@pytest.mark.parametrize(
    ("source", "other"), [("tarfile:bltn_open", "io"), ("logging.config:ThreadingTCPServer", "socketserver")]
)
def test_an_installed_function_of_another_module_is_refused(source: str, other: str) -> None:
    with pytest.raises(InputError, match=f"{source} is of _?{other}, and not of "):
        factory.make(factory.find(source, Path()), {})

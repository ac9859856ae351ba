"""The JVM client of examples/jvm-client: compiled once, called as a user does."""

import atexit
import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from support.servers.web_client import Call, driven

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "examples" / "jvm-client"
JAVA = shutil.which("java")
JAVAC = shutil.which("javac")
REASON = "no JDK is installed: apt-get install openjdk-17-jdk-headless"


def build_script() -> ModuleType:
    """The module `examples/jvm-client/build.py`."""
    spec = importlib.util.spec_from_file_location("jvm_client_build", CLIENT / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def classes() -> Path:
    """The class files of the client and of the programs of its tests, compiled once in this process."""
    directory = Path(tempfile.mkdtemp(prefix="jvm-client-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    programs = [*(CLIENT / "tools").rglob("*.java"), *(ROOT / "tests" / "examples").glob("*.java")]
    build_script().compile_sources(directory, more=programs)
    return directory


@contextmanager
def running(*options: str) -> Iterator[Call]:
    """Call the client in one JVM for many calls."""
    with driven(str(JAVA), *options, "-cp", classes(), "org.onnxreg.client.JvmClient") as call:
        yield call

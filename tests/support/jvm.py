"""The JVM client of examples/jvm-client: compiled once, called as a user does."""

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from support.one_at_a_time import locked
from support.servers.web_client import Call, driven

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "examples" / "jvm-client"
CACHE = ROOT / ".cache" / "jvm-client"
JAVA = shutil.which("java")
JAVAC = shutil.which("javac")
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for a program that runs for a second or two: they halve its processor time."""
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
    """The class files of the client and of the programs of its tests, compiled once: `.cache` keeps them, under
    the digest of their sources.
    """
    programs = [*(CLIENT / "tools").rglob("*.java"), *(ROOT / "tests" / "examples").glob("*.java")]
    sources = sorted([CLIENT / "build.py", *(CLIENT / "src").rglob("*.java"), *programs])
    directory = CACHE / sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    with locked(CACHE):
        if not directory.is_dir():
            shutil.rmtree(CACHE / "unfinished", ignore_errors=True)
            build_script().compile_sources(CACHE / "unfinished", more=programs)
            (CACHE / "unfinished").rename(directory)
    return directory


@contextmanager
def running(*options: str) -> Iterator[Call]:
    """Call the client in one JVM for many calls."""
    with driven(str(JAVA), *QUICK_START, *options, "-cp", classes(), "org.onnxreg.client.JvmClient") as call:
        yield call

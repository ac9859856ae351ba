"""The client in examples/jvm-client: its vectors and its jar."""

import re
import shutil
import subprocess
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from support import jvm

VECTORS = Path(__file__).parents[1] / "vectors"
MAX_JAR_BYTES = 200_000

pytestmark = pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)


def run_vectors(vectors: Path) -> subprocess.CompletedProcess[str]:
    program = ["-cp", jvm.classes(), "org.onnxreg.client.RunVectors", vectors]
    command = [str(jvm.JAVA), *jvm.QUICK_START, *program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_client_passes_the_vectors() -> None:
    done = run_vectors(VECTORS)
    assert done.returncode == 0, done.stderr
    count, failed = (int(word) for word in done.stdout.split() if word.isdigit())
    assert count > 900
    assert failed == 0


def test_vectors_that_fail_are_noticed(tmp_path: Path) -> None:
    shutil.copytree(VECTORS, tmp_path / "vectors")
    for path in (tmp_path / "vectors" / "resolve").glob("*.json"):
        path.write_text(path.read_text().replace('"ranked-lower"', '"opset"', 1))
    done = run_vectors(tmp_path / "vectors")
    assert done.returncode == 1
    assert 2 <= done.stderr.count("FAILED") <= 6


def test_the_source_uses_nothing_that_old_phones_lack() -> None:
    """Android has these packages of Java 8 since API level 26. The compiler keeps the source to Java 8."""
    packages = {"java.io", "java.math", "java.net", "java.security", "java.util"}
    packages |= {"java.nio", "java.nio.channels", "java.nio.charset", "java.nio.file", "java.security.spec"}
    packages |= {"java.util.concurrent", "java.util.function", "java.util.regex", "java.util.stream"}
    packages |= {"java.util.zip"}
    for path in (jvm.CLIENT / "src").rglob("*.java"):
        names = re.findall(r"^import (?:static )?([a-z.]+)\.[A-Z]", path.read_text("utf-8"), re.MULTILINE)
        assert {*names} <= packages, path.name


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of one build, by their names without the version."""
    return build(tmp_path_factory.mktemp("jar"))


def build(directory: Path) -> dict[str, bytes]:
    script = jvm.build_script()
    files = script.build(directory).iterdir()
    return {path.name.replace(f"-{script.version()}", ""): path.read_bytes() for path in files}


@pytest.mark.more
def test_the_jar_is_small(built: dict[str, bytes]) -> None:
    names = ["onnxreg-client-sources.jar", "onnxreg-client.jar", "onnxreg-client.pom"]
    assert sorted(built) == names
    assert len(built["onnxreg-client.jar"]) <= MAX_JAR_BYTES


@pytest.mark.more
def test_two_builds_are_the_same_bytes(built: dict[str, bytes], tmp_path: Path) -> None:
    assert build(tmp_path / "again") == built


@pytest.mark.more
def test_the_classes_are_of_java_8(built: dict[str, bytes]) -> None:
    with ZipFile(BytesIO(built["onnxreg-client.jar"])) as jar:
        classes = [jar.read(name) for name in jar.namelist() if name.endswith(".class")]
    assert len(classes) > 20
    assert {int.from_bytes(data[6:8], "big") for data in classes} == {52}

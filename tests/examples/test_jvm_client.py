"""The client in examples/jvm-client: its vectors and its jar."""

import re
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from support import jvm

VECTORS = Path(__file__).parents[1] / "vectors"
MAX_JAR_BYTES = 200_000

pytestmark = pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)


def run_vectors(vectors: Path) -> subprocess.CompletedProcess[str]:
    command = [str(jvm.JAVA), "-cp", jvm.classes(), "org.onnxreg.client.RunVectors", vectors]
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


LATER = re.compile(
    r"java\.(time|nio\.file|util\.(Base64|function|stream|Optional))|->|\w::|\.forEach\(|getOrDefault|putIfAbsent"
)
"""Parts of Java that Android's API level 23 lacks, or that its class stubs cannot compile."""


def test_the_source_uses_nothing_that_old_phones_lack() -> None:
    for path in (jvm.CLIENT / "src").rglob("*.java"):
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text("utf-8"), flags=re.DOTALL)
        assert not LATER.search(code), path.name


def test_the_jar_is_small_and_reproducible(tmp_path: Path) -> None:
    script = jvm.build_script()
    built = [script.build(tmp_path / name) for name in ("one", "two")]
    one, two = ({path.name: path.read_bytes() for path in directory.iterdir()} for directory in built)
    assert one == two
    stem = f"onnxreg-client-{script.version()}"
    assert sorted(one) == sorted([f"{stem}.jar", f"{stem}-sources.jar", f"{stem}.pom"])
    assert len(one[f"{stem}.jar"]) <= MAX_JAR_BYTES


def test_the_classes_are_of_java_8(tmp_path: Path) -> None:
    script = jvm.build_script()
    with ZipFile(script.build(tmp_path) / f"onnxreg-client-{script.version()}.jar") as jar:
        classes = [jar.read(name) for name in jar.namelist() if name.endswith(".class")]
    assert len(classes) > 20
    assert {int.from_bytes(data[6:8], "big") for data in classes} == {52}

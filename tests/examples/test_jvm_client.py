"""What only the client in examples/jvm-client has: its jar and its directory."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from support import jvm
from support.registries.for_devices import blob, publish
from support.servers.web_client import Call, driven

NAME = "acme/pii"
MAX_JAR_BYTES = 200_000

pytestmark = pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)


def test_the_source_uses_nothing_that_old_phones_lack():
    """Android has these packages of Java 8 since API level 26. The compiler keeps the source to Java 8."""
    packages = {"java.io", "java.math", "java.net", "java.security", "java.util"}
    packages |= {"java.nio", "java.nio.channels", "java.nio.charset", "java.nio.file", "java.security.spec"}
    packages |= {"java.util.concurrent", "java.util.function", "java.util.regex", "java.util.stream"}
    packages |= {"java.util.zip"}
    for path in (jvm.CLIENT / "src").rglob("*.java"):
        names = re.findall(r"^import (?:static )?([a-z.]+)\.[A-Z]", path.read_text("utf-8"), re.MULTILINE)
        assert {*names} <= packages, path.name


@pytest.mark.more
def test_the_jar_is_small_of_java_8_and_the_same_each_time(tmp_path):
    project = tomllib.loads((jvm.ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    def build(directory: Path) -> dict[str, bytes]:
        """In a copy outside the repository."""
        copy = shutil.copytree(jvm.CLIENT, directory / "client")
        subprocess.run(
            [sys.executable, copy / "build.py", directory / "maven"], check=True, capture_output=True
        )
        files = (path for path in (directory / "maven").rglob("*") if path.is_file())
        return {path.name.replace(f"-{project['version']}", ""): path.read_bytes() for path in files}

    built = build(tmp_path / "once")
    assert build(tmp_path / "again") == built
    assert sorted(built) == ["onnxreg-client-sources.jar", "onnxreg-client.jar", "onnxreg-client.pom"]
    assert len(built["onnxreg-client.jar"]) <= MAX_JAR_BYTES
    with ZipFile(BytesIO(built["onnxreg-client.jar"])) as jar:
        classes = [jar.read(name) for name in jar.namelist() if name.endswith(".class")]
    assert len(classes) > 20
    assert {int.from_bytes(data[6:8], "big") for data in classes} == {52}


@pytest.fixture(scope="module")
def client() -> Iterator[Call]:
    with jvm.running() as call:
        yield call


def test_tidy_keeps_current_releases_whatever_the_budget(registry, call, tmp_path):
    for version in ("1.0.0", "1.1.0"):
        files = publish(registry, tmp_path / version, version)
        call("update")
    call("tidy", 150_000)
    assert sum(path.stat().st_size for path in (tmp_path / "store" / "blobs").iterdir()) < 150_000
    assert call("present") == {**call("present"), "previous": None, "files": files}


def test_extract_gives_files_their_own_names_and_leaves_temporary_ones(registry, call, tmp_path):
    files = publish(registry, tmp_path / "1", "1.0.0")
    call("update")
    assert call("role", "config")["text"] == "1.0.0"
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.json.tmp").write_bytes(b"of another caller")
    assert call("extract", str(own)) == {}
    assert {path.name for path in own.iterdir()} == {*files, "config.json.tmp"}
    assert (own / "config.json").read_bytes() == b"1.0.0"
    assert (own / "config.json.tmp").read_bytes() == b"of another caller"
    (own / "config.json").unlink()
    (own / "config.json").mkdir()
    assert call("extract", str(own))["error"] == "local"
    assert [path.name for path in own.glob("*.tmp")] == ["config.json.tmp"]


@pytest.mark.more
def test_a_full_disk_is_an_error_and_the_current_release_stays(registry, site, call, tmp_path):
    """A limit on the size of files fails the write of the new model as a full disk does."""
    first = publish(registry, tmp_path / "1", "1.0.0")
    assert call("update")["files"] == first
    second = publish(registry, tmp_path / "2", "1.1.0", 3_000_000)
    limited = f"ulimit -f 1000; exec {jvm.JAVA} -cp {jvm.classes()} org.onnxreg.client.JvmClient"
    with driven("bash", "-c", limited) as call_limited:
        outcome = call_limited(site.url, tmp_path / "store", "update", NAME)
    assert outcome["error"] == "local"
    assert call("present")["files"] == first
    assert call("update")["files"] == second


@pytest.mark.more
def test_two_processes_update_one_directory(registry, site, tmp_path):
    files = publish(registry, tmp_path / "1", "1.0.0", 3_000_000)
    site.piece = 100_000
    site.plan = lambda method, path: "slow" if "/blobs/" in path else None
    with jvm.running() as one, jvm.running() as other, ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call, site.url, tmp_path / "store", "update", NAME) for call in (one, other)]
        assert [done.result()["files"] for done in calls] == [files, files]
    model = blob(registry, files["model_int8.onnx"]).name
    assert site.requests("GET", model) == 1

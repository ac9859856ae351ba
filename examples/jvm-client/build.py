"""Build the jar, the sources and the POM of the JVM client: `python build.py [DIRECTORY]`.

This needs only `javac` of JDK 8 or later. The same sources and the same JDK give the same bytes.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
GROUP, ARTIFACT, VERSION = "org.onnxreg", "onnxreg-client", "0.2.0"
EARLIEST = (1980, 1, 1, 0, 0, 0)
MANIFEST = "META-INF/MANIFEST.MF"
QUICK_START = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
"""The options of the compiler that halve the time of a short run."""
POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>jar</packaging>
  <name>{artifact}</name>
  <description>A client of onnxreg registries for Android and the JVM, without dependencies</description>
  <licenses>
    <license>
      <name>Apache-2.0</name>
    </license>
  </licenses>
</project>
"""


def compile_sources(target: Path, *options: str | Path, more: Iterable[Path] = ()) -> None:
    """Compile the client, with the sources `more`, to class files of Java 8 or as `options` say."""
    sources = sorted([*SOURCES.rglob("*.java"), *more])
    flags = options or ("--release", "8")
    checks = ("-Xlint:all,-options,-try", "-Werror")
    command = ["javac", *QUICK_START, *checks, "-encoding", "UTF-8", "-g:source,lines", *flags]
    subprocess.run([*command, "-d", target, *sources], check=True)


def write_jar(target: Path, root: Path) -> None:
    """Write the files below a directory into a jar, sorted by path and without times."""
    entries = {MANIFEST: b"Manifest-Version: 1.0\r\n\r\n"}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            entries[path.relative_to(root).as_posix()] = path.read_bytes()
    with ZipFile(target, "w") as jar:
        for name, data in entries.items():
            entry = ZipInfo(name, EARLIEST)
            entry.compress_type = ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, data)


def build(root: Path) -> Path:
    """Write jar, sources and POM into a Maven repository, and return their directory."""
    directory = root / Path(*GROUP.split(".")) / ARTIFACT / VERSION
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{ARTIFACT}-{VERSION}"
    with tempfile.TemporaryDirectory() as classes:
        compile_sources(Path(classes))
        write_jar(directory / f"{stem}.jar", Path(classes))
    write_jar(directory / f"{stem}-sources.jar", SOURCES)
    pom = POM.format(group=GROUP, artifact=ARTIFACT, version=VERSION)
    (directory / f"{stem}.pom").write_text(pom, "utf-8")
    return directory


if __name__ == "__main__":
    if shutil.which("javac") is None:
        sys.exit("javac is not installed: apt-get install openjdk-17-jdk-headless")
    for path in sorted(build(Path(sys.argv[1] if len(sys.argv) > 1 else "maven")).iterdir()):
        print(path, path.stat().st_size)

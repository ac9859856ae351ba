"""Build the wheel and the source distribution: the same files give the same bytes.

    python .ci/dist.py [DIRECTORY]      default: dist

The time of everything inside is `SOURCE_DATE_EPOCH`, else that of the last commit, else the first that a zip file can hold.
Owners and permissions are fixed, and so is the version of the build backend, which pip fetches.
See https://reproducible-builds.org/specs/source-date-epoch/.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("cli", "converters", "registry", "schema")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
BACKEND = "setuptools==84.2.1"
BUILD = (
    "import sys; from setuptools import build_meta as backend; directory = sys.argv[1]; "
    "backend.build_sdist(directory); backend.build_wheel(directory)"
)
FIRST_ZIP_TIME = 315_532_800
"""1980-01-01, in seconds since 1970."""


def epoch() -> int:
    """The time of everything inside, in seconds since 1970."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "-C", str(REPOSITORY), "log", "-1", "--format=%ct"]
    try:
        return int(subprocess.run(command, capture_output=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return FIRST_ZIP_TIME


def copy_source(target: Path, time: int) -> None:
    """Copy what the build needs, with fixed times and permissions. No old `build/` gets into the wheel."""
    for package in PACKAGES:
        shutil.copytree(
            REPOSITORY / package, target / package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    for file in FILES:
        (target / file).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / file, target / file)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (time, time))


def run_backend(source: Path, scratch: Path, output: Path, time: int) -> None:
    """Run the pinned backend in a copy of the source."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", str(scratch / "backend"), BACKEND], check=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(scratch / "backend"),
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": str(time),
    }
    words = [sys.executable, "-c", BUILD, str(output)]
    done = subprocess.run(words, cwd=source, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{BACKEND} failed\n{done.stdout}{done.stderr}")


def repack(archive: Path, time: int) -> None:
    """Write a source distribution again: sorted, without owners, with one time."""
    buffer = io.BytesIO()
    with (
        tarfile.open(archive) as old,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    archive.write_bytes(gzip.compress(buffer.getvalue(), mtime=time))


def build(directory: Path) -> list[Path]:
    """Build both into a directory. Returns their paths."""
    os.umask(0o022)
    time = epoch()
    with tempfile.TemporaryDirectory() as scratch:
        source, output = Path(scratch, "source"), Path(scratch, "output")
        copy_source(source, time)
        output.mkdir()
        run_backend(source, Path(scratch), output, time)
        (archive,) = output.glob("*.tar.gz")
        repack(archive, time)
        directory.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(path, directory)) for path in sorted(output.iterdir())]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="?", default=REPOSITORY / "dist")
    for path in build(parser.parse_args().directory):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


if __name__ == "__main__":
    main()

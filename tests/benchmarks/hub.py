"""`hf download` of a file of 512 MiB from `reg serve` against `curl` of the same bytes from nginx, then their SHA-256.

`hf` checks sizes only. The peer hashes with coreutils' `sha256sum`, or with OpenSSL, which uses the processor's own
instructions for it. The third peer is huggingface_hub's own download function on the blob in nginx: the difference is that of the
servers. Needs `nginx` and `curl` from the distribution.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks import httpservers
from benchmarks.load import Server
from benchmarks.measure import Command, Row, Run, pairs, processor, rows, run
from benchmarks.pairing import scratch
from benchmarks.peers import installed
from onnxreg.registry import Registry
from onnxreg.registry.store.layout import blob_path
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

NAME = "acme/big"
MIB = 2**20
BLOB_MIB = 512
CURL = 'curl --fail --silent --show-error --output "$0" "$1"'
HTTP_GET = """
import sys
from huggingface_hub.file_download import http_get
with open(sys.argv[1], "wb") as file:
    http_get(sys.argv[2], file)
"""
PEERS = {
    "curl of nginx, sha256sum": ("sh", f'{CURL} && sha256sum "$0"'),
    "curl of nginx, openssl": ("sh", f'{CURL} && openssl dgst -sha256 "$0"'),
    "its http_get of nginx": ("python", HTTP_GET),
}
"""Interpreter and script of each peer; the arguments are the file and the URL of the blob."""
AIM = "<= 1.2"


def benchmark(cache: Path, count: int = 3) -> list[Row]:
    hf = installed(cache, "hf") / "hf"
    with scratch() as directory:
        path = _add_blob(Registry(directory / "home"))
        root = directory / "home"
        with httpservers.reg(root) as ours, httpservers.nginx(root) as theirs:
            return [
                row
                for peer in PEERS
                for row in _against(peer, hf, ours, f"{theirs.url}{path}", directory / "target", count)
            ]


def _add_blob(registry: Registry) -> str:
    """Publish a file that does not compress; return its path in the registry's tree."""
    with registry.workspace() as workspace:
        with (workspace / "model.onnx").open("wb") as file:
            for _ in range(BLOB_MIB):
                file.write(os.urandom(MIB))
        registry.add(Draft(NAME, workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)))
    return f"/{blob_path(registry.resolve(NAME).artifact.digest)}"


def _against(peer: str, hf: Path, ours: Server, url: str, target: Path, count: int) -> Iterator[Row]:
    """`--local-dir` as people type it; what `hf` keeps of its own is new each time too."""
    env = {**os.environ, "HF_ENDPOINT": ours.url, "HF_HOME": str(target / "hf")}
    env |= {"HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    download = [hf, "download", NAME, "model.onnx", "--local-dir", target, "--quiet"]
    interpreter, script = PEERS[peer]
    program = hf.with_name(interpreter) if interpreter == "python" else interpreter
    fetch = [program, "-c", script, target / "model.onnx", url]
    measured = pairs(
        lambda: _time(download, env, target), lambda: _time(fetch, env, target), count, warm_up=False
    )
    what = f"hf download of {BLOB_MIB} MiB, reg serve"
    yield from rows(what, peer, measured, AIM if peer.startswith("curl") else "")
    yield processor(what, peer, measured)


def _time(command: Command, env: dict[str, str], target: Path) -> Run:
    """Time a command that writes `model.onnx` into a fresh directory. SystemExit if the file is not whole."""
    target.mkdir()
    os.sync()
    try:
        measured = run(command, env)
        if (target / "model.onnx").stat().st_size != BLOB_MIB * MIB:
            raise SystemExit(f"{command[0]} downloaded another size")
        return measured
    finally:
        shutil.rmtree(target)

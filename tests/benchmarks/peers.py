"""The programs that the benchmarks compare with, each in an environment of its own below `.cache/peers`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from support import environments

ROOT = Path(__file__).parents[2]
PINS = str(ROOT / "constraints.txt")
EXPORTING = ("onnx", "onnxruntime", "onnxscript", "torch", "transformers", "safetensors")
PEERS: dict[str, tuple[str, ...]] = {
    "aws": ("awscli",),
    "dvc": ("dvc[s3]",),
    "hf": ("huggingface_hub",),
    "mlflow": ("mlflow", "boto3"),
    "oras": ("oras",),
    "olot": ("olot",),
    "openmed": ("-c", PINS, "openmed==3.1.0", *EXPORTING),
    "txtai": ("-c", PINS, "txtai", "onnxmltools", "skl2onnx", *EXPORTING),
    "optimum": ("torch==2.13.0", "optimum-onnx[onnxruntime]==0.1.0"),
    "sentences": ("torch==2.13.0", "optimum-onnx[onnxruntime]==0.1.0", "sentence-transformers==5.7.0"),
    "olive": ("-c", PINS, "olive-ai", "requests", *EXPORTING),
    "reg": ("-c", PINS, "--editable", f"{ROOT}[export]"),
}
"""What pip is told; transformers imports what else it finds, so that we have an environment of our own too. Optimum's holds
the transformers 4.57 that it asks for."""
PACKAGES = {
    "aws": "awscli",
    "hf": "huggingface_hub",
    "optimum": "optimum-onnx",
    "olive": "olive-ai",
    "sentences": "sentence-transformers",
}
"""The distribution that gives a peer its version, where the name is another one."""
OF_THE_SYSTEM = {
    "nginx": ["nginx", "-v"],
    "docker-registry": ["docker-registry", "--version"],
    "skopeo": ["skopeo", "--version"],
}
"""Peers that come from the distribution, and how each tells its version."""

PACKAGED = {
    **{name: name for name in ("docker-registry", "skopeo", "wrk", "chromium")},
    "nginx": "nginx-light",
    "node": "nodejs",
}
"""Programs that some groups need, and the packages of Debian that have them."""

VERSION = "import importlib.metadata as m, json, sys; print(json.dumps([*map(m.version, sys.argv[1:])]))"


def installed(cache: Path, peer: str) -> Path:
    """The programs of a peer's environment, which is made if it does not exist."""
    return environments.installed(cache.absolute() / "peers" / peer, *PEERS[peer])


def install(cache: Path) -> None:
    """Make every environment, so that no group takes the time for it; say which cannot be made."""
    for peer in PEERS:
        try:
            installed(cache, peer)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"{peer} cannot be installed: {error}", file=sys.stderr, flush=True)


def versions(cache: Path) -> dict[str, str]:
    """The versions of all peers that are installed."""
    found = {}
    for peer in PEERS.keys() - {"reg"}:
        python = cache / "peers" / peer / "bin" / "python"
        if (cache / "peers" / peer / ".installed").exists():
            command = [python, "-c", VERSION, PACKAGES.get(peer, peer)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            (found[peer],) = json.loads(done.stdout)
    for peer, command in OF_THE_SYSTEM.items():
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[peer] = (done.stdout + done.stderr).strip().split()[-1].rpartition("/")[2]
    return dict(sorted(found.items()))

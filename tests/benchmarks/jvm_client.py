"""The JVM client beside curl and sha256sum: `PYTHONPATH=tests python -m benchmarks.jvm_client`.

It prints the figures of examples/jvm-client/README.md. Both read 100 MB from nginx on this machine; the client
resolves, verifies and syncs as well. Resolving is a conditional request and the choice, in a JVM that runs already.
"""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from support import jvm
from support.registries.for_devices import blob, publish
from support.servers.nginx import nginx

from onnxreg.registry import Registry
from onnxreg.registry.store.directory.directory import DirectoryRegistry

NAME = "acme/pii"
SIZE = 100_000_000
BLOCK = "server { listen 443 ssl http2; root /srv/models; access_log off; }"
QUESTION = {"query": {"certified": True, "where": "size <= 200MB"}, "device": {"ort": "1.23.2"}}


def download(root: Path, rounds: int = 7) -> tuple[float, float]:
    """Seconds of an update into an empty directory, and of curl and sha256sum; medians."""
    registry = Registry(root / "home")
    DirectoryRegistry.create(registry.store.root)
    files = publish(registry, root / "draft", "1.0.0", SIZE)
    path = blob(registry, files["model_int8.onnx"]).relative_to(registry.store.root)
    ours, theirs = [], []
    with (
        nginx(root / "nginx", registry.store.root, BLOCK) as site,
        jvm.running("-Xmx32m") as call,
    ):
        for _ in range(rounds):
            begin = time.perf_counter()
            outcome = call(site.url, root / "store", "fetch", NAME, QUESTION)
            ours.append(time.perf_counter() - begin)
            assert outcome["version"] == "1.0.0"
            shutil.rmtree(root / "store")
            target = root / "curl"
            begin = time.perf_counter()
            subprocess.run(["curl", "-sS", "-o", target, f"{site.url}/{path}"], check=True)
            subprocess.run(["sha256sum", target], check=True, stdout=subprocess.DEVNULL)
            theirs.append(time.perf_counter() - begin)
            target.unlink()
    return median(ours[2:]), median(theirs[2:])


def resolving(root: Path, rounds: int = 300) -> float:
    """Milliseconds of a resolve with a conditional request, in a warm JVM; the median."""
    registry = Registry(root / "home")
    DirectoryRegistry.create(registry.store.root)
    for number in range(40):
        publish(registry, root / f"draft{number}", f"1.{number}.0", 1000)
    with nginx(root / "nginx", registry.store.root, BLOCK) as site, jvm.running() as call:
        outcome = call(site.url, root / "store", "loop", NAME, QUESTION, rounds)
    return float(median(outcome["microseconds"][rounds // 2 :])) / 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for part in ("download", "resolve"):
            (root / part).mkdir()
        ours, theirs = download(root / "download")
        print(
            f"download and verify 100 MB: {ours:.3f} s; curl and sha256sum: {theirs:.3f} s; speed {theirs / ours:.2f}"
        )
        print(f"resolve: {resolving(root / 'resolve'):.2f} ms")


if __name__ == "__main__":
    main()

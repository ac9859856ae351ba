"""Push and pull of a model of 256 MiB against clients of an OCI registry: `oras` for Python, and skopeo, which is in Go.

`publish` compares `reg publish` with `skopeo copy`, both into the same `docker-registry`. For the others no place holds both kinds of registry. So each pushes to a real server of its own, SeaweedFS and the distribution's
`docker-registry`, and pulls from one that sends plain files: `reg serve` and the same `docker-registry`. The processor
time is the client's alone. Needs `docker-registry` and `skopeo` from the distribution.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import httpservers
from benchmarks.clients import NAME, QUARTER, REG, Client, Input, make_input, reg
from benchmarks.load import Server, free_port, serving
from benchmarks.measure import Command, Row, run
from benchmarks.pairing import pulls_from, pushes, scratch
from benchmarks.peers import installed
from benchmarks.remotes import bucket
from onnxreg.registry.store.streams import measure

CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {0}}}}}
http: {{addr: "127.0.0.1:{1}"}}
log: {{level: error}}
"""
PUSH = """
import os, sys
from oras.client import OrasClient
os.chdir(sys.argv[2])
OrasClient(insecure=True).push(target=sys.argv[1], files=sorted(os.listdir()), disable_path_validation=True)
"""
PULL = """
import sys
from oras.client import OrasClient
OrasClient(insecure=True).pull(target=sys.argv[1], outdir=sys.argv[2])
"""


@contextmanager
def registry() -> Iterator[Server]:
    if shutil.which("docker-registry") is None:
        raise SystemExit("docker-registry is missing: apt-get install docker-registry")
    with scratch() as directory:
        port, config = free_port(), directory / "config.yml"
        config.write_text(CONFIG.format(directory / "data", port))
        with serving(["docker-registry", "serve", config], port, "/v2/") as server:
            yield server


def oras(cache: Path, made: Input) -> Client:
    python = installed(cache, "oras") / "python"
    return Client(
        "oras (Python)",
        dict(os.environ),
        lambda place: [python, "-c", PUSH, place, made.files],
        lambda place, target: [python, "-c", PULL, place, target],
    )


def skopeo(made: Input) -> Client:
    """It copies images: the files are the layers of one in an OCI layout, and stay as they are."""
    layout = made.fresh()
    _lay_out(made, layout)
    copy: list[str] = ["skopeo", "--insecure-policy", "copy", "--quiet", "--preserve-digests"]

    def pull(place: str, target: Path) -> Command:
        return [*copy, "--src-tls-verify=false", f"docker://{place}", f"dir:{target}"]

    return Client(
        "skopeo",
        dict(os.environ),
        lambda place: [*copy, "--dest-tls-verify=false", f"oci:{layout}", f"docker://{place}"],
        pull,
    )


def _lay_out(made: Input, layout: Path) -> None:
    """An OCI image layout of the files, linked and not copied."""
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    found = measure(made.files, sorted(path.name for path in made.files.iterdir()))
    for name, described in found.items():
        (blobs / described.digest.hex).hardlink_to(made.files / name)
    kind = "application/vnd.oci.image.{}.v1+json".format

    def put(media: str, value: object) -> dict[str, object]:
        (layout / "next").write_text(json.dumps(value))
        described = measure(layout, ["next"])["next"]
        (layout / "next").rename(blobs / described.digest.hex)
        return {"mediaType": media, "digest": str(described.digest), "size": described.size}

    layers = [
        {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": str(each.digest),
            "size": each.size,
        }
        for each in found.values()
    ]
    config = put(
        kind("config"),
        {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [str(each.digest) for each in found.values()]},
        },
    )
    manifest = put(
        kind("manifest"),
        {"schemaVersion": 2, "mediaType": kind("manifest"), "config": config, "layers": layers},
    )
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def benchmark(cache: Path, part: str, count: int = 3) -> list[Row]:
    with make_input(QUARTER) as made:
        if part == "publish":
            return list(_publish(made, count))
        return list(_against(oras(cache, made) if part == "oras" else skopeo(made), made, count))


def _publish(made: Input, count: int) -> Iterator[Row]:
    """Each into a new repository of one server. Ours sends an index, two manifests and the bill of materials too."""
    reg_publish = replace(
        reg(made, "reg publish", dict(os.environ)),
        push=lambda place: [REG, "--registry", made.home, "push", NAME, f"oci://{place}"],
    )
    with registry() as server:
        yield from pushes(reg_publish, skopeo(made), lambda: image(server), made, "<= 1", count)


def image(server: Server) -> str:
    """A new repository with a tag."""
    return f"{server.url.removeprefix('http://')}/acme/{secrets.token_hex(6)}:latest"


def _against(theirs: Client, made: Input, count: int) -> Iterator[Row]:
    with registry() as server, bucket("seaweedfs") as (stored, env), httpservers.reg(made.home) as served:
        yield from pushes(
            reg(made, "reg, seaweedfs", env), theirs, stored.fresh, made, "<= 1", count, lambda: image(server)
        )
        ours, kept = reg(made, "reg serve", dict(os.environ)), image(server)
        run(theirs.push(kept), theirs.env)
        yield from pulls_from({ours: served.url, theirs: kept}, made, "<= 1", count)

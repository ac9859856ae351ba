"""Push of a model of 256 MiB into a real OCI registry, against skopeo, which is in Go.

Both into the same `docker-registry`. The processor time is the client's alone. Needs `docker-registry` and `skopeo` from
the distribution.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.clients import NAME, QUARTER, REG, Client, Input, make_input, pushes, reg, scratch
from benchmarks.load import Server, free_port, serving
from benchmarks.measure import Row
from onnxreg.registry.store.streams import measure

CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {0}}}}}
http: {{addr: "127.0.0.1:{1}"}}
log: {{level: error}}
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


def skopeo(made: Input) -> Client:
    """It copies images: the files are the layers of one in an OCI layout, and stay as they are."""
    layout = made.fresh()
    _lay_out(made, layout)
    copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false"]
    return Client(
        "skopeo", dict(os.environ), lambda place: [*copy, f"oci:{layout}", f"docker://{place}"], pull=None
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

    digests, layer = [str(each.digest) for each in found.values()], "application/vnd.oci.image.layer.v1.tar"
    layers = [{"mediaType": layer, "digest": str(each.digest), "size": each.size} for each in found.values()]
    about = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": digests}}
    media = {"schemaVersion": 2, "mediaType": kind("manifest")}
    manifest = put(kind("manifest"), {**media, "config": put(kind("config"), about), "layers": layers})
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def benchmark(count: int = 3) -> list[Row]:
    """Each into a new repository of one server. Ours sends an index, two manifests and the bill of materials too."""
    with make_input(QUARTER) as made, registry() as server:
        ours = reg(made, "reg publish", dict(os.environ))
        ours = replace(
            ours, push=lambda place: [REG, "--registry", made.home, "push", NAME, f"oci://{place}"]
        )
        host = server.url.removeprefix("http://")
        return pushes(
            ours, skopeo(made), lambda: f"{host}/acme/{secrets.token_hex(6)}:latest", made, "<= 1", count
        )

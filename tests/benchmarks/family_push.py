"""A family of 320 heads in three precisions at a remote: what its push costs, and that of one updated head. The table in
docs/families.md.

    python tests/benchmarks/family_push.py

Seconds are of whole processes, medians of three pairs in turn with `aws s3 cp --recursive` (SeaweedFS) and `hf upload` (the
emulator of the Hub) of the same files; requests are counted in between. The peers live below `.cache`, as those of remotes.py.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.registries.family_drafts import NAME, write_family
from support.servers import hub, s3servers
from support.servers.faults import proxy

from benchmarks.clients import REG
from benchmarks.measure import Row, Run, pairs, row, run, table
from benchmarks.peers import installed
from onnxreg.registry import Registry

HEADS, SIZE, PAIRS = 320, 15_000, 3
CACHE = Path(__file__).parents[2] / ".cache"
Env = dict[str, str]
Upload = Callable[[Path, str], Run]
"""How a peer sends a directory to a place."""


@dataclass(frozen=True)
class Input:
    """A registry with two versions, one head apart; the files of the first one, and those that are new in the second."""

    home: Path
    files: Path
    update: Path

    def push(self, place: str, version: str, env: dict[str, str]) -> Run:
        return run([REG, "--registry", self.home, "push", f"{NAME}:{version}", place], env)


@contextmanager
def make_input() -> Iterator[Input]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        root = Path(directory)
        made, registry = (
            Input(*(root / name for name in ("home", "files", "update"))),
            Registry(root / "home"),
        )
        for version, seeds in (("1.0.0", {}), ("1.1.0", {"species001": "b"})):
            draft = write_family(root / version, HEADS, seeds, size=SIZE)
            for path in (path for path in draft.paths() if not seeds or "species001" in path):
                target = (made.update if seeds else made.files) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(draft.root / path, target)
            registry.add(draft, version)
        yield made


def compare(
    what: str,
    peer: str,
    made: Input,
    place: Callable[[], str],
    upload: Upload,
    env: Env,
) -> Iterator[Row]:
    """Both pushes against the peer's upload of the same files, each time where nothing or the first version is."""
    first = pairs(lambda: made.push(place(), "1.0.0", env), lambda: upload(made.files, place()), PAIRS)
    yield row(f"{what}, all", peer, [(a.wall, b.wall) for a, b in first], "s", "")

    def update() -> Run:
        there = place()
        made.push(there, "1.0.0", env)
        return made.push(there, "1.1.0", env)

    later = pairs(update, lambda: upload(made.update, place()), PAIRS)
    yield row(f"{what}, one head", peer, [(a.wall, b.wall) for a, b in later], "s", "")


def count(
    what: str, peer: str, made: Input, place: Callable[[], str], upload: Upload, env: Env, seen: list[Any]
) -> Iterator[Row]:
    """The requests of both, one after the other: all files, then those of one head."""

    def asked(work: Callable[[], Run]) -> float:
        before = len(seen)
        work()
        return float(len(seen) - before)

    there = place()
    ours = [asked(lambda: made.push(there, "1.0.0", env)), asked(lambda: made.push(there, "1.1.0", env))]
    there = place()
    theirs = [asked(lambda: upload(made.files, there)), asked(lambda: upload(made.update, there))]
    for part, each in zip(("all", "one head"), zip(ours, theirs, strict=True), strict=True):
        yield row(f"{what}, {part}", peer, [each], "requests", "")


def at_s3(made: Input) -> Iterator[Row]:
    program = installed(CACHE, "aws") / "aws"
    with tempfile.TemporaryDirectory() as directory, s3servers.seaweedfs(Path(directory)) as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        env |= server.environment | {"AWS_DEFAULT_REGION": "us-east-1"}

        def upload(files: Path, place: str) -> Run:
            return run([program, "s3", "cp", "--recursive", "--only-show-errors", files, place], env)

        yield from compare("S3", "aws s3 cp", made, server.fresh, upload, env)
        with proxy(server.endpoint) as between:
            env["AWS_ENDPOINT_URL"] = between.url
            yield from count("S3", "aws s3 cp", made, server.fresh, upload, env, between.seen)


def at_the_hub(made: Input) -> Iterator[Row]:
    program = installed(CACHE, "hf") / "hf"
    with tempfile.TemporaryDirectory() as directory, hub.running(Path(directory) / "lfs") as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        env |= {"HF_ENDPOINT": server.endpoint, "HF_TOKEN": hub.TOKEN, "HF_HOME": f"{directory}/home"}
        env |= {"HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        env |= {"HF_HUB_DISABLE_XET": "1"}

        def fresh() -> str:
            """The emulator keeps the bytes of all repositories together, and is not sent those that it has."""
            shutil.rmtree(server.root, ignore_errors=True)
            server.root.mkdir()
            return f"hf://acme/{secrets.token_hex(6)}"

        def upload(files: Path, place: str) -> Run:
            return run([program, "upload", place.removeprefix("hf://"), files, "--quiet"], env)

        yield from compare("Hub", "hf upload", made, fresh, upload, env)
        yield from count("Hub", "hf upload", made, fresh, upload, env, server.requests)


def main() -> None:
    with make_input() as made:
        for path in (made.files, made.update):
            files = [file for file in path.rglob("*") if file.is_file()]
            print(
                f"{path.name}: {len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.2f} MB"
            )
        print(table([*at_s3(made), *at_the_hub(made)]))


if __name__ == "__main__":
    main()

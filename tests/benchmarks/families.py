"""A family of 320 heads in three precisions at a remote: what its push costs, and that of one updated head. The table in
docs/families.md.

    python tests/benchmarks/families.py

Seconds are of whole processes, medians of three pairs in turn with `aws s3 cp --recursive` (SeaweedFS) and `hf upload` (the
emulator of the Hub) of the same files; requests are counted in between. The peers live below `.cache/bench`, as those of remotes.py.
"""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from measure import Row, Run, pairs, row, run, table
from remotes import REG, installed

from onnxreg.registry import Registry

sys.path[:0] = [str(Path(__file__).parents[1] / place) for place in ("servers", "registry")]
import hub
import s3servers
from families import NAME, write_family
from faults import proxy

HEADS, SIZE, PAIRS = 320, 15_000, 3
CACHE = Path(__file__).parents[2] / ".cache"


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
        made = Input(*(Path(directory) / name for name in ("home", "files", "update")))
        registry = Registry(made.home)
        registry.add(write_family(made.files, HEADS, size=SIZE), "1.0.0")
        draft = write_family(Path(directory) / "next", HEADS, {"species001": "b"}, size=SIZE)
        for path in (path for path in draft.paths() if "species001" in path):
            (made.update / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(draft.root / path, made.update / path)
        registry.add(draft, "1.1.0")
        yield made


def compare(
    what: str,
    peer: str,
    made: Input,
    place: Callable[[], str],
    upload: Callable[[Path, str], Run],
    env: dict[str, str],
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


def at_s3(made: Input) -> Iterator[Row]:
    program = installed(CACHE, "aws")
    with tempfile.TemporaryDirectory() as directory, s3servers.seaweedfs(Path(directory)) as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        env |= server.environment | {"AWS_DEFAULT_REGION": "us-east-1"}
        copy = [program, "s3", "cp", "--recursive", "--only-show-errors"]
        yield from compare(
            "S3", "aws s3 cp", made, server.fresh, lambda files, place: run([*copy, files, place], env), env
        )
        with proxy(server.endpoint) as between:
            env["AWS_ENDPOINT_URL"] = between.url
            there, elsewhere = server.fresh(), server.fresh()
            for version, files in (("1.0.0", made.files), ("1.1.0", made.update)):
                counts = []
                for work in (
                    lambda version=version: made.push(there, version, env),
                    lambda files=files: run([*copy, files, elsewhere], env),
                ):
                    before = len(between.seen)
                    work()
                    counts.append(len(between.seen) - before)
                yield row(f"S3, {version}, requests", "aws s3 cp", [(counts[0], counts[1])], "", "")


def at_the_hub(made: Input) -> Iterator[Row]:
    program = installed(CACHE, "hf")
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
            return run([program, "upload", place.removeprefix("hf://"), str(files), "--quiet"], env)

        yield from compare("Hub", "hf upload", made, fresh, upload, env)
        there, elsewhere = fresh(), f"hf://acme/{secrets.token_hex(6)}"
        for version, files in (("1.0.0", made.files), ("1.1.0", made.update)):
            counts = []
            for ours in (True, False):
                server.requests.clear()
                made.push(there, version, env) if ours else upload(files, elsewhere)
                counts.append(len(server.requests))
            yield row(f"Hub, {version}, requests", "hf upload", [(counts[0], counts[1])], "", "")


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

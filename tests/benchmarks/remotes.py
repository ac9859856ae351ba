"""Push and pull of a model of up to 1 GiB against `aws s3 cp`, `dvc` and `hf`: the same files, one server process for both.

Clients and server share the machine, so that much of the wall time is the server's; the processor time is the client's
own. A push goes where nothing is yet, a pull into an empty directory. Ours ends durable; `aws s3 cp` and `sync` in one
is the peer that does so too. The peers live in environments of their own below `.cache/peers`.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from support.servers import hub, s3servers

from benchmarks.clients import (
    HALF,
    LARGE,
    Client,
    Input,
    aws,
    dvc,
    hf,
    make_input,
    pulls,
    pushes,
    reg,
    rows_of,
    scratch,
)
from benchmarks.measure import Row, pairs
from benchmarks.peers import installed


@contextmanager
def bucket() -> Iterator[tuple[s3servers.Server, dict[str, str]]]:
    """A fresh SeaweedFS (it gives back no room and has 25 GiB), and what its clients find in their environment."""
    with scratch() as directory, s3servers.seaweedfs(directory) as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        yield server, env | server.environment | {"AWS_DEFAULT_REGION": "us-east-1"}


def s3(
    cache: Path, made: Input, count: int, peer: str, durable: bool = False, aim: str = "<= 1"
) -> Iterator[Row]:
    """Both of a pair have the same server. A `durable` peer is made to end where ours does, with everything verified and
    on the disk; it is compared in pulls alone."""
    with bucket() as (server, env):
        make, program = {"aws": aws, "dvc": dvc}[peer], installed(cache, peer) / peer
        ours, theirs = reg(made, "reg, seaweedfs", env), make(program, made, env, durable)
        if not durable:
            yield from pushes(ours, theirs, server.fresh, made, aim, count)
        yield from pulls(ours, theirs, server.fresh, made, aim, count)


def on_the_hub(cache: Path, made: Input, count: int, xet: bool) -> Iterator[Row]:
    """What was sent through Xet cannot be fetched from the emulator, so then only pushes are compared."""
    program = installed(cache, "hf") / "hf"
    with scratch() as directory, hub.running(directory / "lfs") as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        env |= {"HF_ENDPOINT": server.endpoint, "HF_TOKEN": hub.TOKEN, "HF_HOME": str(directory / "home")}
        env |= {"HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        env |= {"FILES": str(made.files)} | ({} if xet else {"HF_HUB_DISABLE_XET": "1"})
        server.xet = directory / "xet" if xet else None
        ours, theirs = hub_reg(made, env), hf(program, env)

        def fresh() -> str:
            return f"acme/{secrets.token_hex(6)}"

        def forgotten() -> str:
            """The emulator keeps the bytes of all repositories together, and is not sent those that it has."""
            for place in (server.root, *([server.xet] if server.xet else ())):
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
            return fresh()

        yield from pushes(ours, theirs, forgotten, made, "<= 1", count)
        if not xet:
            yield from pulls(ours, theirs, fresh, made, "<= 1", count)


def hub_reg(made: Input, env: dict[str, str]) -> Client:
    client = reg(made, "reg, Hub emulator", env)
    push, pull = client.push, client.pull
    return replace(
        client, push=lambda to: push(f"hf://{to}"), pull=lambda at, target: pull(f"hf://{at}", target)
    )


BY_OBSTORE = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import onnxreg.cli.main, pydantic, botocore.session
import obstore
from obstore.store import S3Store
root, place = Path(sys.argv[1]), sys.argv[2].removeprefix("s3://")
bucket, _, prefix = place.partition("/")
client = S3Store(bucket, prefix=prefix, client_options={"allow_http": True}, virtual_hosted_style_request=False)
with ThreadPoolExecutor(8) as pool:
    send = lambda path: obstore.put(client, str(path.relative_to(root)), path.read_bytes(), mode="create")
    list(pool.map(send, [path for path in root.rglob("*") if path.is_file()]))
"""
"""The client library alone: the same imports, one conditional PUT for each file."""


def small_files(cache: Path, made: Input, count: int) -> Iterator[Row]:
    """A whole push beside the client library alone."""
    del cache
    with bucket() as (server, env):
        ours = reg(made, "reg, seaweedfs", env)
        push = [sys.executable, "-c", BY_OBSTORE, made.files]
        usual = replace(ours, name="obstore alone", push=lambda place: [*push, place])
        measured = pairs(
            lambda: ours.time_push(server.fresh()), lambda: usual.time_push(server.fresh()), count
        )
        yield from rows_of("push of 300 small files,", ours, usual, measured, "<= 1.05")


PARTS: dict[str, Callable[[Path, Input, int], Iterator[Row]]] = {
    "aws": partial(s3, peer="aws"),
    "aws, sync": partial(s3, peer="aws", durable=True),
    "dvc": partial(s3, peer="dvc", aim="<= 0.67"),
    "dvc, verified": partial(s3, peer="dvc", durable=True, aim="<= 0.67"),
    "hub": partial(on_the_hub, xet=False),
    "xet": partial(on_the_hub, xet=True),
    "small files": small_files,
}


def benchmark(cache: Path, part: str, count: int = 3) -> list[Row]:
    """Less than 1 GiB if a peer or a server is slow, so that all groups fit in an hour."""
    large = () if part == "small files" else LARGE if part in ("aws", "xet") else HALF
    with make_input(large) as made:
        return list(PARTS[part](cache, made, count))

"""Push and pull of a model of up to 1 GiB against `aws s3 cp`, `dvc` and `hf`: the same files, one server process for both.

Clients and server share the machine, so that much of the wall time is the server's; the processor time is the client's
own. A push goes where nothing is yet, a pull into an empty directory. Ours ends durable; `aws s3 cp` and `sync` in one
is the peer that does so too. The peers live in environments of their own below `.cache/peers`.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from support.servers import hub, s3servers
from support.servers.faults import proxy

from benchmarks.clients import (
    HALF,
    LARGE,
    QUARTER,
    Client,
    Input,
    aws,
    aws_sync,
    dvc,
    hf,
    make_input,
    mlflow,
    reg,
)
from benchmarks.measure import Row, Run, pairs, run
from benchmarks.pairing import pulls, pushes, rows_of, scratch
from benchmarks.peers import installed


@contextmanager
def bucket(kind: str) -> Iterator[tuple[s3servers.Server, dict[str, str]]]:
    """A fresh server (SeaweedFS gives back no room and has 25 GiB), and what its clients find in their environment."""
    serve = {"seaweedfs": s3servers.seaweedfs, "ministack": s3servers.ministack}[kind]
    with scratch() as directory, serve(directory) as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        yield server, env | server.environment | {"AWS_DEFAULT_REGION": "us-east-1"}


DURABLE = frozenset({"aws, sync", "dvc, verified"})
"""Peers that are made to end where ours does, with everything on the disk."""


def client_of(peer: str, cache: Path, made: Input, env: dict[str, str]) -> Client:
    if peer.startswith("dvc"):
        return dvc(installed(cache, "dvc") / "dvc", made, env, whole=peer in DURABLE)
    if peer == "mlflow":
        return mlflow(installed(cache, "mlflow") / "python", made, env)
    program = installed(cache, "aws") / "aws"
    return (
        aws_sync(program, made, env) if peer == "sync" else aws(program, made, env, sync=peer == "aws, sync")
    )


def s3(cache: Path, made: Input, count: int, kind: str, peer: str, aim: str = "<= 1") -> Iterator[Row]:
    """Both of a pair have the same server; what waits for the disk is compared in pulls alone."""
    with bucket(kind) as (server, env):
        ours, theirs = reg(made, f"reg, {kind}", env), client_of(peer, cache, made, env)
        if peer not in DURABLE:
            yield from pushes(ours, theirs, server.fresh, made, aim, count)
        yield from pulls(ours, theirs, server.fresh, made, aim, count)


def again(cache: Path, made: Input, count: int, peer: str) -> Iterator[Row]:
    """What there is to do once all has been pushed and pulled: first nothing, then one small file that changed."""
    with bucket("seaweedfs") as (server, env):
        clients = reg(made, "reg, seaweedfs", env), client_of(peer, cache, made, env)
        places = {client.name: (server.fresh(), made.fresh()) for client in clients}

        def push(client: Client, changed: bool) -> Run:
            place, _ = places[client.name]
            if changed:
                made.change()
                client.note()
            client.prepare(place, Path())
            return run(client.push(place), client.env)

        def pull(client: Client, changed: bool) -> Run:
            place, target = places[client.name]
            if changed:
                push(client, True)
            client.prepare(place, target)
            return run(client.pull(place, target), client.env)

        ours, theirs = clients
        for verb, work in (("push", push), ("pull", pull)):
            for what, changed in (("nothing changed", False), ("one small file changed", True)):
                measured = pairs(
                    lambda work=work, changed=changed: work(ours, changed),
                    lambda work=work, changed=changed: work(theirs, changed),
                    count,
                )
                yield from rows_of(f"{verb} again of {made.amount}, {what},", ours, theirs, measured, "<= 1")
        for _, target in places.values():
            shutil.rmtree(target)


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
    return Client(
        client.name,
        env,
        lambda place: client.push(f"hf://{place}"),
        lambda place, target: client.pull(f"hf://{place}", target),
    )


def unchanged(cache: Path, made: Input, count: int) -> Iterator[Row]:
    """What is asked of a server where there is nothing to do, in requests."""
    with scratch() as directory, s3servers.ministack(directory) as server, proxy(server.endpoint) as between:
        env = {**os.environ, **server.environment, "AWS_DEFAULT_REGION": "us-east-1"}
        env |= {"AWS_ENDPOINT_URL": between.url}
        program = installed(cache, "aws") / "aws"
        ours, sync = reg(made, "reg", env), [program, "s3", "sync", "--only-show-errors"]
        place, copy = server.fresh(), server.fresh()
        target, mirror = made.fresh(), made.fresh()
        for verb, mine, theirs in (
            ("push", ours.push(place), [*sync, made.files, copy]),
            ("pull", ours.pull(place, target), [*sync, copy, mirror]),
        ):
            asked = []
            for command in (mine, theirs):
                run(command, env)
                before = len(between.seen)
                run(command, env)
                asked.append(float(len(between.seen) - before))
            ratio = asked[0] / asked[1]
            aim = "<= 3 requests" if verb == "push" else "1 request"
            yield Row(
                f"{verb} of an unchanged model", "aws s3 sync", *asked, ratio, ratio, ratio, "requests", aim
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
    with bucket("seaweedfs") as (server, env):
        ours = reg(made, "reg, seaweedfs", env)
        usual = replace(
            ours,
            name="obstore alone",
            push=lambda place: [sys.executable, "-c", BY_OBSTORE, made.files, place],
        )
        measured = pairs(
            lambda: ours.time_push(server.fresh()), lambda: usual.time_push(server.fresh()), count
        )
        yield from rows_of("push of 300 small files,", ours, usual, measured, "<= 1.05")


PARTS: dict[str, Callable[[Path, Input, int], Iterator[Row]]] = {
    "aws": partial(s3, kind="seaweedfs", peer="aws"),
    "aws, sync": partial(s3, kind="seaweedfs", peer="aws, sync"),
    "dvc": partial(s3, kind="seaweedfs", peer="dvc", aim="<= 0.67"),
    "dvc, verified": partial(s3, kind="seaweedfs", peer="dvc, verified", aim="<= 0.67"),
    "mlflow": partial(s3, kind="seaweedfs", peer="mlflow"),
    "ministack": partial(s3, kind="ministack", peer="aws"),
    "hub": partial(on_the_hub, xet=False),
    "xet": partial(on_the_hub, xet=True),
    "unchanged": unchanged,
    "again, sync": partial(again, peer="sync"),
    "again, dvc": partial(again, peer="dvc"),
    "small files": small_files,
}


SIZES: Mapping[str, Sequence[int]] = {
    "small files": (),
    **dict.fromkeys(("aws, sync", "dvc", "dvc, verified", "hub"), HALF),
    **dict.fromkeys(("mlflow", "ministack", "unchanged", "again, sync", "again, dvc"), QUARTER),
}
"""MiB of the large files, if not `LARGE`: less if a peer or a server is slow, so that all groups fit in an hour."""


def benchmark(cache: Path, part: str, count: int = 3) -> list[Row]:
    with make_input(SIZES.get(part, LARGE)) as made:
        return list(PARTS[part](cache, made, count))

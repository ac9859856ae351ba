"""Push and pull of a model of 1 GiB against `aws s3 cp`, `dvc` and `hf`: the same files, one server process for both.

Clients and server share the machine, so that much of the wall time is the server's; the processor time is the client's
own. A push goes where nothing is yet, a pull into an empty directory. Ours ends durable; `aws s3 cp` and `sync` in one
is the peer that does so too. The peers live in environments of their own below `.cache/bench`.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from measure import Command, Row, Run, pairs, processor, rows, run, table

from onnxreg.registry import Registry
from onnxreg.schema.draft import Draft, DraftArtifact, DraftFile

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
import hub
import s3servers
from faults import proxy

MIB = 2**20
LARGE = (512, 336, 166)
"""MiB of the large files."""
SMALL = 300
NAME = "acme/set"
REG = Path(sys.executable).with_name("reg")
PEERS = {"aws": "awscli", "dvc": "dvc[s3]", "hf": "huggingface_hub", "mlflow": "mlflow"}


def installed(cache: Path, program: str) -> Path:
    """A peer's program in an environment of its own."""
    home = cache / "bench" / program
    if not (home / "bin" / program).exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", PEERS[program]], check=True)
    return home / "bin" / program


@dataclass(frozen=True)
class Input:
    """The files as a directory, for the peers, and the registry that holds them as one version, for us."""

    files: Path
    home: Path
    scratch: Path

    @property
    def size(self) -> int:
        return _size(self.files)

    def fresh(self) -> Path:
        """A path in the scratch directory where nothing is."""
        return self.scratch / secrets.token_hex(6)


@contextmanager
def make_input() -> Iterator[Input]:
    """Three large files and 300 of 4 to 64 KiB, none of which compresses."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        made = Input(*(Path(directory) / name for name in ("files", "home", "scratch")))
        made.files.mkdir()
        made.scratch.mkdir()
        sizes = {f"large-{number}.bin": mebibytes * MIB for number, mebibytes in enumerate(LARGE)}
        sizes |= {f"small-{number:03}.bin": 4096 + number * 60 * 1024 // SMALL for number in range(SMALL)}
        for name, size in sizes.items():
            with (made.files / name).open("wb") as file:
                for start in range(0, size, MIB):
                    file.write(os.urandom(min(MIB, size - start)))
        registry = Registry(made.home)
        with registry.workspace() as workspace:
            for name in sizes:
                shutil.copyfile(made.files / name, workspace / name)
            first, *others = sizes
            companions = tuple(DraftFile("companion", name) for name in others)
            registry.add(Draft(NAME, workspace, (DraftArtifact("onnx", "float32", first),), companions))
        yield made


def _size(directory: Path) -> int:
    """Bytes of the files in a directory, those of several names once."""
    found = [path.lstat() for path in directory.rglob("*") if path.is_file()]
    return sum({status.st_ino: status.st_size for status in found}.values())


@dataclass(frozen=True)
class Client:
    """How one program pushes to a place and pulls from it into a directory that does not exist yet."""

    name: str
    env: dict[str, str]
    push: Callable[[str], Command]
    pull: Callable[[str, Path], Command]
    prepare: Callable[[str, Path], None] = lambda place, target: None

    def time_push(self, place: str) -> Run:
        self.prepare(place, Path())
        os.sync()
        return run(self.push(place), self.env)

    def time_pull(self, place: str, target: Path, size: int) -> Run:
        """SystemExit where fewer bytes arrived than the files have."""
        self.prepare(place, target)
        os.sync()
        try:
            done = run(self.pull(place, target), self.env)
            if _size(target) < size:
                raise SystemExit(f"{self.name} pulled {_size(target)} of {size} bytes")
            return done
        finally:
            shutil.rmtree(target, ignore_errors=True)


def pushes(ours: Client, theirs: Client, fresh: Callable[[], str], aim: str, count: int) -> list[Row]:
    measured = pairs(lambda: ours.time_push(fresh()), lambda: theirs.time_push(fresh()), count)
    return _rows("push", ours, theirs, measured, aim)


def pulls(
    ours: Client, theirs: Client, fresh: Callable[[], str], made: Input, aim: str, count: int
) -> list[Row]:
    """Each client pulls what it pushed, untimed."""
    places = {client.name: fresh() for client in (ours, theirs)}
    for client in (ours, theirs):
        client.prepare(places[client.name], Path())
        run(client.push(places[client.name]), client.env)

    def pull(client: Client) -> Run:
        return client.time_pull(places[client.name], made.fresh(), made.size)

    return _rows("pull", ours, theirs, pairs(lambda: pull(ours), lambda: pull(theirs), count), aim)


def _rows(verb: str, ours: Client, theirs: Client, measured: list[tuple[Run, Run]], aim: str) -> list[Row]:
    what = f"{verb} of 1 GiB, {ours.name}"
    return [*rows(what, theirs.name, measured, aim), processor(what, theirs.name, measured)]


def reg(made: Input, name: str, env: dict[str, str]) -> Client:
    return Client(
        name,
        env,
        lambda place: [REG, "--registry", made.home, "push", NAME, place],
        lambda place, target: [REG, "--registry", target, "pull", NAME, place],
    )


def aws(program: Path, made: Input, env: dict[str, str], sync: bool = False) -> Client:
    copy = f"{program} s3 cp --recursive --only-show-errors"
    after = ' && sync -f "$1"' if sync else ""
    return Client(
        "aws s3 cp + sync" if sync else "aws s3 cp",
        env,
        lambda place: ["sh", "-c", f'{copy} "$0" "$1"', made.files, place],
        lambda place, target: ["sh", "-c", f'{copy} "$0" "$1"{after}', place, target],
    )


def dvc(program: Path, made: Input, env: dict[str, str]) -> Client:
    """A repository whose cache holds the files already; a pull begins with the repository alone, and links into its cache."""
    work = made.scratch / "dvc"
    config = made.scratch / "aws-config"  # dvc takes no device for one
    config.touch()
    env = {**env, "DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(made.scratch / "dvc-site")}
    env["AWS_CONFIG_FILE"] = env["AWS_SHARED_CREDENTIALS_FILE"] = str(config)

    def configure(place: str, target: Path) -> None:
        (target / ".dvc").mkdir(parents=True, exist_ok=True)
        core = (
            "[core]\n    no_scm = true\n    analytics = false\n    check_update = false\n    remote = there\n"
        )
        cache = "[cache]\n    type = hardlink\n"
        (target / ".dvc" / "config").write_text(f"{core}{cache}['remote \"there\"']\n    url = {place}\n")

    def prepare(place: str, target: Path) -> None:
        if target == Path():
            return configure(place, work)
        configure(place, target)
        shutil.copy(work / "files.dvc", target)

    configure("s3://none", work)
    shutil.copytree(made.files, work / "files")
    run([program, "--cd", work, "add", "--quiet", "files"], env)
    return Client(
        "dvc",
        env,
        lambda place: [program, "--cd", work, "push", "--quiet"],
        lambda place, target: [program, "--cd", target, "pull", "--quiet"],
        prepare,
    )


def hf(program: Path, env: dict[str, str]) -> Client:
    return Client(
        "hf" if "HF_HUB_DISABLE_XET" in env else "hf, Xet",
        env,
        lambda place: [program, "upload", place, env["FILES"], "--quiet"],
        lambda place, target: [program, "download", place, "--local-dir", target, "--quiet"],
    )


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        yield Path(directory)


def s3(cache: Path, made: Input, kind: str, count: int, peer: str) -> Iterator[Row]:
    """Each peer has a server of its own, since SeaweedFS gives back no room and has 12 GiB; both of a pair have the same."""
    serve = {"seaweedfs": s3servers.seaweedfs, "ministack": s3servers.ministack}[kind]
    with scratch() as directory, serve(directory) as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        env |= server.environment | {"AWS_DEFAULT_REGION": "us-east-1"}
        ours, program = reg(made, f"reg, {kind}", env), installed(cache, "dvc" if peer == "dvc" else "aws")
        if peer == "aws and sync":
            yield from pulls(ours, aws(program, made, env, sync=True), server.fresh, made, "", count)
            return
        theirs, aim = (
            (dvc(program, made, env), "<= 0.67") if peer == "dvc" else (aws(program, made, env), "<= 1")
        )
        yield from pushes(ours, theirs, server.fresh, aim, count)
        yield from pulls(ours, theirs, server.fresh, made, aim, count)


def on_the_hub(cache: Path, made: Input, count: int, xet: bool) -> Iterator[Row]:
    """What was sent through Xet cannot be fetched from the emulator, so then only pushes are compared."""
    program = installed(cache, "hf")
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

        yield from pushes(ours, theirs, forgotten, "<= 1", count)
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


def unchanged(cache: Path, made: Input) -> Iterator[Row]:
    """What is asked of a server where there is nothing to do, in requests."""
    with scratch() as directory, s3servers.ministack(directory) as server, proxy(server.endpoint) as between:
        env = {**os.environ, **server.environment, "AWS_DEFAULT_REGION": "us-east-1"}
        env |= {"AWS_ENDPOINT_URL": between.url}
        ours, sync = reg(made, "reg", env), [installed(cache, "aws"), "s3", "sync", "--only-show-errors"]
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


def benchmark(cache: Path, count: int = 3, wanted: Sequence[str] = ()) -> list[Row]:
    """All comparisons, or those whose names are wanted."""
    with make_input() as made:
        known: dict[str, Callable[[], Iterator[Row]]] = {
            "aws": lambda: s3(cache, made, "seaweedfs", count, "aws"),
            "sync": lambda: s3(cache, made, "seaweedfs", count, "aws and sync"),
            "dvc": lambda: s3(cache, made, "seaweedfs", count, "dvc"),
            "ministack": lambda: s3(cache, made, "ministack", 1, "aws"),
            "hub": lambda: on_the_hub(cache, made, count, xet=False),
            "xet": lambda: on_the_hub(cache, made, count, xet=True),
            "unchanged": lambda: unchanged(cache, made),
        }
        found: list[Row] = []
        for name in wanted or known:
            for row in known[name]():
                print(table([row]).splitlines()[-1], file=sys.stderr, flush=True)
                found.append(row)
        return found


if __name__ == "__main__":
    print(table(benchmark(Path(__file__).parents[2] / ".cache", int(sys.argv[1]), sys.argv[2:])))

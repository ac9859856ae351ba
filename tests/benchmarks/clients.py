"""The set of files that is pushed and pulled, how each program does it, and pairs of pushes and pulls of two programs."""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from support.made_once import made_once

from benchmarks.measure import Command, Row, Run, pairs, processor, rows, run
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

MIB = 2**20
LARGE = tuple(map(int, os.environ.get("BENCH_LARGE", "512 336 166").split()))
"""MiB of the large files. Rows say how much it was in all."""
HALF, QUARTER = (tuple(max(1, size // share) for size in LARGE) for share in (2, 4))
"""The same for comparisons that take longer."""
SMALL = 300
NAME = "acme/set"
REG = Path(sys.executable).with_name("reg")


@dataclass(frozen=True)
class Input:
    """The files as a directory, for the peers, and the registry that holds them as one version, for us."""

    files: Path
    home: Path
    scratch: Path

    @property
    def size(self) -> int:
        return _size(self.files)

    @property
    def amount(self) -> str:
        mebibytes = self.size / MIB
        return f"{mebibytes:.0f} MiB" if mebibytes < 1000 else f"{mebibytes / 1024:.0f} GiB"

    def fresh(self) -> Path:
        """A path in the scratch directory where nothing is."""
        return self.scratch / secrets.token_hex(6)

    def publish(self) -> None:
        """Make the files a version of the registry."""
        registry = Registry(self.home)
        with registry.workspace() as workspace:
            shutil.copytree(self.files, workspace, dirs_exist_ok=True)
            first, *others = sorted(path.name for path in self.files.iterdir())
            companions = tuple(DraftFile("companion", name) for name in others)
            registry.add(Draft(NAME, workspace, (DraftArtifact("onnx", "float32", first),), companions))


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        yield Path(directory)


@contextmanager
def make_input(large: Sequence[int] = LARGE) -> Iterator[Input]:
    """Links to the files and to their registry, and a memory of heads of their own. Replace a file, never write into it."""
    kept = made_once(_make_files, tuple(large))
    with scratch() as directory:
        made = _input(directory)
        for name in ("files", "home"):
            shutil.copytree(kept / name, directory / name, copy_function=os.link)
        made.scratch.mkdir()
        with patch.dict(os.environ, REG_STATE=f"{directory}/state"):
            yield made


def _input(directory: Path) -> Input:
    return Input(directory / "files", directory / "home", directory / "scratch")


def _make_files(directory: Path, large: Sequence[int]) -> None:
    """Large files of so many MiB and 300 of 4 to 64 KiB, none of which compresses, published."""
    made = _input(directory)
    made.files.mkdir(parents=True)
    sizes = {f"large-{number}.bin": mebibytes * MIB for number, mebibytes in enumerate(large)}
    sizes |= {f"small-{number:03}.bin": 4096 + number * 60 * 1024 // SMALL for number in range(SMALL)}
    for name, size in sizes.items():
        with (made.files / name).open("wb") as file:
            for start in range(0, size, MIB):
                file.write(os.urandom(min(MIB, size - start)))
    made.publish()


def _size(directory: Path) -> int:
    """Bytes of the files in a directory, those of several names once."""
    found = [path.lstat() for path in directory.rglob("*") if path.is_file()]
    return sum({status.st_ino: status.st_size for status in found}.values())


@dataclass(frozen=True, eq=False)
class Client:
    """How one program pushes to a place and pulls from it into a directory, how it is told of both before, untimed."""

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


def dvc(program: Path, made: Input, env: dict[str, str], whole: bool = False) -> Client:
    """A repository whose cache holds the files already; a pull begins with the repository alone, and links into its cache.

    With `whole` it verifies what it pulls, and ends when that is on the disk.
    """
    work = made.scratch / "dvc"
    config = made.scratch / "aws-config"  # dvc takes no device for one
    config.touch()
    env = {**env, "DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(made.scratch / "dvc-site")}
    verify, after = ("verify = true\n", ' && sync -f "$1"') if whole else ("", "")
    env["AWS_CONFIG_FILE"] = env["AWS_SHARED_CREDENTIALS_FILE"] = str(config)

    def configure(place: str, target: Path) -> None:
        (target / ".dvc").mkdir(parents=True, exist_ok=True)
        core = "no_scm = true\nanalytics = false\ncheck_update = false\nremote = there"
        text = f"[core]\n{core}\n[cache]\ntype = hardlink\n['remote \"there\"']\nurl = {place}\n{verify}"
        (target / ".dvc" / "config").write_text(text)

    def prepare(place: str, target: Path) -> None:
        if target == Path():
            return configure(place, work)
        configure(place, target)
        shutil.copy(work / "files.dvc", target)

    configure("s3://none", work)
    shutil.copytree(made.files, work / "files")
    run([program, "--cd", work, "add", "--quiet", "files"], env)
    return Client(
        "dvc, verify + sync" if whole else "dvc",
        env,
        lambda place: [program, "--cd", work, "push", "--quiet"],
        lambda place, target: ["sh", "-c", f'"$0" --cd "$1" pull --quiet{after}', program, target],
        prepare,
    )


def hf(program: Path, env: dict[str, str]) -> Client:
    return Client(
        "hf" if "HF_HUB_DISABLE_XET" in env else "hf, Xet",
        env,
        lambda place: [program, "upload", place, env["FILES"], "--quiet"],
        lambda place, target: [program, "download", place, "--local-dir", target, "--quiet"],
    )


def pushes(
    ours: Client, theirs: Client, fresh: Callable[[], str], made: Input, aim: str, count: int
) -> list[Row]:
    """Each push goes to a fresh place."""
    measured = pairs(lambda: ours.time_push(fresh()), lambda: theirs.time_push(fresh()), count, warm_up=False)
    return rows_of(f"push of {made.amount},", ours, theirs, measured, aim)


def pulls(
    ours: Client, theirs: Client, fresh: Callable[[], str], made: Input, aim: str, count: int
) -> list[Row]:
    """Each client pulls what it pushed, untimed, into a fresh directory."""
    places = {client: fresh() for client in (ours, theirs)}
    for client, place in places.items():
        client.prepare(place, Path())
        run(client.push(place), client.env)

    def pull(client: Client) -> Run:
        return client.time_pull(places[client], made.fresh(), made.size)

    measured = pairs(lambda: pull(ours), lambda: pull(theirs), count, warm_up=False)
    return rows_of(f"pull of {made.amount},", ours, theirs, measured, aim)


def rows_of(verb: str, ours: Client, theirs: Client, measured: list[tuple[Run, Run]], aim: str) -> list[Row]:
    what = f"{verb} {ours.name}"
    return [*rows(what, theirs.name, measured, aim), processor(what, theirs.name, measured)]

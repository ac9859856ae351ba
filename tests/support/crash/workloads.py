"""What is going on when the power fails: each workload is what was acknowledged before, and one command more."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from onnxreg.registry import Registry
from onnxreg.registry.log.contents import Selection
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from support.registries import owner

Command = Callable[[Path], object]
"""One command on the registries below a directory: `home`, and the others that it names."""

MODEL = "acme/pii"
STAGES = [{"domain": "ai.onnx", "name": "MatMul", "opset": 13}]


@dataclass(frozen=True)
class Workload:
    """`before` is acknowledged when `command` begins."""

    name: str
    command: Command
    before: tuple[Command, ...] = ()

    def __str__(self) -> str:
        return self.name


def home(base: Path, name: str = "home") -> Registry:
    return Registry(base / name)


def add(
    seed: str, name: str = MODEL, version: str | None = None, extra: int = 0, where: str = "home"
) -> Command:
    """Publish two artifacts of their own bytes and two companions that all versions share."""

    def command(base: Path) -> None:
        registry = home(base, where)
        with registry.workspace() as root:
            (root / "model.onnx").write_bytes(f"fp32 {seed} ".encode() * 20)
            (root / "model_int8.onnx").write_bytes(f"int8 {seed} ".encode() * 5)
            (root / "config.json").write_bytes(b"{}")
            for number in range(extra):
                (root / f"note{number}.txt").write_bytes(f"{seed} {number}".encode())
            artifacts = (
                DraftArtifact("onnx-android", "float32", "model.onnx", fields={"operators": STAGES}),
                DraftArtifact("onnx-int8", "int8", "model_int8.onnx", parent="model.onnx"),
            )
            files = (DraftFile("config", "config.json"),)
            files += tuple(DraftFile("report", f"note{number}.txt") for number in range(extra))
            registry.add(Draft(name, root, artifacts, files), version)

    return command


def tag(version: str, channel: str = "stable", where: str = "home") -> Command:
    return lambda base: home(base, where).tag(f"{MODEL}:{version}", channel)


def yank(version: str) -> Command:
    return lambda base: home(base).yank(f"{MODEL}:{version}", "wrong labels")


def drop(version: str) -> Command:
    return lambda base: owner.drop(home(base), f"{MODEL}:{version}")


def push(version: str, name: str = MODEL, source: str = "home", restore: bool = False) -> Command:
    def command(base: Path) -> object:
        return home(base, source).push(f"{name}:{version}", str(base / "shared"), restore=restore)

    return command


def pull(version: str, *formats: str) -> Command:
    def command(base: Path) -> object:
        selection = Selection(formats)
        return home(base, "other").pull(f"{MODEL}:{version}", str(base / "home"), selection=selection)

    return command


def expire(keep: int, where: str = "home") -> Command:
    return lambda base: owner.gc(home(base, where), keep, patience=0)


def collect(where: str = "home") -> Command:
    return lambda base: owner.gc(home(base, where), patience=0)


def purge(version: str) -> Command:
    return lambda base: owner.purge(home(base), f"{MODEL}:{version}", "leaked")


def litter(base: Path) -> None:
    """Blobs that nothing refers to, as a failed push leaves them."""
    with home(base).store.push() as unfinished:
        for number in range(3):
            unfinished.put(BytesIO(f"litter {number}".encode()))
        unfinished.flush()


def many_tags(base: Path) -> None:
    """Fill the log up to the line before it is sealed."""
    registry = home(base)
    for number in range(64 - len(registry.log(MODEL))):
        registry.tag(f"{MODEL}:0.1.{number % 2}", "stable")


TWO = (add("a"), add("b"))
WORKLOADS = (
    Workload("first add", add("a")),
    Workload("second add", add("b"), (add("a"),)),
    Workload("add of 40 files", add("a", extra=40)),
    Workload("another model", add("z", "acme/other"), (add("a"),)),
    Workload("tag", tag("0.1.0"), TWO),
    Workload("channel moves", tag("0.1.1"), (*TWO, tag("0.1.0"))),
    Workload("yank", yank("0.1.0"), TWO),
    Workload("drop", drop("0.1.1"), TWO),
    Workload("first push", push("0.1.0"), TWO),
    Workload("second push", push("0.1.1"), (*TWO, push("0.1.0"))),
    Workload("first pull", pull("0.1.0"), TWO),
    Workload("second pull", pull("0.1.1"), (*TWO, pull("0.1.0"))),
    Workload("pull of one artifact", pull("0.1.0", "onnx-int8"), TWO),
    Workload("pull of the rest", pull("0.1.0"), (*TWO, pull("0.1.0", "onnx-int8"))),
    Workload("sealing", add("c"), (*TWO, many_tags)),
    Workload("collect", collect(), (add("a"), litter)),
    Workload("expire", expire(1), (*TWO, add("c"), add("z", "acme/other"), add("y", "acme/other"))),
    Workload("purge", purge("0.1.0"), TWO),
    Workload(
        "push of what expired there",
        push("0.1.0", restore=True),
        (*TWO, push("0.1.0"), push("0.1.1"), expire(1, "shared")),
    ),
)


@dataclass(frozen=True)
class Pair:
    """Two commands: the first is killed, or stands still, at some step; then the second ends; then the power fails.

    `promised` is the model about which the second one told somebody something; "" is none.
    """

    name: str
    first: Command
    second: Command
    before: tuple[Command, ...] = ()
    promised: str = MODEL

    def __str__(self) -> str:
        return self.name


SIBLINGS = (add("a"), add("a", "acme/copy", where="second"))
LITTERED = (add("a"), litter)
PAIRS = (
    Pair("add of another version", add("a"), add("b")),
    Pair("add of the same files to another model", add("a"), add("a", "acme/copy"), (add("z"),), "acme/copy"),
    Pair("push of another version", push("0.1.0"), push("0.1.1"), TWO),
    Pair(
        "push of the same files to another model",
        push("0.1.0"),
        push("0.1.0", "acme/copy", "second"),
        (*SIBLINGS, add("z", "acme/zzz", where="shared")),
        "acme/copy",
    ),
    Pair("seal again", add("c"), add("d"), (*TWO, many_tags)),
    Pair("collect what a model gives up", expire(1), collect(), TWO, ""),
    Pair("collect beside a purge", purge("0.1.0"), collect(), TWO, ""),
    Pair("collect twice", collect(), collect(), LITTERED, ""),
    Pair("add beside a collector", collect(), add("b"), LITTERED),
)
AGAIN = (
    Pair("add again", add("a"), add("a")),
    Pair("push again", push("0.1.0"), push("0.1.0"), TWO),
    Pair("tag again", tag("0.1.0"), tag("0.1.0"), TWO),
)
"""The second command may find that there is nothing to do, because of what the first one did last."""

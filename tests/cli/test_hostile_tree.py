"""A registry tree that a stranger prepared, under every verb: a clean end, and nothing outside is touched.

Each tree is tried as the registry of `--registry` and as the place that a good registry pulls from and pushes to. What
must hold: an exit status of 0 or of the table (never 1), one `error:` line without a traceback or an escape, an end
within the time limit, and every byte outside the trees as it was.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from onnx import parser, save
from support.command_line import Reg
from support.sampling import sampled

from onnxreg.cli.output import EXIT_STATUS
from onnxreg.registry import Registry
from onnxreg.registry.system import state_directory

pytestmark = pytest.mark.usefixtures("reader_in_process")
Prepare = Callable[[Path, Path], object]
"""Makes a good tree hostile, given its root and the place outside that must stay as it is."""

INDEX = "index/acme/pii.jsonl"
LOCK = "local/locks/index~acme~pii.jsonl.lock"
SCRATCH = "local/tmp/0123456789abcdef"

READING = """ls; ls --json; ls acme/pii; show acme/pii; resolve acme/pii --json; diff acme/pii:0.1.0 acme/pii:0.2.0;
log acme/pii; verify; verify acme/pii:stable; remote list; resolve tiny --remote origin"""
WRITING = """tag acme/pii:0.2.0 beta; yank acme/pii:0.2.0; remote add far /srv/far; add MODEL --name acme/pii;
add MODEL --name acme/new; push acme/pii SHARE; pull acme/pii GOOD; pull tiny GOOD --output OUT"""
FROM_GOOD = """pull acme/pii:0.1.0 TREE; pull tiny TREE --output OUT; push acme/pii:0.2.0 TREE; push tiny TREE;
resolve acme/pii --remote TREE; resolve acme/pii:stable --remote TREE --json"""
COMMANDS = [
    *(("TREE", tuple(words.split())) for words in f"{READING}; {WRITING}".split(";")),
    *(("GOOD", tuple(words.split())) for words in FROM_GOOD.split(";")),
]
"""Which registry is the command's own, and its words."""


def fifo(path: str) -> Prepare:
    return lambda root, outside: os.mkfifo(_free(root / path))


def link(path: str, to: str = "") -> Prepare:
    """A symbolic link in the tree to something outside."""
    return lambda root, outside: _free(root / path).symlink_to(outside / to)


def hard_link(path: str) -> Prepare:
    return lambda root, outside: _free(root / path).hardlink_to(outside / "thesis")


def directory(path: str) -> Prepare:
    return lambda root, outside: (_free(root / path) / "inside").mkdir(parents=True)


def file(path: str, data: bytes = b"junk\n", times: int = 1) -> Prepare:
    return lambda root, outside: _free(root / path).write_bytes(data * times)


def sparse(path: str, size: int) -> Prepare:
    """A file of that many bytes that takes no room."""

    def make(root: Path, outside: Path) -> None:
        with _free(root / path).open("wb") as stream:
            stream.truncate(size)

    return make


def edit(path: str, **fields: Any) -> Prepare:
    """Other fields in `registry.json`, or in the state line of an index file."""

    def change(root: Path, outside: Path) -> None:
        first, newline, rest = (root / path).read_bytes().partition(b"\n" if path == INDEX else b"\0")
        (root / path).write_bytes(json.dumps({**json.loads(first), **fields}).encode() + newline + rest)

    return change


def blob(make: Callable[[str], Prepare], which: int = 0) -> Prepare:
    """The same for a blob: the first or another one by size, so that 0 is the smallest and -1 a model's weights."""

    def change(root: Path, outside: Path) -> None:
        found = sorted((root / "blobs").glob("*/*/*"), key=lambda path: (path.stat().st_size, path.name))
        make(found[which].relative_to(root).as_posix())(root, outside)

    return change


def manifest(make: Callable[[str], Prepare]) -> Prepare:
    """The same for the manifest of the newest version."""

    def change(root: Path, outside: Path) -> None:
        state = json.loads((root / INDEX).read_bytes().partition(b"\n")[0])
        hex = state["versions"]["0.2.0"]["manifest"].removeprefix("sha256:")
        make(f"blobs/sha256/{hex[:2]}/{hex}")(root, outside)

    return change


def lines(change: Callable[[list[bytes]], Sequence[bytes]]) -> Prepare:
    """Other lines in an index file."""

    def write(root: Path, outside: Path) -> None:
        (root / INDEX).write_bytes(b"\n".join(change((root / INDEX).read_bytes().split(b"\n"))))

    return write


def _free(path: Path) -> Path:
    """The path with nothing there, in a directory that exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def every(*changes: Prepare) -> Prepare:
    return lambda root, outside: [change(root, outside) for change in changes]


@dataclass(frozen=True)
class Tree:
    """How it is made, and how `reg verify` must end there (None: all intact, since verify does not look there)."""

    prepare: Prepare
    verify: str | None = None


NEVER = {"version": "9.9.9", "manifest": f"sha256:{'0' * 64}", "seq": 1}
NAMES = ("a/b/c", "..", "x/..", "UPPER", "\x1b[31m", "con", "a\nb", "é")
DEEP = b'{"a":' * 900 + b"[" * 90 + b"]" * 90 + b"}" * 900
IDENTITIES = {
    "link": Tree(link("registry.json", "registry.json"), "integrity"),
    "link to nothing": Tree(link("registry.json", "nothing"), "integrity"),
    "fifo": Tree(fifo("registry.json"), "integrity"),
    "directory": Tree(directory("registry.json"), "integrity"),
    "huge": Tree(sparse("registry.json", 2**34), "integrity"),
    "deep": Tree(file("registry.json", b"[" * 60_000), "integrity"),
    "empty": Tree(file("registry.json", b""), "integrity"),
    "list": Tree(file("registry.json", b"[1]"), "integrity"),
    "newer layout": Tree(edit("registry.json", layout_version=99, min_reader=99), "environment"),
    "newer writer": Tree(edit("registry.json", layout_version=99, min_writer=99)),
    "layout of a wrong type": Tree(edit("registry.json", min_reader="1"), "integrity"),
    "another format": Tree(edit("registry.json", layout="oci"), "integrity"),
    "id that climbs": Tree(edit("registry.json", id="../../../../../../tmp/x/../y/....."), "integrity"),
    "id that is nested": Tree(edit("registry.json", id=[["0" * 32]]), "integrity"),
    "id of another registry": Tree(edit("registry.json", id="0" * 32), "integrity"),
}
INDEXES = {
    "fifo": Tree(fifo(INDEX), "integrity"),
    "link": Tree(link(INDEX, "thesis"), "integrity"),
    "link to a good one": Tree(link(INDEX, "index.jsonl"), "integrity"),
    "directory": Tree(directory(INDEX), "integrity"),
    "empty": Tree(file(INDEX, b""), "integrity"),
    "line of 100 MiB": Tree(sparse(INDEX, 100 * 2**20), "integrity"),
    "line of 20 MiB": Tree(file(INDEX, b'{"registry":"' + b"x" * 20 * 2**20 + b'"}\n'), "integrity"),
    "20 million lines": Tree(file(INDEX, b"\n", 20_000_000), "integrity"),
    "deep": Tree(file(INDEX, DEEP + b"\n"), "integrity"),
    "other algorithm": Tree(edit(INDEX, head="sha512:" + "0" * 128), "integrity"),
    "a lie about versions": Tree(edit(INDEX, versions={}), "integrity"),
    "a lie about a channel": Tree(edit(INDEX, channels={"stable": NEVER}), "integrity"),
    "escapes": Tree(edit(INDEX, name="\x1b[2J\x1b]0;owned\x07"), "integrity"),
    "out of order": Tree(lines(lambda found: [found[0], found[2], found[1], *found[3:]]), "integrity"),
    "cut": Tree(lines(lambda found: found[:-2]), "integrity"),
    "a line twice": Tree(lines(lambda found: [*found[:-1], found[-2], b""]), "integrity"),
    "windows": Tree(lines(lambda found: [line + b"\r" for line in found]), "integrity"),
    "another model's": Tree(
        lambda root, _: shutil.copy(root / "index/tiny.jsonl", root / INDEX), "integrity"
    ),
    "names": Tree(
        every(
            *(file(f"index/{name}.jsonl") for name in NAMES),
            *(file(f"index/{name}") for name in (".jsonl", "acme/.jsonl", "nul.jsonl", "x.jsonl.jsonl")),
        ),
        "integrity",
    ),
    "directory is a link": Tree(link("index", "index"), "integrity"),
    "directory is a fifo": Tree(fifo("index"), "integrity"),
    "part is a link": Tree(link("index/acme", "index/acme"), "integrity"),
    "part is a file": Tree(file("index/acme"), "integrity"),
    "loop": Tree(lambda root, outside: (root / "index" / "loop").symlink_to(root / "index"), "integrity"),
}
BLOBS = {
    "directory is a link": Tree(link("blobs", "blobs"), "integrity"),
    "directory is a fifo": Tree(fifo("blobs"), "integrity"),
    "directory is a file": Tree(file("blobs/sha256"), "integrity"),
    "fifo": Tree(blob(fifo), "integrity"),
    "link": Tree(blob(lambda path: link(path, "thesis")), "integrity"),
    "link to /dev/zero": Tree(blob(lambda path: link(path, "/dev/zero")), "integrity"),
    "hard link": Tree(blob(hard_link, -1), "integrity"),
    "directory": Tree(blob(directory), "integrity"),
    "other bytes": Tree(blob(file, -1), "integrity"),
    "manifest is a fifo": Tree(manifest(fifo), "integrity"),
    "manifest of 200 MiB": Tree(manifest(lambda path: sparse(path, 200 * 2**20)), "integrity"),
    "generation": Tree(file("blobs/sha256/00/" + "0" * 64 + ".1"), "integrity"),
}
LOCALS = {
    "link": Tree(link("local", "local")),
    "file": Tree(file("local"), "integrity"),
    "tmp is a link": Tree(link("local/tmp", "local")),
    "tmp is a fifo": Tree(fifo("local/tmp")),
    "locks is a link": Tree(link("local/locks", "local")),
    "lock is a link": Tree(link(LOCK, "thesis")),
    "lock is a link to nothing": Tree(link(LOCK, "nothing")),
    "lock is a hard link": Tree(hard_link(LOCK)),
    "lock is a directory": Tree(directory(LOCK)),
    "lock is a fifo": Tree(fifo(LOCK)),
    "scratch is a link": Tree(every(file(f"{SCRATCH}.lock", b""), link(SCRATCH, "local"))),
    "scratch is a fifo": Tree(every(file(f"{SCRATCH}.lock", b""), fifo(SCRATCH))),
    "scratch's lock is a link": Tree(every(link(f"{SCRATCH}.lock", "thesis"), directory(SCRATCH))),
    "scratch's lock is a fifo": Tree(every(fifo(f"{SCRATCH}.lock"), directory(SCRATCH))),
    "scratch holds a link": Tree(every(file(f"{SCRATCH}.lock", b""), link(f"{SCRATCH}/x", "local"))),
}
NOTE = tuple(f"gc/{part}/{'0' * 16}" for part in ("intents", "condemned"))
NOTES = {
    "link": link("gc", "local"),
    "fifo": fifo("gc"),
    "file": file("gc"),
    "junk": every(*(file(f"gc/{name}") for name in ("junk", "condemned", "intents", "\x1b[31m", "0" * 32))),
    "fifos": every(*map(fifo, NOTE), fifo("gc/x.json")),
    "links": every(link("gc/intents", "local"), link("gc/condemned", "local"), link("gc/x.json", "thesis")),
    "notes that are junk": every(*(file(path, b"\xff[[") for path in NOTE), file("gc/intents/x")),
    "policy is a fifo": fifo("policy.jsonl"),
}
KINDS = {"registry.json": IDENTITIES, "index": INDEXES, "blobs": BLOBS, "local": LOCALS}
TREES = {f"{where}: {name}": tree for where, trees in KINDS.items() for name, tree in trees.items()}
TREES |= {f"gc: {name}": Tree(prepare, "integrity") for name, prepare in NOTES.items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX model of one node."""
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[1] x) => (float[1] y) { y = Relu(x) }'
    save(parser.parse_model(text), path)
    return path


@dataclass(frozen=True)
class Scene:
    """Places for one command: the hostile tree, a good registry, what must not change, and the words' meaning."""

    root: Path
    outside: Path
    model: Path

    def words(self, words: Sequence[str]) -> list[str]:
        places = {place.upper(): self.root / place for place in PLACES}
        return [str({**places, "MODEL": self.model}.get(word, word)) for word in words]

    def untouched(self) -> dict[str, Any]:
        """Every file outside with its bytes and mode; the trees, the share and the output are what commands may write."""
        places = [self.outside, *(path for path in self.root.iterdir() if path.name not in PLACES)]
        found = [place for one in places for place in (one, *sorted(one.rglob("*")))]
        return {str(path): (path.lstat().st_mode, path.is_file() and path.read_bytes()) for path in found}


PLACES = {"tree", "good", "share", "out"}
MakeScene = Callable[[Prepare, Iterable[str]], Scene]


@pytest.fixture
def outside(template: Path, tmp_path: Path) -> Path:
    """A stranger's private files, beside the trees of all commands of a test."""
    place = tmp_path / "outside"
    (place / "local" / "0123456789abcdef").mkdir(parents=True)
    (place / "local" / "0123456789abcdef" / "letter").write_bytes(b"dear\n")
    (place / "thesis").write_bytes(b"years of work\n")
    for part in ("index", "blobs"):
        shutil.copytree(template / part, place / part)
    shutil.copy(template / "registry.json", place / "registry.json")
    shutil.copy(template / INDEX, place / "index.jsonl")
    return place


@pytest.fixture
def scene(template: Path, model: Path, outside: Path, tmp_path: Path) -> MakeScene:
    """Make a fresh scene: a copy of the good registry that is hostile, and another one if a command names it."""
    numbers = iter(range(1000))

    def make(prepare: Prepare, words: Iterable[str]) -> Scene:
        root = tmp_path / str(next(numbers))
        for place in ("tree", *(("good",) if "GOOD" in words else ())):
            shutil.copytree(template, root / place)
        prepare(root / "tree", outside)
        return Scene(root, outside, model)

    return make


STRIDE, MORE_STRIDE = 12, 6


@pytest.mark.timeout(120)
@pytest.mark.parametrize("stride", [STRIDE, pytest.param(MORE_STRIDE, marks=pytest.mark.more)])
@pytest.mark.parametrize("name", sampled(TREES, 3))
def test_a_hostile_tree(name, stride, reg, scene):
    """Every twelfth command (with `more` every fourth), others for each tree, and always `reg verify`."""
    some = COMMANDS[list(TREES).index(name) % stride :: stride]
    try_commands(name, {*some, ("TREE", ("verify",))}, reg, scene)


@pytest.mark.large
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", TREES)
def test_a_hostile_tree_under_every_verb(name, reg, scene):
    try_commands(name, COMMANDS, reg, scene)


def try_commands(
    name: str, commands: Iterable[tuple[str, tuple[str, ...]]], reg: Reg, scene: MakeScene
) -> None:
    tree = TREES[name]
    for home, words in commands:
        place = scene(tree.prepare, (home, *words))
        before = place.untouched()
        shutil.rmtree(state_directory() / "heads", ignore_errors=True)
        done = reg("--registry", *place.words((home, *words)))
        what = f"{name}: {' '.join(words)}: {done.status} {done.err[-2000:]}"
        assert done.status in (0, *EXIT_STATUS.values()), what
        assert done.status == 0 or done.err.startswith('{"error"' if "--json" in words else "error: "), what
        assert "Traceback" not in done.err, what
        assert "\x1b" not in done.out + done.err, what
        assert len(done.err) < 20_000, what
        assert place.untouched() == before, f"{name}: {' '.join(words)} wrote outside"
        if (home, words) == ("TREE", ("verify",)):
            assert done.status == (EXIT_STATUS[tree.verify] if tree.verify else 0), what


def test_the_good_tree_answers_everything(reg, scene, own_user, monkeypatch):
    """Else the trees would be refused for another reason than theirs."""
    for number, (home, words) in enumerate(COMMANDS):
        monkeypatch.setenv("REG_STATE", str(own_user / str(number)))
        place = scene(
            lambda root, outside: Registry(root).remotes.add("origin", str(root.with_name("good"))),
            ("GOOD", *words),
        )
        done = reg("--registry", *place.words((home, *words)))
        assert done.status == 0, f"{' '.join(words)}: {done.err}"

"""Keys that are revoked: which lines and versions still count, and for whom.

`stolen` is the key that signed the world's lines; `fresh` is the publisher's next one. A reader demands signed lines.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.sampling import sampled
from support.trust.tamper import Line, Tree, chained, digest_of, event, unsigned
from support.trust.world import MODEL, World

from onnxreg.registry.signing import PrivateKey, generate

from .conftest import User


@dataclass
class Reader:
    """A trust file in parts, and the tree that is read."""

    world: World
    tree: Tree
    fresh: PrivateKey = field(default_factory=lambda: generate("ed25519"))
    untils: list[str] = field(default_factory=list)
    keys: tuple[str, ...] = ("stolen", "fresh")
    is_revoked: bool = True
    demand: str = "lines = true"

    def until(self, seq: int | None = None, **other: str) -> "Reader":
        """The stolen key counts up to this line, by default the last."""
        seq = seq or len(self.lines)
        line = {"registry": self.tree.id, "model": MODEL, "head": digest_of(self.chained[seq - 1]), **other}
        words = [f'{key} = "{value}"' for key, value in line.items()]
        self.untils.append(f"{{{', '.join([*words, f'seq = {seq}'])}}}")
        return self

    def text(self) -> str:
        known = {"stolen": self.world.release.public, "fresh": self.fresh.public}
        lines = [line for name in self.keys for line in (f"[keys.{name}]", f'key = "{known[name]}"')]
        if self.is_revoked and "stolen" in self.keys:
            lines += ["[keys.stolen.revoked]", "date = 2026-01-02", 'reason = "laptop stolen"']
            lines += [f"until = [{', '.join(self.untils)}]"]
        return "\n".join([*lines, "[[require]]", f'models = ["{MODEL}"]', self.demand, ""])

    @property
    def lines(self) -> list[Line]:
        return self.tree.lines(MODEL)

    @property
    def chained(self) -> list[bytes]:
        return chained(self.lines, self.tree.id, MODEL)

    def append(self, *keys: str) -> "Reader":
        """Further lines, each signed by a key."""
        for key in keys:
            lines, signer = self.lines, self.fresh if key == "fresh" else self.world.release
            line = unsigned(event(lines[0], reason=f"line {len(lines) + 1}"))
            self.tree.remake(MODEL, [*lines, line], signer, only=(len(lines), None))
        return self

    def rewrite(self, at: int, only: bool) -> None:
        """The thief signs another history of the same length, or only one line anew."""
        lines = self.lines
        lines[at] = event(lines[at], actor="the thief")
        chosen = (len(lines) - 1, None) if only else None
        self.tree.remake(MODEL, lines, self.world.release, only=chosen)

    def sign_anew(self) -> None:
        self.tree.remake(MODEL, self.lines, self.fresh)


def without_the_key(reader: Reader, signed_anew: bool) -> None:
    reader.keys = ("fresh",)
    if signed_anew:
        reader.sign_anew()


def of_versions(reader: Reader) -> Reader:
    reader.demand = "versions = true"
    return reader


NOWHERE = "sha256:" + "0" * 64
CASES: dict[str, tuple[Callable[[Reader], object], int]] = {
    "from the beginning": (lambda reader: None, 4),
    "until the head": (lambda reader: reader.until(), 0),
    "until before the head": (lambda reader: reader.until(len(reader.lines) - 1), 4),
    "a line after": (lambda reader: reader.until().append("stolen"), 4),
    "a fresh line after": (lambda reader: reader.until().append("fresh"), 0),
    "a stolen line between fresh ones": (lambda reader: reader.until().append("fresh", "stolen", "fresh"), 4),
    "the past is rewritten": (lambda reader: reader.until().rewrite(1, only=False), 4),
    "only the end is rewritten": (lambda reader: reader.until().rewrite(-1, only=True), 4),
    "until another line": (lambda reader: reader.until(head=NOWHERE), 4),
    "until a line of another model": (lambda reader: reader.until(model="acme/ner"), 4),
    "until a line in another registry": (lambda reader: reader.until(registry="0" * 32), 4),
    "the log is cut before the line that the revocation names": (
        lambda reader: reader.until().tree.remake(MODEL, reader.lines[:-1]),
        4,
    ),
    "all is signed anew": (lambda reader: reader.sign_anew(), 0),
    "a fresh head vouches for no stolen line": (lambda reader: reader.append("fresh"), 4),
    "the key is taken out of the file": (lambda reader: without_the_key(reader, False), 4),
    "the key is taken out and all is signed anew": (lambda reader: without_the_key(reader, True), 0),
    "the revocation is taken back": (lambda reader: setattr(reader, "is_revoked", False), 0),
    "an older line is replayed": (
        lambda reader: reader.until().tree.remake(MODEL, [*reader.lines, reader.lines[1]]),
        4,
    ),
    "one of two lines is enough": (lambda reader: reader.until(head=NOWHERE).until(), 0),
    "versions were released before": (lambda reader: of_versions(reader).until(), 0),
    "versions with a key that never counted": (lambda reader: of_versions(reader), 4),
}


@pytest.mark.parametrize("verb", sampled(["resolve", "pull", "mirror"], 2))
@pytest.mark.parametrize("case", CASES)
def test_lines_and_versions_of_a_revoked_key(user: User, tmp_path: Path, case: str, verb: str) -> None:
    reader, (change, status) = Reader(user.world, user.tree), CASES[case]
    change(reader)
    user.own.mkdir(parents=True, exist_ok=True)
    (user.own / "trust").write_text(reader.text())
    place = str(user.tree.root)
    words = {
        "resolve": ["resolve", MODEL, "--remote", place],
        "pull": ["pull", MODEL, place],
        "mirror": ["mirror", place, str(tmp_path / "copy")],
    }
    assert user.home.reg(*words[verb]) == status

"""What the trust file of a reader demands: signed lines, from an anchor on, by keys that were not revoked, whatever a clock says."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.registries.home import Home
from support.sampling import sampled
from support.trust.tamper import Line, Tree, chained, digest_of, event, unsigned
from support.trust.world import MODEL, OTHER, World

from onnxreg.registry.signing import PrivateKey, generate
from onnxreg.registry.store.protocol import index_path
from onnxreg.schema.core.errors import IntegrityError


@dataclass(frozen=True)
class User:
    """A reader of the world's tree, with a trust file and a registry."""

    world: World
    tree: Tree
    own: Path
    home: Home

    def trusts(self, *more: str) -> None:
        """Write the trust file: the keys of the world, and these lines."""
        self.own.mkdir(parents=True, exist_ok=True)
        (self.own / "trust").write_text(self.world.trust(*more))

    def demands(self, *more: str) -> None:
        """Trust, and demand that lines are signed."""
        self.trusts(*more, "[[require]]", 'models = ["acme/*"]', "lines = true")

    def resolve(self, name: str = MODEL, *more: str) -> int:
        return self.home.reg("resolve", name, "--remote", str(self.tree.root), *more)


@pytest.fixture
def user(world, own_user, other) -> User:
    return User(world, Tree(world.tree), own_user, other)


BEGIN = 6
"""The first line that must be signed: the lines before it are those of a log that began without signatures."""


def begin_unsigned(user: User) -> None:
    """Lines before `BEGIN` are unsigned, the others are signed."""
    lines = user.tree.lines(MODEL)
    mixed = [unsigned(line) for line in lines[: BEGIN - 1]] + lines[BEGIN - 1 :]
    user.tree.remake(MODEL, mixed, user.world.release, only=(BEGIN - 1, None))


def anchor(tree: Tree, seq: int = BEGIN - 1) -> str:
    head = digest_of(chained(tree.lines(MODEL), tree.id, MODEL)[seq - 1])
    return f'after = [{{registry = "{tree.id}", model = "{MODEL}", seq = {seq}, head = "{head}"}}]'


def write_trust(user: User, *more: str) -> None:
    user.trusts("[[require]]", 'models = ["acme/*"]', "lines = true", *more)


def other(line: Line) -> Line:
    return event(line, actor="somebody else")


LOGS: dict[str, tuple[Callable[[list[Line]], list[Line]], int, int]] = {
    "as it was": (lambda lines: lines, 0, 0),
    "a shorter one": (lambda lines: [*map(unsigned, lines[: BEGIN - 2])], 4, 4),
    "an invented, shorter one": (lambda lines: [unsigned(other(line)) for line in lines[: BEGIN - 2]], 4, 4),
    "one line": (lambda lines: [unsigned(lines[0])], 4, 4),
    "cut at the anchor": (lambda lines: [*map(unsigned, lines[: BEGIN - 1])], 4, 0),
    "another beginning": (lambda lines: [unsigned(other(lines[0])), *lines[1:]], 4, 4),
    "an unsigned end": (lambda lines: [*lines[:-1], unsigned(lines[-1])], 4, 4),
}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("has_anchor", [False, True], ids=["since", "after"])
def test_a_log_that_began_without_signatures(user, log, has_anchor):
    """With a line number alone the last line must be signed; with a digest the log must have that very line."""
    begin_unsigned(user)
    write_trust(user, anchor(user.tree) if has_anchor else f"since = {BEGIN}")
    change, *statuses = LOGS[log]
    user.tree.remake(MODEL, change(user.tree.lines(MODEL)))
    assert user.resolve() == statuses[has_anchor]


def test_a_short_log_that_is_signed_keeps_any_since(user):
    write_trust(user, "since = 1000")
    assert user.resolve(OTHER) == 0


def test_an_anchor_of_another_model_or_registry_says_nothing(user):
    begin_unsigned(user)
    text = anchor(user.tree)
    for wrong in (text.replace(MODEL, OTHER), text.replace(user.tree.id, "0" * 32)):
        write_trust(user, wrong)
        assert user.resolve() == 4


def test_an_anchor_is_written_from_what_reg_trust_shows(user, capfd):
    def shown() -> Any:
        capfd.readouterr()
        assert user.home.reg("trust", "show", "--json") == 0
        return json.loads(capfd.readouterr().out)

    tree = user.tree
    tree.remake(MODEL, [unsigned(line) for line in tree.lines(MODEL)])
    user.trusts()
    assert user.resolve() == 0
    known = next(head for head in shown()["heads"] if head["name"] == MODEL)
    line = {"registry": tree.id, "model": MODEL, "seq": known["seq"], "head": known["head"]}
    text = ", ".join(f"{key} = {json.dumps(value)}" for key, value in line.items())
    write_trust(user, f"after = [{{{text}}}]")
    assert user.resolve() == 0
    assert shown()["require"][0]["after"] == [line]
    tree.remake(MODEL, [*tree.lines(MODEL), event(tree.lines(MODEL)[1], reason="again")])
    assert user.resolve() == 4


TIMES = {
    "the year 1": "0001-01-01T00:00:00Z",
    "1970": "1970-01-01T00:00:00Z",
    "a year ago": "2025-01-01T00:00:00Z",
    "2038": "2038-01-19T03:14:08Z",
    "the year 9999": "9999-12-31T23:59:59Z",
}


@pytest.mark.parametrize("number", [0, -1], ids=["the first line", "the last line"])
@pytest.mark.parametrize("claimed", sampled(TIMES, 3))
def test_a_claimed_time_changes_no_answer(user, claimed, number, capfd):
    """Also where lines go back in time; signatures count in the order of the log."""
    user.demands()
    lines = user.tree.lines(MODEL)
    lines[number] = event(lines[number], time=TIMES[claimed])
    user.tree.remake(MODEL, lines, user.world.release)
    assert user.resolve(MODEL, "--json", "--max-age", "1d") == 0
    assert '"1.1.0"' in capfd.readouterr().out
    for words in (("verify",), ("log", MODEL)):
        assert Home(user.tree.root).reg(*words) == 0


@pytest.mark.parametrize("date", ["1970-01-01", "2026-01-02", "9999-12-31"])
def test_the_date_of_a_revocation_decides_nothing(user, date):
    """A thief can claim any time, so neither a date before nor one after the lines saves the key."""
    user.demands("[keys.release.revoked]", f"date = {date}", 'reason = "stolen"')
    assert user.resolve() == 4


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
@pytest.mark.parametrize("case", sampled(CASES, 4))
def test_lines_and_versions_of_a_revoked_key(user, tmp_path, case, verb):
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


def test_the_trust_file_does_not_judge_changes_of_the_own_registry(user):
    """They are signed or not as this user likes; and what was written is known from then on."""
    user.demands()
    first, second = user.home.make(name=MODEL, seed="a"), user.home.make(name=MODEL, seed="b")
    assert (first.new, second.new, user.home.heads.knows(user.home.id, MODEL)) == (True, True, True)
    index = user.home.store.root / index_path(MODEL)
    index.write_bytes(b"".join(index.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(IntegrityError):
        user.home.make(name=MODEL, seed="c")

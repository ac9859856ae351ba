"""Keys that are revoked: which lines and versions still count, and for whom.

`stolen` is the key that signed the world's lines; `fresh` is the publisher's next one. A reader demands signed lines.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.sampling import sampled
from support.trust.tamper import Tree, chained, digest_of, event, unsigned
from support.trust.world import MODEL, World

from onnxreg.cli.main import main
from onnxreg.registry.signing import PrivateKey, generate


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

    def until(
        self, seq: int, model: str = MODEL, registry: str | None = None, head: str | None = None
    ) -> None:
        """The stolen key counts up to this line."""
        there = head or digest_of(chained(self.tree.lines(MODEL), self.tree.id, MODEL)[seq - 1])
        self.untils.append(
            f'{{registry = "{registry or self.tree.id}", model = "{model}", seq = {seq}, head = "{there}"}}'
        )

    def text(self) -> str:
        known = {"stolen": self.world.release.public, "fresh": self.fresh.public}
        lines = [line for name in self.keys for line in (f"[keys.{name}]", f'key = "{known[name]}"')]
        if self.is_revoked and "stolen" in self.keys:
            lines += ["[keys.stolen.revoked]", "date = 2026-01-02", 'reason = "laptop stolen"']
            lines += [f"until = [{', '.join(self.untils)}]"]
        return "\n".join([*lines, "[[require]]", f'models = ["{MODEL}"]', self.demand, ""])

    @property
    def length(self) -> int:
        return len(self.tree.lines(MODEL))

    def append(self, key: PrivateKey | None, *more: PrivateKey) -> None:
        """Further lines, each signed by a key."""
        for each in (key, *more):
            lines = self.tree.lines(MODEL)
            line = unsigned(event(lines[0], reason=f"line {len(lines) + 1}"))
            self.tree.remake(MODEL, [*lines, line], each, only=(len(lines), None))


def nothing_more(reader: Reader) -> None:
    """The key is revoked from the beginning."""


def until_the_head(reader: Reader) -> None:
    reader.until(reader.length)


def until_before_the_head(reader: Reader) -> None:
    reader.until(reader.length - 1)


def a_line_after(reader: Reader) -> None:
    reader.until(reader.length)
    reader.append(reader.world.release)


def a_fresh_line_after(reader: Reader) -> None:
    reader.until(reader.length)
    reader.append(reader.fresh)


def a_stolen_line_between_fresh_ones(reader: Reader) -> None:
    reader.until(reader.length)
    reader.append(reader.fresh, reader.world.release, reader.fresh)


def the_past_is_rewritten(reader: Reader) -> None:
    """The thief signs another history of the same length."""
    reader.until(reader.length)
    lines = reader.tree.lines(MODEL)
    lines[1] = event(lines[1], actor="the thief")
    reader.tree.remake(MODEL, lines, reader.world.release)


def only_the_end_is_rewritten(reader: Reader) -> None:
    reader.until(reader.length)
    lines = reader.tree.lines(MODEL)
    lines[-1] = event(lines[-1], actor="the thief")
    reader.tree.remake(MODEL, lines, reader.world.release, only=(len(lines) - 1, None))


def until_another_line(reader: Reader) -> None:
    reader.until(reader.length, head="sha256:" + "0" * 64)


def until_in_another_model(reader: Reader) -> None:
    reader.until(reader.length, model="acme/ner")


def until_in_another_registry(reader: Reader) -> None:
    reader.until(reader.length, registry="0" * 32)


def the_log_is_cut(reader: Reader) -> None:
    """It no longer has the line that the revocation names: nothing tells it from a history of the thief's."""
    reader.until(reader.length)
    reader.tree.remake(MODEL, reader.tree.lines(MODEL)[:-1])


def all_is_signed_anew(reader: Reader) -> None:
    reader.tree.remake(MODEL, reader.tree.lines(MODEL), reader.fresh)


def only_the_last_line_is_signed_anew(reader: Reader) -> None:
    """Each line is judged: the fresh head vouches for none of the stolen lines."""
    reader.append(reader.fresh)


def the_key_is_taken_out_of_the_file(reader: Reader) -> None:
    reader.keys = ("fresh",)


def the_key_is_taken_out_and_all_is_signed_anew(reader: Reader) -> None:
    reader.keys = ("fresh",)
    all_is_signed_anew(reader)


def the_revocation_is_taken_back(reader: Reader) -> None:
    reader.is_revoked = False


def an_older_line_is_replayed(reader: Reader) -> None:
    reader.until(reader.length)
    lines = reader.tree.lines(MODEL)
    reader.tree.remake(MODEL, [*lines, lines[1]])


def two_revocation_lines(reader: Reader) -> None:
    """One of them is enough."""
    reader.until(reader.length, head="sha256:" + "0" * 64)
    reader.until(reader.length)


def versions_were_released_before(reader: Reader) -> None:
    reader.demand = "versions = true"
    reader.until(reader.length)


def versions_with_a_key_that_never_counted(reader: Reader) -> None:
    reader.demand = "versions = true"


CASES: dict[Callable[[Reader], None], int] = {
    nothing_more: 4,
    until_the_head: 0,
    until_before_the_head: 4,
    a_line_after: 4,
    a_fresh_line_after: 0,
    a_stolen_line_between_fresh_ones: 4,
    the_past_is_rewritten: 4,
    only_the_end_is_rewritten: 4,
    until_another_line: 4,
    until_in_another_model: 4,
    until_in_another_registry: 4,
    the_log_is_cut: 4,
    all_is_signed_anew: 0,
    only_the_last_line_is_signed_anew: 4,
    the_key_is_taken_out_of_the_file: 4,
    the_key_is_taken_out_and_all_is_signed_anew: 0,
    the_revocation_is_taken_back: 0,
    an_older_line_is_replayed: 4,
    two_revocation_lines: 0,
    versions_were_released_before: 0,
    versions_with_a_key_that_never_counted: 4,
}


@pytest.mark.parametrize("verb", sampled(["resolve", "pull", "mirror"], 2))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_lines_and_versions_of_a_revoked_key(
    world: World, own_user: Path, tmp_path: Path, case: Callable[[Reader], None], verb: str
) -> None:
    reader = Reader(world, Tree(world.tree))
    case(reader)
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(reader.text())
    place = str(world.tree)
    words = {
        "resolve": ["resolve", MODEL, "--remote", place],
        "pull": ["pull", MODEL, place],
        "mirror": ["mirror", place, str(tmp_path / "copy")],
    }
    assert main(["--registry", str(tmp_path / "own"), *words[verb]]) == CASES[case]

"""Where signatures begin in a log, copies that must be signed, and texts of signatures that have one form only."""

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from support.trust.tamper import Line, Tree, chained, digest_of, event, unsigned
from support.trust.world import MODEL, OTHER, World

from onnxreg.cli.main import main
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.trust_file import read_trust
from onnxreg.schema.signing.keys import decode_base64

BEGIN = 6
"""The first line that must be signed: the lines before it are those of a log that began without signatures."""


def begin_unsigned(tree: Tree, world: World) -> None:
    """Lines before `BEGIN` are unsigned, the others are signed."""
    lines = tree.lines(MODEL)
    mixed = [unsigned(line) for line in lines[: BEGIN - 1]] + lines[BEGIN - 1 :]
    tree.remake(MODEL, mixed, world.release, only=(BEGIN - 1, None))


def anchor(tree: Tree, seq: int = BEGIN - 1) -> str:
    head = digest_of(chained(tree.lines(MODEL), tree.id, MODEL)[seq - 1])
    return f'after = [{{registry = "{tree.id}", model = "{MODEL}", seq = {seq}, head = "{head}"}}]'


def write_trust(own_user: Path, world: World, *more: str) -> None:
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust("[[require]]", 'models = ["acme/*"]', "lines = true", *more))


def resolve(world: World, tmp_path: Path, name: str = MODEL) -> int:
    return main(["--registry", str(tmp_path / "own"), "resolve", name, "--remote", str(world.tree)])


def nothing(lines: list[Line]) -> list[Line]:
    return lines


def shorter(lines: list[Line]) -> list[Line]:
    return [unsigned(line) for line in lines[: BEGIN - 2]]


def invented(lines: list[Line]) -> list[Line]:
    return [unsigned(event(line, actor="somebody else")) for line in lines[: BEGIN - 2]]


def cut_at_the_anchor(lines: list[Line]) -> list[Line]:
    return [unsigned(line) for line in lines[: BEGIN - 1]]


def one_line(lines: list[Line]) -> list[Line]:
    return [unsigned(lines[0])]


def another_beginning(lines: list[Line]) -> list[Line]:
    return [unsigned(event(lines[0], actor="somebody else")), *lines[1:]]


def unsigned_end(lines: list[Line]) -> list[Line]:
    return [*lines[:-1], unsigned(lines[-1])]


LOGS: dict[str, tuple[Callable[[list[Line]], list[Line]], int, int]] = {
    "as it was": (nothing, 0, 0),
    "a shorter one": (shorter, 4, 4),
    "an invented, shorter one": (invented, 4, 4),
    "one line": (one_line, 4, 4),
    "cut at the anchor": (cut_at_the_anchor, 4, 0),
    "another beginning": (another_beginning, 4, 4),
    "an unsigned end": (unsigned_end, 4, 4),
}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("has_anchor", [False, True], ids=["since", "after"])
def test_a_log_that_began_without_signatures(
    world: World, own_user: Path, tmp_path: Path, log: str, has_anchor: bool
) -> None:
    """With a line number alone the last line must be signed; with a digest the log must have that very line."""
    tree = Tree(world.tree)
    begin_unsigned(tree, world)
    write_trust(own_user, world, anchor(tree) if has_anchor else f"since = {BEGIN}")
    change, *statuses = LOGS[log]
    tree.remake(MODEL, change(tree.lines(MODEL)))
    assert resolve(world, tmp_path) == statuses[has_anchor]


def test_a_short_log_that_is_signed_keeps_any_since(world: World, own_user: Path, tmp_path: Path) -> None:
    write_trust(own_user, world, "since = 1000")
    assert resolve(world, tmp_path, OTHER) == 0


def test_an_anchor_of_another_model_or_registry_says_nothing(
    world: World, own_user: Path, tmp_path: Path
) -> None:
    tree = Tree(world.tree)
    begin_unsigned(tree, world)
    text = anchor(tree)
    for wrong in (text.replace(MODEL, OTHER), text.replace(tree.id, "0" * 32)):
        write_trust(own_user, world, wrong)
        assert resolve(world, tmp_path) == 4


def test_reg_trust_writes_the_anchor(
    world: World, own_user: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(world.tree)
    tree.remake(MODEL, [unsigned(line) for line in tree.lines(MODEL)])
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust())
    assert resolve(world, tmp_path) == 0
    assert main(["trust", "require", "acme/*", "--lines", "--key", "release", "--from-now"]) == 0
    (need,) = load_trust().requirements
    known = KnownHeads().read(tree.id, MODEL)
    (line,) = need.after
    assert known is not None
    assert (line.registry, line.model, line.seq, line.head) == (tree.id, MODEL, known.seq, known.head)
    assert resolve(world, tmp_path) == 0
    capfd.readouterr()
    assert main(["trust", "show", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)["require"][0]
    assert shown["after"] == [
        {"registry": tree.id, "model": MODEL, "seq": known.seq, "head": str(known.head)}
    ]
    tree.remake(MODEL, [*tree.lines(MODEL), event(tree.lines(MODEL)[1], reason="again")])
    assert resolve(world, tmp_path) == 4


def test_a_requirement_of_nothing_is_a_wrong_call(world: World, own_user: Path) -> None:
    assert main(["trust", "require", "acme/*"]) == 2
    assert main(["trust", "require", "acme/*", "--lines", "--key", "nobody"]) == 2


def test_trust_require_without_from_now_demands_every_line(
    world: World, own_user: Path, tmp_path: Path
) -> None:
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust())
    assert main(["trust", "require", "--lines", "--versions"]) == 0
    (need,) = load_trust().requirements
    assert (need.models, need.lines, need.versions, need.since, need.after) == (("*",), True, True, 1, ())
    assert resolve(world, tmp_path) == 0


TEXT = b64encode(b"four bytes!!").decode()
FORMS = {
    "no padding": b64encode(b"x").decode().rstrip("="),
    "spare bits": "eB==",
    "spare bits of two bytes": "eHl=",
    "a newline": TEXT + "\n",
    "a space": TEXT[:4] + " " + TEXT[4:],
    "the alphabet of URLs": "_-__",
    "padding in the middle": "eA==" + TEXT,
    "too much padding": TEXT + "====",
    "no ASCII": "é" * 4,
    "a number": 7,
    "nothing": None,
}


@pytest.mark.parametrize("form", FORMS)
def test_base64_has_one_form(form: str) -> None:
    assert decode_base64(TEXT, "it") == b"four bytes!!"
    assert decode_base64("eA==", "it") == b"x"
    with pytest.raises(InputError):
        decode_base64(FORMS[form], "it")


def test_the_last_signature_has_one_text(world: World, own_user: Path, tmp_path: Path) -> None:
    """Else the digest of the last line, the head, could be changed without a key."""
    tree = Tree(world.tree)
    write_trust(own_user, world)
    lines = tree.lines(MODEL)
    sig = lines[-1]["sig"]
    assert sig.endswith("==")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    spare = letters[letters.index(sig[-3]) ^ 1]
    tree.remake(MODEL, [*lines[:-1], {**lines[-1], "sig": sig[:-3] + spare + "=="}])
    assert resolve(world, tmp_path) == 4


def append_unsigned(tree: Tree) -> None:
    lines = tree.lines(MODEL)
    tree.remake(MODEL, [*lines, unsigned(event(lines[1], reason="again"))])


@pytest.mark.parametrize("into", ["a mirror", "a registry of its own"])
@pytest.mark.parametrize("demand", ["lines = true", "versions = true"])
def test_a_mirror_copies_only_what_is_signed(
    world: World, own_user: Path, tmp_path: Path, into: str, demand: str
) -> None:
    from onnxreg.registry.store.directory.directory import DirectoryRegistry

    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust("[[require]]", f'models = ["{MODEL}"]', demand))
    tree = Tree(world.tree)
    lines = tree.lines(MODEL)
    if demand == "versions = true":
        tree.remake(MODEL, [unsigned(line) for line in lines if line["event"]["kind"] != "attest"])
    else:
        append_unsigned(tree)
    copy = tmp_path / "copy"
    command = ["--registry", str(tmp_path / "own"), "mirror", str(world.tree), str(copy)]
    command += ["--new-id"] if into == "a registry of its own" else []
    assert main(command) == 4
    names = list(DirectoryRegistry(copy).names())
    assert MODEL not in names and OTHER in names
    tree.remake(MODEL, lines)
    assert main(command) == 0
    assert MODEL in list(DirectoryRegistry(copy).names())


def test_a_mirror_copies_no_unsigned_policies(world: World, own_user: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\nchannel = "stable"\nmodels = ["other"]\nbreaking = false\n')
    assert main(["--registry", str(world.tree), "policy", "set", str(policy)]) == 0
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust("[[require]]", 'models = [".policy"]', "lines = true"))
    copy = tmp_path / "copy"
    assert main(["--registry", str(tmp_path / "own"), "mirror", str(world.tree), str(copy)]) == 4
    assert not (copy / "policy.jsonl").exists() and not list(copy.glob("index/**/*.jsonl"))


KEY = "a." * 49_999 + "a"
DEEP = 100_000
HUGE: dict[str, str] = {
    "a key of 50,000 parts": f"{KEY} = 1",
    "a key with spaces": f"{KEY.replace('.', ' . ')} = 1",
    "a key of quoted parts": f"{KEY.replace('a', chr(34) + 'a' + chr(34))} = 1",
    "a key of literal parts": f"{KEY.replace('a', chr(39) + 'a' + chr(39))} = 1",
    "a table of 50,000 parts": f"[{KEY}]",
    "an array of tables of 50,000 parts": f"[[{KEY}]]",
    "an inline table with such a key": f"x = {{{KEY} = 1}}",
    "such a key in line 3": f"\n\n{KEY} = 1",
    "deep arrays": f"x = {'[' * DEEP}{']' * DEEP}",
    "deep inline tables": f"x = {'{a = ' * 5000}1{'}' * 5000}",
    "arrays that do not end": f"x = {'[' * DEEP}",
    "five million bytes": "#" * 5_000_000,
    "a number of 100,000 digits": f"x = {'9' * DEEP}",
}


@pytest.mark.parametrize("verb", ["trust", "policy"])
@pytest.mark.parametrize("text", HUGE)
def test_toml_that_is_deep_or_huge_is_a_wrong_call(
    own_user: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, verb: str
) -> None:
    own_user.mkdir(parents=True, exist_ok=True)
    path = own_user / "trust" if verb == "trust" else tmp_path / "policy.toml"
    path.write_text(HUGE[text])
    words = ["trust", "show"] if verb == "trust" else ["policy", "set", str(path)]
    assert main(["--registry", str(tmp_path / "own"), *words]) == 2
    said = capfd.readouterr().err
    assert str(path) in said and len(said) < 1000


def test_texts_with_many_dots_are_no_keys() -> None:
    reason = "one. two. " * 50 + "a.b.c" * 50
    text = f'[keys]\n[[revoked]]\nkey = "x"\ndate = 2026-01-02\nreason = "{reason}"\n'
    with pytest.raises(InputError, match="not among the keys"):
        read_trust(text.encode(), "trust")

"""What somebody can do to a registry with a witness log, and which reader notices.

The attacker may write to the store; some attacks also have the key of the log, or of one witness. Readers: `new` knows
nothing; `seen` looked before; `strict` demands signatures, and is new; `witnessed` demands two witnesses, and is new;
`pending` is like that, and accepts lines that it saw first less than an hour ago. The words are what `reg resolve` and
`reg pull` must say at exit status 4; an empty text is a reader who does not notice, which docs/threat-model.md explains.
"""

import json
import re
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.trust.tamper import Tree, event
from support.trust.world import LONG, MODEL, OTHER, World, plain_pem
from support.witness.logs import WitnessedRegistry

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.witness import signers
from onnxreg.registry.witness.copies import parse_proofs, read_proofs
from onnxreg.registry.witness.note_keys import cosign_text, sign_head
from onnxreg.schema.witness.note import SignedNote, TreeHead
from onnxreg.schema.witness.witnessed import WitnessedHead, encode_heads

READERS = ("new", "seen", "strict", "witnessed", "pending")
WITHOUT_TRUST = READERS[:2]
DAY = 86_400


@dataclass(frozen=True)
class Scene:
    """A world whose registry is witnessed; `attacker` publishes and cosigns with keys of its own.

    `earlier` is a copy of its tree from before the last publication, which all tests share.
    """

    world: World
    witnessed: WitnessedRegistry
    earlier: Path

    @property
    def tree(self) -> Tree:
        return Tree(self.world.tree)

    @property
    def folder(self) -> Path:
        return self.world.tree / "witness"

    @property
    def proofs(self) -> list[WitnessedHead]:
        return parse_proofs((self.folder / "proofs").read_bytes())

    def write_proofs(self, *heads: WitnessedHead) -> None:
        (self.folder / "proofs").write_bytes(encode_heads(heads))

    def attacker(self, *, has_log_key: bool = False, has_witness: bool = False) -> WitnessedRegistry:
        """Somebody who begins the log anew, with a memory of its own: keys of its own but for those that it has."""
        keys = {"key": self.witnessed.key} if has_log_key else {}
        other = WitnessedRegistry(DirectoryRegistry(self.world.tree), **keys)
        if has_witness:
            other.witnesses["w1"] = self.witnessed.witnesses["w1"]
        return other


Do = Callable[[Scene], None]


def do_nothing(scene: Scene) -> None:
    pass


# The registry itself


def serve_last_month(scene: Scene) -> None:
    shutil.copy(Tree(scene.world.old).index(MODEL), scene.tree.index(MODEL))


def drop_the_last_line(scene: Scene) -> None:
    scene.tree.remake(MODEL, scene.tree.lines(MODEL)[:-1])


def delete_a_model(scene: Scene) -> None:
    scene.tree.index(MODEL).unlink()


def edit_a_line_and_its_chain(scene: Scene) -> None:
    lines = scene.tree.lines(MODEL)
    lines[2] = event(lines[2], time="2020-01-01T00:00:00Z")
    scene.tree.remake(MODEL, lines)


def rewrite_all(scene: Scene) -> None:
    lines = Tree(scene.world.old).lines(MODEL)
    scene.tree.remake(MODEL, [*lines, *(event(lines[1], reason=f"again {number}") for number in range(5))])


def append_a_line(scene: Scene) -> None:
    lines = scene.tree.lines(MODEL)
    scene.tree.remake(MODEL, [*lines, event(lines[1], reason="once more")])


def invent_a_model(scene: Scene) -> None:
    """A model with the log of another one, in place of one that was never there."""
    Registry(scene.world.tree).tag(f"{OTHER}:1.0.0", "invented")


def become_another_registry(scene: Scene) -> None:
    shutil.rmtree(scene.world.tree)
    shutil.copytree(scene.world.elsewhere, scene.world.tree)


def become_another_registry_with_its_own_witnesses(scene: Scene) -> None:
    become_another_registry(scene)
    WitnessedRegistry(DirectoryRegistry(scene.world.tree)).witness()


def become_another_registry_of_the_same_witnesses(scene: Scene) -> None:
    """Honest, and witnessed by the same: only the reader knows which registry was meant."""
    become_another_registry(scene)
    replace(scene.witnessed, store=DirectoryRegistry(scene.world.tree), key=scene.attacker().key).witness()


# The files of the witness log


def delete_the_log(scene: Scene) -> None:
    shutil.rmtree(scene.folder)


def delete_the_proofs(scene: Scene) -> None:
    (scene.folder / "proofs").unlink()


def garble_the_proofs(scene: Scene) -> None:
    data = (scene.folder / "proofs").read_bytes()
    (scene.folder / "proofs").write_bytes(data[:40] + b"AAAA" + data[44:])


def cut_the_proofs(scene: Scene) -> None:
    (scene.folder / "proofs").write_bytes((scene.folder / "proofs").read_bytes()[:-30])


def strip_the_cosignatures(scene: Scene) -> None:
    head = scene.proofs[0]
    scene.write_proofs(replace(head, note=SignedNote(head.note.text, head.note.signatures[:1])))


def keep_one_cosignature(scene: Scene) -> None:
    head = scene.proofs[0]
    scene.write_proofs(replace(head, note=SignedNote(head.note.text, head.note.signatures[:2])))


def count_one_witness_twice(scene: Scene) -> None:
    """The cosignature of w1 once more, under the name and id of w2."""
    head = scene.proofs[0]
    log, *others = head.note.signatures
    first = next(each for each in others if each.name == "w1")
    second = next(each for each in others if each.name == "w2")
    forged = second._replace(data=first.data)
    scene.write_proofs(replace(head, note=SignedNote(head.note.text, (log, first, forged))))


def repeat_a_cosignature(scene: Scene) -> None:
    head = scene.proofs[0]
    log, *others = head.note.signatures
    first = next(each for each in others if each.name == "w1")
    scene.write_proofs(replace(head, note=SignedNote(head.note.text, (log, first, first))))


def claim_a_later_time(scene: Scene) -> None:
    head = scene.proofs[0]
    log, *others = head.note.signatures
    later = [each._replace(data=(each.time + 1).to_bytes(8, "big") + each.data[8:]) for each in others]
    scene.write_proofs(replace(head, note=SignedNote(head.note.text, (log, *later))))


def name_another_map(scene: Scene) -> None:
    scene.write_proofs(replace(scene.proofs[0], map_root=bytes(31) + b"x"))


def copy_the_cosignatures_to_a_larger_tree(scene: Scene) -> None:
    """The checkpoint of a tree that the attacker made, with what was signed over another one."""
    cosignatures = scene.proofs[0].note.signatures[1:]
    delete_the_log(scene)
    attacker = scene.attacker()
    attacker.publish()
    invent_a_model(scene)
    attacker.publish()
    attacker.cosign()
    head = scene.proofs[0]
    scene.write_proofs(
        replace(head, note=SignedNote(head.note.text, (head.note.signatures[0], *cosignatures)))
    )


def _page(scene: Scene) -> Path:
    root = scene.proofs[0].map_root.hex()
    return scene.folder / "map" / root[:2] / root


def delete_a_page(scene: Scene) -> None:
    _page(scene).unlink()


def hide_an_entry_in_the_page(scene: Scene) -> None:
    delete_a_model(scene)
    lines = _page(scene).read_text().splitlines(keepends=True)
    _page(scene).write_text("".join(line for line in lines if not line.startswith(MODEL)))


def put_an_old_entry_into_the_page(scene: Scene) -> None:
    serve_last_month(scene)
    state = scene.tree.state(MODEL)
    text = re.sub(
        rf"{MODEL} \d+ \w+", f"{MODEL} {state['seq']} {state['head'][7:]}", _page(scene).read_text()
    )
    _page(scene).write_text(text)


def bring_the_map_of_another_moment(scene: Scene) -> None:
    """A page that the log did have, under the name of the newest one."""
    serve_last_month(scene)
    pages = sorted(path for path in scene.folder.rglob("map/*/*") if path != _page(scene))
    shutil.copy(pages[0], _page(scene))


def bring_the_proofs_of_another_registry(scene: Scene) -> None:
    """Witnessed by the same witnesses."""
    other = replace(scene.witnessed, store=DirectoryRegistry(scene.world.elsewhere), key=scene.attacker().key)
    copy = scene.world.tree.parent / "copy"
    shutil.copytree(scene.world.elsewhere, copy)
    replace(other, store=DirectoryRegistry(copy)).witness()
    shutil.rmtree(scene.folder)
    shutil.copytree(copy / "witness", scene.folder)


# A log of the attacker's


def _serve_last_month_and_log_it(scene: Scene, attacker: WitnessedRegistry) -> None:
    serve_last_month(scene)
    delete_the_log(scene)
    attacker.publish()
    attacker.cosign()


def begin_the_log_anew(scene: Scene) -> None:
    _serve_last_month_and_log_it(scene, scene.attacker())


def begin_the_log_anew_with_its_key(scene: Scene) -> None:
    """The publisher himself shows another history; his witnesses do not sign it, so he names others."""
    _serve_last_month_and_log_it(scene, scene.attacker(has_log_key=True))


def begin_the_log_anew_with_one_witness(scene: Scene) -> None:
    attacker = scene.attacker(has_log_key=True, has_witness=True)
    serve_last_month(scene)
    delete_the_log(scene)
    attacker.publish()
    head = TreeHead.parse((scene.folder / "checkpoint").read_text().partition("\n\n")[0] + "\n")
    note = sign_head(head, attacker.key)
    note = note.signed_by([cosign_text(note.text, "w1", attacker.witnesses["w1"], int(signers.time.time()))])
    root = b64decode((scene.folder / "next").read_text().splitlines()[1].removeprefix("extra "))
    scene.write_proofs(WitnessedHead(note, root, ()))


def serve_a_whole_old_tree(scene: Scene) -> None:
    """Everything as it was before the last publication, minutes ago."""
    shutil.rmtree(scene.world.tree)
    shutil.copytree(scene.earlier, scene.world.tree)


BACK, WROTE, MUST, WRONG = "went back in time", "was rewritten", "must be signed", "the signature of line"
SAW, GONE, UNSEEN = (
    "is not as witnesses saw it",
    "is gone: witnesses saw",
    "is not witnessed|are not witnessed",
)
FEW = "of the 2 witnesses that the trust file demands"
NONE, DAMAGED, PAGE = "no witness has cosigned", "is damaged", "of the witness map"


@dataclass(frozen=True)
class Row:
    """An attack, and what each reader says of it: `witnessed` also counts for `pending`, unless that differs."""

    do: Do
    witnessed: str
    seen: str = ""
    new: str = ""
    strict: str = ""
    pending: str | None = None
    ref: str = MODEL
    gone: bool = False

    def words(self, reader: str) -> str:
        if reader == "pending" and self.pending is None:
            return self.witnessed
        return getattr(self, reader)  # type: ignore[no-any-return]


ROWS = {
    "nothing": Row(do_nothing, ""),
    "last month's index": Row(serve_last_month, SAW, seen=BACK),
    "the last line is dropped": Row(drop_the_last_line, SAW, seen=BACK),
    "a model is deleted": Row(delete_a_model, GONE, seen="is gone", gone=True),
    "a line and its chain are edited": Row(edit_a_line_and_its_chain, SAW, seen=WROTE, strict=WRONG),
    "the whole log is rewritten": Row(rewrite_all, SAW, seen=WROTE, strict=WRONG),
    "a line is appended": Row(append_a_line, UNSEEN, strict=WRONG, pending=""),
    "an honest line is appended": Row(invent_a_model, UNSEEN, strict=MUST, pending="", ref=OTHER),
    "another registry": Row(become_another_registry, NONE, seen="another registry"),
    "another registry with witnesses of its own": Row(
        become_another_registry_with_its_own_witnesses, FEW, seen="another registry"
    ),
    "another registry of the same witnesses": Row(
        become_another_registry_of_the_same_witnesses, "", seen="another registry"
    ),
    "the witness log is deleted": Row(delete_the_log, NONE),
    "the proofs are deleted": Row(delete_the_proofs, NONE),
    "the proofs are garbled": Row(garble_the_proofs, DAMAGED),
    "the proofs are cut": Row(cut_the_proofs, DAMAGED),
    "all cosignatures are stripped": Row(strip_the_cosignatures, f"0 {FEW}"),
    "one cosignature is stripped": Row(keep_one_cosignature, f"1 {FEW}"),
    "one cosignature counts twice": Row(repeat_a_cosignature, f"1 {FEW}"),
    "one cosignature under two names": Row(
        count_one_witness_twice, "the signature of w2 on the checkpoint is wrong"
    ),
    "a later time is claimed": Row(claim_a_later_time, "on the checkpoint is wrong"),
    "another map is named": Row(name_another_map, "does not lead to the checkpoint"),
    "cosignatures of another tree": Row(copy_the_cosignatures_to_a_larger_tree, "on the checkpoint is wrong"),
    "a page is deleted": Row(delete_a_page, f"{PAGE} is missing"),
    "an entry is hidden in its page": Row(
        hide_an_entry_in_the_page, f"{PAGE} has other content", seen="is gone", gone=True
    ),
    "an old entry in the page": Row(put_an_old_entry_into_the_page, f"{PAGE} has other content", seen=BACK),
    "the map of another moment": Row(bring_the_map_of_another_moment, f"{PAGE} has other content", seen=BACK),
    "the proofs of another registry": Row(
        bring_the_proofs_of_another_registry, "its witness log is that of onnxreg/"
    ),
    "another log": Row(begin_the_log_anew, f"0 {FEW}", seen=BACK),
    "another log with the log's key": Row(begin_the_log_anew_with_its_key, f"0 {FEW}", seen=BACK),
    "another log with one witness": Row(begin_the_log_anew_with_one_witness, f"1 {FEW}", seen=BACK),
    "a whole old tree": Row(serve_a_whole_old_tree, "", seen=BACK),
}


@pytest.fixture(scope="session")
def scene_template(template: World, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The world, published and cosigned before and after its last event."""
    root = tmp_path_factory.mktemp("scene")
    world = template.copied(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REG_STATE", str(root / "state"))
        patch.setenv("REG_SIGNING_KEY", plain_pem(world.release))
        witnessed = WitnessedRegistry(DirectoryRegistry(world.tree))
        witnessed.witness()
        shutil.copytree(world.tree, root / "earlier")
        Registry(world.tree).tag(f"{MODEL}:1.0.0", "beta")
        witnessed.witness()
    return Scene(world, witnessed, root / "earlier")


@pytest.fixture
def scene(scene_template: Scene, tmp_path: Path) -> Scene:
    world = scene_template.world.copied(tmp_path)
    witnessed = replace(scene_template.witnessed, store=DirectoryRegistry(world.tree))
    return replace(scene_template, world=world, witnessed=witnessed)


def prepare(kind: str, scene: Scene, own_user: Path, tmp_path: Path) -> None:
    """Make a reader: what it saw, and what it trusts."""
    if kind == "seen":
        Registry(tmp_path / "own").fetch_index([], str(scene.world.tree))
    if kind in ("strict", "witnessed", "pending"):
        own_user.mkdir(parents=True, exist_ok=True)
        (own_user / "trust").write_text(trust(kind, scene))


def trust(kind: str, scene: Scene, max_age: str = "24h") -> str:
    if kind == "strict":
        return scene.world.trust("[[require]]", 'models = ["acme/*"]', "lines = true")
    keys = json.dumps([scene.witnessed.vkey(name) for name in ("w1", "w2")])
    pending = ', pending = "1h"' if kind == "pending" else ""
    return f'[[require]]\nwitnesses = {{any = 2, of = {keys}, max_age = "{max_age}"{pending}}}\n'


def cases() -> Iterator[Any]:
    """Each attack with the readers who look at one attacked tree; those without a trust file are `more` for most."""
    quick = ("nothing", "last month's index", "another registry of the same witnesses", "a whole old tree")
    for name, row in ROWS.items():
        yield pytest.param(row, READERS[2:], id=name)
        marks = () if name in quick else pytest.mark.more
        yield pytest.param(row, WITHOUT_TRUST, id=f"{name}, without a trust file", marks=marks)


@pytest.mark.parametrize(("row", "kinds"), list(cases()))
def test_readers_that_notice_an_attack(
    row: Row,
    kinds: tuple[str, ...],
    scene: Scene,
    own_user: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Each reader is a user of its own, with a state directory, a trust file and a registry."""
    own_user.mkdir(parents=True)

    def become(kind: str) -> Path:
        monkeypatch.setenv("REG_STATE", str(own_user / kind / "state"))
        monkeypatch.setenv("REG_TRUST", str(own_user / kind / "trust"))
        return own_user / kind

    for kind in kinds:
        prepare(kind, scene, become(kind), tmp_path / kind)
    become("attacker")
    row.do(scene)
    for kind in kinds:
        become(kind)
        check_reader(row, kind, scene, tmp_path / kind, capfd)


def check_reader(row: Row, kind: str, scene: Scene, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Resolve and pull the model of an attack."""
    words, url = row.words(kind), str(scene.world.tree)
    for command in (["resolve", row.ref, "--remote", url], ["pull", row.ref, url]):
        capfd.readouterr()
        status = main(["--registry", str(home / "own"), *command])
        said = "".join(capfd.readouterr())
        assert status == (4 if words else 3 if row.gone else 0), f"{kind}: {said}"
        assert re.search(words, said), f"{kind}: {said}"


@pytest.mark.more
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.witnessed])
def test_verify_lists_what_witnesses_did_not_see(
    name: str, scene: Scene, own_user: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prepare("witnessed", scene, own_user, tmp_path)
    ROWS[name].do(scene)
    status = main(["--registry", str(tmp_path / "own"), "verify", "--remote", str(scene.world.tree)])
    said = "".join(capfd.readouterr())
    assert status == 4 and re.search(ROWS[name].witnessed, said), said


@pytest.mark.parametrize("options", [[], ["--new-id"]], ids=["mirror", "new id"])
def test_a_mirror_takes_only_what_witnesses_saw(
    options: list[str], scene: Scene, own_user: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A model with a line more and one that is gone are listed, the third is copied; a copy of one's own is not checked."""
    prepare("witnessed", scene, own_user, tmp_path)
    append_a_line(scene)
    scene.tree.index(OTHER).unlink()
    own, copy = ["--registry", str(tmp_path / "own"), "mirror", str(scene.world.tree)], tmp_path / "copy"
    assert main([*own, str(copy), *options]) == 4
    said = "".join(capfd.readouterr())
    assert f"1 line of {MODEL} is not witnessed" in said and f"{OTHER} is gone: witnesses saw" in said
    assert list(DirectoryRegistry(copy).names()) == [LONG]
    own[1] = str(scene.world.tree)
    assert main([*own, str(tmp_path / "backup"), *options]) == 0


def test_a_mirror_of_a_place_without_witnesses_is_refused(
    scene: Scene, own_user: Path, tmp_path: Path
) -> None:
    prepare("witnessed", scene, own_user, tmp_path)
    delete_the_log(scene)
    own = ["--registry", str(tmp_path / "own"), "mirror", str(scene.world.tree), str(tmp_path / "copy")]
    assert main(own) == 4
    assert list(DirectoryRegistry(tmp_path / "copy").names()) == []


def test_verify_says_once_that_the_cosignatures_are_old(
    scene: Scene,
    own_user: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No file is damaged, so nothing is to be repaired."""
    prepare("witnessed", scene, own_user, tmp_path)
    now = signers.time.time()
    monkeypatch.setattr("onnxreg.registry.witness.reader.time.time", lambda: now + DAY + 60)
    verify = ["--registry", str(tmp_path / "own"), "verify", "--remote", str(scene.world.tree)]
    assert main(verify) == 4
    said = "".join(capfd.readouterr())
    assert said.count("its cosignatures are 864") == 1 and "all intact" in said
    assert "the files are intact, but not witnessed as your trust file demands" in said
    assert "--repair" not in said
    assert main([*verify, "--json"]) == 4
    assert [damage["kind"] for damage in json.loads(capfd.readouterr().out)["damages"]] == ["witness"]


def test_the_key_of_the_log_is_no_witness(
    scene: Scene, own_user: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its cosignature does not count, though the trust file names it."""
    witnessed = scene.witnessed
    witnessed.witnesses = {**witnessed.witnesses, "w2": witnessed.key}
    note = scene.proofs[0].note
    cosignature = cosign_text(note.text, "w2", witnessed.key, int(signers.time.time()))
    scene.write_proofs(replace(scene.proofs[0], note=note.signed_by([cosignature])))
    prepare("witnessed", scene, own_user, tmp_path)
    own = ["--registry", str(tmp_path / "own"), "resolve", MODEL, "--remote", str(scene.world.tree)]
    assert main(own) == 4
    assert f"1 {FEW} cosigned it; w2 is the key of the log" in capfd.readouterr().err


def test_a_long_log_is_compared_up_to_its_sealed_lines(scene: Scene, own_user: Path, tmp_path: Path) -> None:
    prepare("witnessed", scene, own_user, tmp_path)
    assert (
        main(["--registry", str(tmp_path / "own"), "resolve", LONG, "--remote", str(scene.world.tree)]) == 0
    )
    scene.tree.remake(LONG, scene.tree.lines(LONG)[:20])
    assert (
        main(["--registry", str(tmp_path / "other"), "resolve", LONG, "--remote", str(scene.world.tree)]) == 4
    )


def test_a_place_that_withholds_news_is_noticed_after_max_age(
    scene: Scene,
    own_user: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Nothing changes at the place, and its witnesses did not look at it again: a day later it is refused."""
    prepare("witnessed", scene, own_user, tmp_path)
    own = ["--registry", str(tmp_path / "own"), "resolve", MODEL, "--remote", str(scene.world.tree)]
    assert main(own) == 0
    now = signers.time.time()
    monkeypatch.setattr("onnxreg.registry.witness.reader.time.time", lambda: now + DAY + 60)
    assert main(own) == 4
    assert re.search(
        "its cosignatures are 86[0-9]{3} seconds old, the limit is 86400 seconds", capfd.readouterr().err
    )
    monkeypatch.setattr("onnxreg.registry.witness.reader.time.time", lambda: now - DAY)
    assert main(own) == 4, "a cosignature of tomorrow does not count"


def test_lines_that_stay_unwitnessed_are_refused_after_an_hour(
    scene: Scene,
    own_user: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    prepare("pending", scene, own_user, tmp_path)
    append_a_line(scene)
    own = ["--registry", str(tmp_path / "own"), "resolve", MODEL, "--remote", str(scene.world.tree)]
    now = signers.time.time()
    for minutes, status in ((0, 0), (50, 0), (61, 4)):
        monkeypatch.setattr("onnxreg.registry.witness.reader.time.time", lambda at=now + minutes * 60: at)
        if minutes == 50:
            append_a_line(scene)
        assert main(own) == status
    error = capfd.readouterr().err
    assert "are not witnessed, and are known for 36" in error
    assert 'allow a delay in your trust file: pending = "1h"' in error


def test_a_refused_index_is_no_checkpoint(scene: Scene, own_user: Path, tmp_path: Path) -> None:
    """A forged line that witnesses did not see does not make the genuine log a fork for this reader."""
    prepare("witnessed", scene, own_user, tmp_path)
    own = ["--registry", str(tmp_path / "own")]
    genuine = scene.tree.index(MODEL).read_bytes()
    append_a_line(scene)
    assert main([*own, "resolve", MODEL, "--remote", str(scene.world.tree)]) == 4
    assert main([*own, "verify", "--remote", str(scene.world.tree)]) == 4
    scene.tree.overwrite(scene.tree.index(MODEL), genuine)
    assert main([*own, "resolve", MODEL, "--remote", str(scene.world.tree)]) == 0


def test_a_reader_who_saw_a_larger_tree_refuses_a_smaller_one(
    scene: Scene, own_user: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Even of a model that it never saw."""
    prepare("witnessed", scene, own_user, tmp_path)
    own = ["--registry", str(tmp_path / "own"), "resolve"]
    assert main([*own, MODEL, "--remote", str(scene.world.tree)]) == 0
    serve_a_whole_old_tree(scene)
    assert main([*own, OTHER, "--remote", str(scene.world.tree)]) == 4
    error = capfd.readouterr().err
    assert "its witness log went back in time: the cosigned tree has size 1, 2 was seen before" in error
    assert main(["--registry", str(tmp_path / "own"), "trust", "reset", str(scene.world.tree)]) == 0
    assert "forgot what witnesses saw of it" in capfd.readouterr().out
    assert main([*own, OTHER, "--remote", str(scene.world.tree)]) == 0


def test_the_proofs_show_both_witnesses(scene: Scene) -> None:
    assert [len(head.cosigners) for head in read_proofs(DirectoryRegistry(scene.world.tree))] == [2]

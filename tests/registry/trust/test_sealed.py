"""The sealed part of a log: segments and the catalog are blobs of whoever may write to the store.

Each case edits them and gives the state line their new digests. A reader who demands signed lines resolves nothing then, and
`verify` reports damage; neither ends in anything but an error of ours.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sampling import sampled
from support.trust.tamper import Tree
from support.trust.world import LONG, MODEL, World

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest

Rows = list[bytes]
Catalog = dict[str, Any]


def again(row: bytes, **changes: Any) -> bytes:
    return canonical.encode({**json.loads(row), **changes})


def event(row: bytes, **changes: Any) -> bytes:
    return again(row, event={**json.loads(row)["event"], **changes})


SEGMENTS: dict[str, Callable[[Rows], bytes]] = {
    "a line less": lambda rows: b"".join(row + b"\n" for row in rows[:-1]),
    "a line more": lambda rows: b"".join(row + b"\n" for row in [*rows, rows[-1]]),
    "two lines swapped": lambda rows: b"".join(row + b"\n" for row in [rows[1], rows[0], *rows[2:]]),
    "a line twice, one missing": lambda rows: b"".join(row + b"\n" for row in [rows[0], rows[0], *rows[2:]]),
    "no newline at the end": lambda rows: b"\n".join(rows),
    "an empty blob": lambda rows: b"",
    "empty lines": lambda rows: b"\n" * len(rows),
    "no JSON": lambda rows: b"x\n" * len(rows),
    "deep JSON": lambda rows: (b"[" * 5000 + b"\n") * len(rows),
    "numbers without end": lambda rows: (b'{"seq":' + b"9" * 5000 + b"}\n") * len(rows),
    "bytes that are no text": lambda rows: b"\xff\xfe\n" * len(rows),
    "another time": lambda rows: b"".join(
        row + b"\n" for row in [event(rows[0], time="2020-01-01T00:00:00Z"), *rows[1:]]
    ),
    "another model": lambda rows: b"".join(event(row, name=MODEL) + b"\n" for row in rows),
    "other numbers": lambda rows: b"".join(
        again(row, seq=number + 2) + b"\n" for number, row in enumerate(rows)
    ),
    "another first link": lambda rows: b"".join(
        row + b"\n" for row in [again(rows[0], prev=str(Digest.of(b"x"))), *rows[1:]]
    ),
    "an unknown kind": lambda rows: b"".join(row + b"\n" for row in [event(rows[0], kind="own"), *rows[1:]]),
    "an unknown key": lambda rows: b"".join(row + b"\n" for row in [again(rows[0], later=1), *rows[1:]]),
    "spaces": lambda rows: b"".join(json.dumps(json.loads(row)).encode() + b"\n" for row in rows),
}


def swap_entries(value: Catalog) -> None:
    value["1.0.0"], value["1.1.0"] = value["1.1.0"], value["1.0.0"]


CATALOGS: dict[str, Callable[[Catalog], object]] = {
    "a version less": lambda value: value.pop("1.0.0"),
    "a version more": lambda value: value.update({"9.0.0": value["1.0.0"]}),
    "two versions swapped": swap_entries,
    "a yank": lambda value: value["1.0.0"].update(yanks=[str(Digest.of(b"x"))]),
    "gone files": lambda value: value["1.0.0"].update(gone={"how": "expired", "event": str(Digest.of(b"x"))}),
    "another size": lambda value: value["1.0.0"].update(size=1),
    "another line": lambda value: value["1.0.0"].update(seq=99),
    "a pin": lambda value: value["1.0.0"].update(pinned=True),
    "no manifest": lambda value: value["1.0.0"].pop("manifest"),
    "a version that is none": lambda value: value.update({"latest": value["1.0.0"]}),
    "a negative size": lambda value: value["1.0.0"].update(size=-1),
    "an unknown way to be gone": lambda value: value["1.0.0"].update(gone={"how": "x", "event": "y"}),
    "a held path outside": lambda value: value["1.0.0"].update(held=["../x"]),
    "an entry that is a list": lambda value: value.update({"1.0.0": []}),
}
RAW: dict[str, bytes] = {
    "an empty catalog": b"",
    "no JSON as a catalog": b"x",
    "a list as a catalog": b"[]",
    "a deep catalog": b"[" * 100_000,
    "a catalog of zeros": b"[" + b"0," * 2_000_000 + b"0]",
    "one key twice": b'{"1.0.0":1,"1.0.0":2}',
}


def replace_segment(tree: Tree, case: str) -> None:
    digest = tree.state(LONG)["segments"][0]
    made = tree.put(SEGMENTS[case](tree.blob(digest).read_bytes().splitlines()))
    tree.edit_state(LONG, lambda state: state.update(segments=[made]))


def replace_catalog(tree: Tree, case: str) -> None:
    if case in RAW:
        made = tree.put(RAW[case])
    else:
        value = tree.read(tree.state(LONG)["catalog"])
        CATALOGS[case](value)
        made = tree.put(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())
    tree.edit_state(LONG, lambda state: state.update(catalog=made))


def lose(key: str) -> Callable[[Tree], None]:
    def do(tree: Tree) -> None:
        found = tree.state(LONG)[key]
        tree.blob(found[0] if isinstance(found, list) else found).unlink()

    return do


def garble(key: str) -> Callable[[Tree], None]:
    """Other bytes under the old digest."""

    def do(tree: Tree) -> None:
        found = tree.state(LONG)[key]
        path = tree.blob(found[0] if isinstance(found, list) else found)
        tree.overwrite(path, path.read_bytes().replace(b"1", b"2"))

    return do


WHOLE: dict[str, Callable[[Tree], None]] = {
    "a segment is lost": lose("segments"),
    "the catalog is lost": lose("catalog"),
    "a segment is garbled": garble("segments"),
    "the catalog is garbled": garble("catalog"),
    "a segment is listed twice": lambda tree: tree.edit_state(
        LONG, lambda state: state.update(segments=state["segments"] * 2)
    ),
    "no segment is listed": lambda tree: tree.edit_state(LONG, lambda state: state.update(segments=[])),
    "no catalog is named": lambda tree: tree.edit_state(LONG, lambda state: state.pop("catalog")),
    "the catalog is a segment": lambda tree: tree.edit_state(
        LONG, lambda state: state.update(catalog=state["segments"][0])
    ),
    "the segment is the catalog": lambda tree: tree.edit_state(
        LONG, lambda state: state.update(segments=[state["catalog"]])
    ),
}
CASES: dict[str, Callable[[Tree], None]] = {
    **{f"segment: {case}": lambda tree, case=case: replace_segment(tree, case) for case in SEGMENTS},
    **{f"catalog: {case}": lambda tree, case=case: replace_catalog(tree, case) for case in [*CATALOGS, *RAW]},
    **WHOLE,
}


@pytest.mark.parametrize("case", CASES)
def test_verify_reports_a_changed_segment_or_catalog(world: World, case: str) -> None:
    CASES[case](Tree(world.tree))
    damages = verify(DirectoryRegistry(world.tree)).damages
    assert any(LONG in damage.name for damage in damages)


@pytest.mark.parametrize("case", sampled(CASES, 2))
def test_a_reader_who_requires_signed_lines_resolves_nothing(
    world: World, own_user: Path, tmp_path: Path, case: str
) -> None:
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust("[[require]]", 'models = ["acme/*"]', "lines = true"))
    CASES[case](Tree(world.tree))
    status = main(["--registry", str(tmp_path / "own"), "resolve", LONG, "--remote", str(world.tree)])
    assert status == (3 if "is lost" in case else 4)


@pytest.mark.parametrize("case", sampled(CASES, 2))
def test_a_reader_with_a_known_head_resolves_nothing_else(world: World, tmp_path: Path, case: str) -> None:
    """A blob that is lost or garbled under its own name is not read for the newest version: the answer is the old one."""
    own = Registry(tmp_path / "own")
    own.fetch_index([], str(world.tree))
    CASES[case](Tree(world.tree))
    status = main(["--registry", str(own.store.root), "resolve", LONG, "--remote", str(world.tree)])
    assert status == (0 if "is lost" in case or "is garbled" in case else 4)

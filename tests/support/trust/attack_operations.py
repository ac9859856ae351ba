"""Operations on the files of a registry, by name: the words of tests/registry/trust/attacks.toml.

A row says `does = "drop-last 1; set channels/stable/version 1.0.0"`: each part is the name of a method of
`Scene` with its arguments, in the words of a shell. An operation that writes lines computes the chain and the state
anew, as any program could. It signs nothing, unless it says so.

Lines are chosen by number (`3`, `-1`), or by kind (`yank`, `tag:2`, `tag:-1`). Values are JSON or text, or begin with @:

    @other            a digest of bytes that are not in the registry
    @planted          an attacker's weights; @forged: a manifest like 1.1.0 that has them, and claims a certificate
    @weights          the last artifact of 1.1.0; @first-weights: its first
    @manifest:V, @release:V    the manifest of a version, and the envelope with its signatures
    @state:PATH       a value of the state line; a path of a state or an event has its keys joined by /
    @held             the manifest that `stable` holds; null if it holds none
    @policy           the digest of the last line of the log of policies
    @made             the blob that an operation made last; @size:VALUE: the size of a blob; @id: the registry's id
    @noted            the value that was last noted

A path names a value of the state line; behind `checkpoint:` of the checkpoint, behind `both:` of both. A file is a blob's
digest, `policies`, `index`, `index/MODEL`, or `old:index` and `elsewhere:index` in other trees.
"""

import json
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.signing import PrivateKey, generate, sign_statement
from onnxreg.schema.core.ref import Version
from onnxreg.schema.signing.dsse import release_statement
from support.registries.gated import LAX, POLICY, draft, filled, refusal_of
from support.trust.tamper import Line, Tree, canonical_json, chained, digest_of, event, genesis_of, unsigned
from support.trust.world import MODEL, World, plain_pem

POLICIES = {
    "strict": POLICY,
    "stricter": POLICY + b"synthetic = false\n",
    "lax": LAX,
    "lax-beta": POLICY + LAX.replace(b"stable", b"beta"),
    "other": b'[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]\n',
    "elsewhere": b'[[rule]]\nchannel = "next"\nlicenses = ["MIT"]\n',
    "signed": b'[[rule]]\nchannel = "stable"\ncertified = ["onnx-int8"]\nsigned_by = ["release"]\n',
}
PLANTED = b"weights with a back door"
GROWN = (1, 2, 63, 64, 65, 66, 70, 71, 130, 131)
"""The lengths to which honest histories grow."""


@contextmanager
def _publisher(root: Path) -> Iterator[pytest.MonkeyPatch]:
    """Be the publisher, who remembers nothing of what an attacker did meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        shutil.rmtree(root / "publisher", ignore_errors=True)
        patch.setenv("REG_STATE", str(root / "publisher"))
        patch.setenv("REG_TRUST", str(root / "trust"))
        (root / "trust").touch()
        yield patch


@dataclass(frozen=True)
class Histories:
    """Honest histories of a registry, which the tests of a session share: all trees that grow have one history."""

    source: Path
    root: Path

    def after(self, name: str, count: int) -> Path:
        """The tree after so many moves of the channel `beta`, a number in `GROWN`."""
        work, trees = self.root / "work" / name, self.root / name
        if not (trees / str(count)).exists():
            if not work.exists():
                shutil.copytree(self.source, work)
            moved = max((int(tree.name) for tree in trees.glob("*")), default=0)
            with _publisher(self.root):
                for number in range(moved, count):
                    Registry(work).tag(f"{name}:1.{number % 2}.0", "beta")
                    if number + 1 in GROWN:
                        shutil.copytree(work, trees / str(number + 1))
        return trees / str(count)


class Scene:
    """The trees of one attack. `at` chooses the one that operations change and readers ask.

    Args:
        world: the publisher's keys, and the registries beside the one that is attacked.
        name: the model that operations are about.
        histories: how the registry grows.
    """

    def __init__(self, root: Path, world: World, name: str, histories: Histories) -> None:
        self.root, self.world, self.name, self.histories = root, world, name, histories
        self.tree = Tree(world.tree)
        self._made: str | None = None
        self._kept: Line = {}
        self._noted: Any = None
        self._grown = 0
        self._signs: PrivateKey | None = None

    def do(self, text: str) -> None:
        """Do operations, with semicolons between them."""
        for part in filter(str.strip, text.split(";")):
            operation, *arguments = shlex.split(part)
            getattr(self, operation.replace("-", "_"))(*arguments)

    # values, lines and paths

    def value(self, text: str) -> Any:
        kind, _, rest = text.partition(":")
        match kind:
            case "@other":
                return digest_of(b"other")
            case "@planted":
                return self.tree.put(PLANTED)
            case "@forged":
                return self.tree.forge_version(self.name, "1.1.0")
            case "@weights" | "@first-weights":
                artifacts = self.tree.read(self.value("@manifest:1.1.0"))["artifacts"]
                return artifacts[-1 if kind == "@weights" else 0]["digest"]
            case "@manifest":
                return self.tree.state(self.name)["versions"][rest]["manifest"]
            case "@release":
                about = self.value(f"@manifest:{rest}")
                events = (line["event"] for line in self.tree.lines(self.name))
                return next(
                    item["statement"]
                    for item in events
                    if (item["kind"], item.get("manifest")) == ("attest", about)
                )
            case "@state":
                table, key = next(_steps(self.tree.state(self.name), rest))
                return table[key]
            case "@held":
                return self.tree.state(self.name)["channels"].get("stable", {}).get("manifest")
            case "@policy":
                return digest_of(self._policies.read_bytes().splitlines()[-1])
            case "@noted":
                return self._noted
            case "@made":
                return self._made
            case "@size":
                return len(self.tree.blob(self.value(rest)).read_bytes())
            case "@id":
                return self.tree.id
        try:
            return self._resolved(json.loads(text))
        except ValueError:
            return text

    def _resolved(self, value: Any) -> Any:
        """Replace the values with an @ in JSON."""
        if isinstance(value, dict):
            return {key: self._resolved(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolved(item) for item in value]
        return self.value(value) if isinstance(value, str) and value.startswith("@") else value

    def _position(self, lines: list[Line], text: str) -> int:
        kind, _, number = text.partition(":")
        if kind.lstrip("-").isdigit():
            return int(kind) - 1 if int(kind) > 0 else len(lines) + int(kind)
        positions = [at for at, line in enumerate(lines) if line["event"]["kind"] == kind]
        return positions[int(number or 1) - (int(number or 1) > 0)]

    def _changes(self, words: tuple[str, ...]) -> dict[str, Any]:
        return {key: self.value(text) for key, _, text in (word.partition("=") for word in words)}

    def _event(self, kind: str, **more: Any) -> Line:
        about = {"name": self.name, "nonce": token_hex(16), "time": "2026-11-01T00:00:00Z"}
        values = {"kind": kind, **about, **more}
        return {"event": {key: item for key, item in values.items() if item is not None}}

    def _with(self, line: Line, changes: dict[str, Any]) -> Line:
        made = event(line, **changes)
        return {**made, "event": {key: item for key, item in made["event"].items() if item is not None}}

    def _lines(self, change: Callable[[list[Line]], list[Line] | None], *signed: Any) -> None:
        """Change the lines, in place or by others; the chain and the state are computed anew."""
        lines = self.tree.lines(self.name)
        made = change(lines)
        self.tree.remake(self.name, lines if made is None else made, *signed)

    def _append(self, line: Line) -> None:
        self._lines(lambda lines: lines.append(line))

    def file(self, text: str) -> Path:
        tree, _, place = text.rpartition(":") if text.endswith("index") else ("", "", text)
        source = Tree(getattr(self.world, tree)) if tree else self.tree
        if place == "policies":
            return self.tree.root / "policy.jsonl"
        kind, _, model = place.partition("/")
        return source.index(model or self.name) if kind == "index" else self.tree.blob(self.value(text))

    @property
    def _policies(self) -> Path:
        return self.file("policies")

    # honest deeds, and other trees

    def reg(self, *words: str) -> None:
        """What the publisher does with the program, who knows nothing of the readers."""
        with _publisher(self.root) as patch:
            (self.root / "trust").write_text(self.world.trust())
            if self._signs is not None:
                patch.setenv("REG_SIGNING_KEY", plain_pem(self._signs))
            shown = [word.replace("@model", self.name) for word in words]
            assert main(["--registry", str(self.tree.root), *shown]) == 0, words

    def publisher_signs(self, wanted: str = "true") -> None:
        """From now on the publisher signs lines."""
        self._signs = self.world.release if self.value(wanted) else None

    def sign_version(self, version: str) -> None:
        self._signs, before = self.world.release, self._signs
        self.reg("sign", f"@model:{version}")
        self._signs = before

    def set_policy(self, policy: str) -> None:
        file = self.root / f"{policy}.toml"
        file.write_bytes(POLICIES[policy])
        self.reg("policy", "set", str(file), "--yes")

    def refuse(self, version: str) -> None:
        """A later evaluation refuses a version."""
        file = self.root / f"refusal-{version}.json"
        artifact = self.tree.read(self.value(f"@manifest:{version}"))["artifacts"][1]["digest"]
        file.write_bytes(refusal_of(artifact))
        self.reg("attest", f"@model:{version}", "--report", str(file))

    def grow(self, count: str) -> None:
        """The publisher moves the channel `beta` so many times, without signing."""
        self._grown += int(count)
        shutil.rmtree(self.tree.root)
        shutil.copytree(self.histories.after(self.name, self._grown), self.tree.root)

    def seal(self) -> None:
        """More moves of the channel `beta` than the tail has lines."""
        for version in ("1.2.0", "1.4.0") * 35:
            self.reg("tag", f"@model:{version}", "beta")

    def copy_to(self, place: str) -> None:
        """Copy the tree."""
        shutil.copytree(self.tree.root, self.root / place)

    def at(self, place: str) -> None:
        """Go to another tree."""
        self.tree = Tree(self.world.tree if place == "tree" else self.root / place)

    def note(self, value: str) -> None:
        """Remember a value as `@noted`."""
        self._noted = self.value(value)

    def save(self) -> None:
        """Keep the index and the log of policies for `restore`."""
        for path in (self.file("index"), self._policies):
            if path.exists():
                shutil.copy(path, self.root / path.name)

    def restore(self, file: str = "index") -> None:
        self.tree.overwrite(self.file(file), (self.root / self.file(file).name).read_bytes())

    # the state line and the checkpoint, to which the state gets the new digest

    def _edit(self, path: str, change: Callable[[Any, str], None]) -> None:
        place, _, path = path.rpartition(":")
        if place:
            checkpoint = self.tree.read(self.value("@state:checkpoint"))
            change(checkpoint, path)
            digest = self.tree.put(canonical_json(checkpoint))
            self.tree.edit_state(self.name, lambda state: state.update(checkpoint=digest))
        if place != "checkpoint":
            self.tree.edit_state(self.name, lambda state: change(state, path))

    def set(self, path: str, value: str) -> None:
        made = self.value(value)
        self._edit(path, lambda table, path: _set(table, path, made))

    def delete(self, path: str) -> None:
        def change(table: Any, path: str) -> None:
            for below, key in list(_steps(table, path)):
                del below[key]

        self._edit(path, change)

    def copy(self, source: str, path: str) -> None:
        """Copy a value to another path of the same place."""

        def change(table: Any, path: str) -> None:
            below, key = next(_steps(table, source.rpartition(":")[2]))
            _set(table, path, below[key])

        self._edit(path, change)

    # lines

    def edit_line(self, position: str, key: str, value: str) -> None:
        """Change an event of the tail, and neither chain nor state."""
        made = self.value(value)
        self.tree.edit_line(self.name, int(position), lambda line: line["event"].update({key: made}))

    def put(self, position: str, source: str, *changes: str) -> None:
        """Put a copy of an event, with its signature, in the place of another one, or behind the last one (`+`)."""
        lines = self.tree.lines(self.name)
        made = self._with(lines[self._position(lines, source)], self._changes(changes))
        at = len(lines) if position == "+" else self._position(lines, position)
        self._lines(lambda lines: [*lines[:at], made, *lines[at + 1 :]])

    def append(self, kind: str, *changes: str) -> None:
        """Append an event of a kind."""
        self._append(self._event(kind, **self._changes(changes)))

    def drop(self, position: str) -> None:
        def change(lines: list[Line]) -> None:
            del lines[self._position(lines, position)]

        self._lines(change)

    def first_lines(self, count: str) -> None:
        """Only so many lines, or all but so many at the end."""
        self._lines(lambda lines: lines[: int(count)])

    def drop_about(self, version: str, kind: str = "") -> None:
        """Drop the events about the manifest of a version; only those of a kind, if one is given."""
        about = self.value(f"@manifest:{version}")

        def is_kept(event: Any) -> bool:
            return event.get("manifest") != about or kind not in ("", event["kind"])

        self._lines(lambda lines: [line for line in lines if is_kept(line["event"])])

    def swap(self, first: str, second: str) -> None:
        """Swap two lines; those that publish stay in front."""

        def change(lines: list[Line]) -> list[Line]:
            one, two = self._position(lines, first), self._position(lines, second)
            lines[one], lines[two] = lines[two], lines[one]
            return sorted(lines, key=lambda line: line["event"]["kind"] != "publish")

        self._lines(change)

    def keep(self, position: str) -> None:
        """Remember an event for `replay`."""
        lines = self.tree.lines(self.name)
        self._kept = lines[self._position(lines, position)]

    def replay(self, *changes: str) -> None:
        """Append the event that was kept, from what the channel holds now."""
        more = {"expects": self.value("@held"), **self._changes(changes)}
        self._append(self._with(unsigned(self._kept), more))

    # signatures

    def unsign(self, position: str) -> None:
        def change(lines: list[Line]) -> list[Line]:
            chosen = range(len(lines)) if position == "all" else [self._position(lines, position)]
            return [unsigned(line) if at in chosen else line for at, line in enumerate(lines)]

        self._lines(change)

    def sign(self, position: str, key: str) -> None:
        """Sign lines with a key: `release`, `lab`, `revoked` or `attacker`."""
        only = None if position == "all" else (int(position), None)
        self._lines(lambda lines: lines, getattr(self.world, key), only)

    def name_key(self, position: str, key: str) -> None:
        """Put the id of a key before the signature of a line."""
        lines = self.tree.lines(self.name)
        signature = lines[self._position(lines, position)]["sig"].partition(":")[2]
        self._signature(position, f"{getattr(self.world, key).public.id}:{signature}")

    def take_signature(self, position: str, source: str, model: str = "") -> None:
        """Give a line the signature of another one, of another model if one is named."""
        others = self.tree.lines(model or self.name)
        self._signature(position, others[self._position(others, source)]["sig"])

    def _signature(self, position: str, signature: str) -> None:
        self._lines(lambda lines: lines[self._position(lines, position)].update(sig=signature))

    # whole files

    def write(self, file: str, source: str) -> None:
        """Write the bytes of a file in the place of another one."""
        self.tree.overwrite(self.file(file), self.file(source).read_bytes())

    def swap_files(self, first: str, second: str) -> None:
        theirs = self.file(second).read_bytes()
        self.write(second, first)
        self.tree.overwrite(self.file(first), theirs)

    def lose(self, file: str) -> None:
        self.file(file).unlink()

    def cut(self, file: str, count: str) -> None:
        """Cut so many bytes off a file; `all` empties it."""
        data = self.file(file).read_bytes()
        self.tree.overwrite(self.file(file), b"" if count == "all" else data[: -int(count)])

    def garble(self, file: str, old: str = "", new: str = "") -> None:
        """Write other bytes of the same length; with `old` replace only these characters."""
        data = self.file(file).read_bytes()
        middle = data[:100] + b"AAAA" + data[104:] if len(data) > 104 else b"x" * len(data)
        self.tree.overwrite(self.file(file), data.replace(old.encode(), new.encode()) if old else middle)

    def make(self, text: str, times: str = "1", before: str = "", after: str = "") -> None:
        """Plant a blob of a text, so many times."""
        self._made = self.tree.put(f"{before}{text * int(times)}{after}".encode())

    def rename_from(self, model: str) -> None:
        """The log of another model under this name: its events say so, chain and state fit."""
        state, lines = self.tree.state(model), self.tree.lines(model)
        raw = chained([event(line, name=self.name) for line in lines], self.tree.id, self.name)
        state |= {"name": self.name, "head": digest_of(raw[-1])}
        self.tree.overwrite(
            self.file("index"), b"".join(row + b"\n" for row in [canonical_json(state), *raw])
        )

    def lines_of(self, tree: str) -> None:
        """Serve the lines of another copy (`old`), or of another registry (`elsewhere`), and chain them here."""
        self._lines(lambda lines: Tree(getattr(self.world, tree)).lines(self.name))

    def replace_registry(self) -> None:
        shutil.rmtree(self.tree.root)
        shutil.copytree(self.world.elsewhere, self.tree.root)

    # versions and statements

    def publish(self, version: str, manifest: str = "@forged") -> None:
        digest = self.value(manifest)
        about = {"version": version, "manifest": digest, "size": len(self.tree.blob(digest).read_bytes())}
        old = unsigned(self.tree.lines(self.name)[0])
        self._append(event(old, **about, nonce=token_hex(16)))

    def attest(self, manifest: str, statement: str) -> None:
        lines = self.tree.lines(self.name)
        old = lines[self._position(lines, "attest")]
        about = {"manifest": self.value(manifest), "statement": self.value(statement), "nonce": token_hex(16)}
        self._append(unsigned(event(old, **about)))

    def other_bytes(self, version: str) -> None:
        """Put a forged manifest in the place of a version's, in each event."""
        good, forged = self.value(f"@manifest:{version}"), self.value("@forged")
        swap = {"manifest": forged, "size": self.value(f"@size:{forged}")}

        def changed(line: Line) -> Line:
            if line["event"].get("manifest") != good:
                return line
            return event(line, **{key: swap[key] for key in swap.keys() & line["event"].keys()})

        self._lines(lambda lines: [changed(line) for line in lines])

    def release(self, version: str, key: str) -> None:
        """Plant a statement that the forged manifest is a version, signed with a key."""
        data = self.tree.blob(self.value("@forged")).read_bytes()
        statement = release_statement(self.name, Version.parse(version), data)
        self._made = self.tree.put(sign_statement(statement, getattr(self.world, key)).encode())

    def edit_release(self, version: str, *changes: str) -> None:
        """Plant the envelope of a version with an edited payload; its signatures stay."""

        def change(payload: Any) -> None:
            for word in changes:
                path, _, value = word.partition("=")
                made = self.value(value)
                _set(payload, path, made.removeprefix("sha256:") if path.endswith("sha256") else made)

        self._made = self.tree.edit_envelope(self.value(f"@release:{version}"), change)

    # the sealed part of a log

    def segment(self, change: str, *words: str) -> None:
        """Change the first segment, and give the state its new digest."""
        rows = self.tree.blob(self.value("@state:segments/0")).read_bytes().splitlines()
        made = self.tree.put(_segment(rows, change, *map(self.value, words)))
        self.tree.edit_state(self.name, lambda state: state.update(segments=[made]))

    # gates

    def evidence(self, version: str, *changes: str) -> None:
        """Evidence that anybody can write, in which everything was found to hold."""
        value = {
            "format": "onnxreg-evidence",
            "format_version": 1,
            "name": self.name,
            "channel": "stable",
            "version": version,
            "manifest": self.value(f"@manifest:{version}"),
            "policy": self.value("@policy"),
            "findings": [{"requirement": "certified", "verdict": "pass", "detail": "it is"}],
            "statements": [],
        }
        self._made = self.tree.put(canonical_json({**value, **self._changes(changes)}))

    def claim_certificate(self, version: str) -> None:
        """Attest a refusal as if it were a certificate."""
        artifact = self.tree.read(self.value(f"@manifest:{version}"))["artifacts"][1]["digest"]
        about = {"artifact": artifact, "state": "certified", "manifest": self.value(f"@manifest:{version}")}
        statement = self.tree.put(refusal_of(artifact))
        media_type = "application/vnd.onnxreg.evaluation.v1+json"
        self._append(self._event("attest", **about, statement=statement, media_type=media_type))

    def move(self, version: str, *changes: str) -> None:
        """Move `stable` by an event that a writer makes up."""
        about = {"tag": "stable", "version": version, "manifest": self.value(f"@manifest:{version}")}
        self._append(self._event("tag", **about, expects=self.value("@held"), **self._changes(changes)))

    def forge(self, version: str, policy: str = "@policy") -> None:
        """Move `stable` with an event and evidence as a promotion would write them."""
        named = self.value(policy)
        self.evidence(version, f"policy={named}")
        self.move(version, f"policy={named}", "evidence=@made")

    def promote_elsewhere(self, version: str, policy: str) -> None:
        """Keep the event of a promotion in another registry of the same versions, and bring its evidence here."""
        here = self.tree
        self.tree = Tree(filled(self.root / "another").store.root)
        self.set_policy(policy)
        self.reg("promote", f"@model:{version}", "stable")
        self.keep("tag:-1")
        evidence = self.tree.blob(self._kept["event"]["evidence"]).read_bytes()
        self.tree = here
        self.tree.put(evidence)

    def promote_other_model(self, version: str) -> None:
        """Keep the event of a real promotion of a model whose files are the same."""
        made = replace(draft(self.root / "draft", "b"), name="acme/other")
        Registry(self.tree.root).add(made, version)
        self.reg("promote", f"acme/other:{version}", "stable")
        lines = self.tree.lines("acme/other")
        self._kept = lines[self._position(lines, "tag:-1")]

    def policy(self, policy: str, registry: str = "") -> None:
        """Append a policy to the log, unsigned; for a registry that is named it is the only one. The chain fits."""
        rows = [] if registry else self._policies.read_bytes().splitlines(keepends=True)
        prev = genesis_of(self.value(registry), ".policy") if registry else self.value("@policy")
        made = self._event("policy", rules=tomllib.loads(POLICIES[policy].decode())["rule"])
        line = {**event(made, name=".policy"), "seq": len(rows) + 1, "prev": prev}
        self.tree.overwrite(self._policies, b"".join([*rows, canonical_json(line), b"\n"]))


def attack(registry: Registry, deeds: str, name: str = MODEL) -> None:
    """Do something to a model of a registry; see `Scene.do`."""
    root = registry.store.root
    world = World(root, root, root, *(generate("ed25519") for _ in range(3)))
    Scene(root.parent, world, name, Histories(root, root.parent)).do(deeds)


def _steps(value: Any, path: str) -> Iterator[tuple[Any, Any]]:
    """Yield each table and key that a path names; `*` is every item of a list."""
    first, _, rest = path.partition("/")
    keys = range(len(value)) if first == "*" else [int(first) if isinstance(value, list) else first]
    for key in keys:
        if rest:
            yield from _steps(value[key], rest)
        else:
            yield value, key


def _set(value: Any, path: str, made: Any) -> None:
    for table, key in list(_steps(value, path)):
        table[key] = made


def _segment(rows: list[bytes], change: str, *words: Any) -> bytes:
    """The bytes of a changed segment."""

    def edited(row: bytes, key: str, value: Any) -> bytes:
        line = json.loads(row)
        (line["event"] if key in ("time", "name", "kind") else line)[key] = value
        return canonical_json(line)

    match change:
        case "no-newline":
            return b"\n".join(rows)
        case "bytes":
            return (str(words[0]).encode("latin-1") * words[1] + b"\n") * len(rows)
        case "shorter":
            rows = rows[:-1]
        case "longer":
            rows = [*rows, rows[-1]]
        case "swapped":
            rows = [rows[1], rows[0], *rows[2:]]
        case "repeated":
            rows = [rows[0], rows[0], *rows[2:]]
        case "spaces":
            rows = [json.dumps(json.loads(row)).encode() for row in rows]
        case "edit":
            number, *edit = words
            rows[number] = edited(rows[number], *edit)
        case "edit-all":
            rows = [edited(row, *words) for row in rows]
        case "renumber":
            rows = [edited(row, "seq", at + 2) for at, row in enumerate(rows)]
    return b"".join(row + b"\n" for row in rows)


def files_of(tree: Path) -> dict[str, bytes]:
    """The bytes of each index and the names of the blobs: what a refused change leaves alone."""
    indexes = {str(path): path.read_bytes() for path in (tree / "index").rglob("*.jsonl")}
    return indexes | {str(path): b"" for path in (tree / "blobs").rglob("*") if path.is_file()}

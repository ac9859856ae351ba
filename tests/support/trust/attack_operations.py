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
    @evidence         what `evidence` planted last; @size:VALUE: the size of a blob; @id: the registry's id
    @noted            the value that was last noted
"""

import json
import shlex
import shutil
import tomllib
from collections.abc import Iterator
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
        yield patch


@dataclass(frozen=True)
class Histories:
    """Honest histories of a registry, which the tests of a session share: all trees that grow have one history."""

    source: Path
    root: Path

    def after(self, name: str, count: int) -> Path:
        """The tree after so many moves of the channel `beta`."""
        if not (self.root / name).exists():
            work = shutil.copytree(self.source, self.root / "work" / name)
            with _publisher(self.root):
                for number in range(max(GROWN) + 1):
                    if number in GROWN:
                        shutil.copytree(work, self.root / name / str(number))
                    Registry(work).tag(f"{name}:1.{number % 2}.0", "beta")
        return self.root / name / str(count)


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
        self._evidence: str | None = None
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
                table, key = _parent(self.tree.state(self.name), rest)
                return table[key]
            case "@held":
                return self.tree.state(self.name)["channels"].get("stable", {}).get("manifest")
            case "@policy":
                return digest_of(self._policies.read_bytes().splitlines()[-1])
            case "@noted":
                return self._noted
            case "@evidence":
                return self._evidence
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

    def _remake(self, lines: list[Line], *signed: Any) -> None:
        self.tree.remake(self.name, lines, *signed)

    def _append(self, *lines: Line) -> None:
        self._remake([*self.tree.lines(self.name), *lines])

    @property
    def _index(self) -> Path:
        return self.tree.index(self.name)

    @property
    def _policies(self) -> Path:
        return self.tree.root / "policy.jsonl"

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
        for path in (self._index, self._policies):
            if path.exists():
                shutil.copy(path, self.root / path.name)

    def restore(self) -> None:
        self.tree.overwrite(self._index, (self.root / self._index.name).read_bytes())

    def restore_policies(self) -> None:
        self.tree.overwrite(self._policies, (self.root / "policy.jsonl").read_bytes())

    # the state line

    def set(self, path: str, value: str) -> None:
        made = self.value(value)
        self.tree.edit_state(self.name, lambda state: _set(state, path, made))

    def delete(self, path: str) -> None:
        self.tree.edit_state(self.name, lambda state: _delete(state, path))

    def reverse(self, path: str) -> None:
        made = self.value(f"@state:{path}")[::-1]
        self.tree.edit_state(self.name, lambda state: _set(state, path, made))

    def copy(self, source: str, path: str) -> None:
        """Copy a value of the state line to another path."""
        made = self.value(f"@state:{source}")
        self.tree.edit_state(self.name, lambda state: _set(state, path, made))

    # lines

    def edit_line(self, position: str, key: str, value: str) -> None:
        """Change an event of the tail, and neither chain nor state."""
        made = self.value(value)
        self.tree.edit_line(self.name, int(position), lambda line: line["event"].update({key: made}))

    def event(self, position: str, *changes: str) -> None:
        """Change an event. Its signature stays."""
        lines = self.tree.lines(self.name)
        at = self._position(lines, position)
        lines[at] = self._with(lines[at], self._changes(changes))
        self._remake(lines)

    def put(self, position: str, source: str, *changes: str) -> None:
        """Put a copy of an event in the place of another one."""
        lines = self.tree.lines(self.name)
        made = self._with(lines[self._position(lines, source)], self._changes(changes))
        lines[self._position(lines, position)] = made
        self._remake(lines)

    def repeat(self, position: str, *changes: str) -> None:
        """Append a copy of an event."""
        lines = self.tree.lines(self.name)
        self._append(self._with(lines[self._position(lines, position)], self._changes(changes)))

    def append(self, kind: str, *changes: str) -> None:
        """Append an event of a kind."""
        self._append(self._event(kind, **self._changes(changes)))

    def drop(self, position: str) -> None:
        lines = self.tree.lines(self.name)
        del lines[self._position(lines, position)]
        self._remake(lines)

    def drop_last(self, count: str) -> None:
        self._remake(self.tree.lines(self.name)[: -int(count)])

    def drop_about(self, version: str, kind: str = "") -> None:
        """Drop the events about the manifest of a version; only those of a kind, if one is given."""
        about = self.value(f"@manifest:{version}")
        lines = self.tree.lines(self.name)
        self._remake(
            [
                line
                for line in lines
                if line["event"].get("manifest") != about or kind not in ("", line["event"]["kind"])
            ]
        )

    def swap(self, first: str, second: str) -> None:
        """Swap two lines; those that publish stay in front."""
        lines = self.tree.lines(self.name)
        one, two = self._position(lines, first), self._position(lines, second)
        lines[one], lines[two] = lines[two], lines[one]
        self._remake(sorted(lines, key=lambda line: line["event"]["kind"] != "publish"))

    def forget_sealed(self) -> None:
        """A log that begins anew with some lines of the old one."""
        self._remake(self.tree.lines(self.name)[:4])

    def keep(self, position: str) -> None:
        """Remember an event for `replay`."""
        lines = self.tree.lines(self.name)
        self._kept = lines[self._position(lines, position)]

    def replay(self, *changes: str) -> None:
        """Append the event that was kept, from what the channel holds now."""
        self._append(
            self._with(unsigned(self._kept), {"expects": self.value("@held"), **self._changes(changes)})
        )

    # signatures

    def unsign(self, position: str) -> None:
        lines = self.tree.lines(self.name)
        chosen = range(len(lines)) if position == "all" else [self._position(lines, position)]
        self._remake([unsigned(line) if at in chosen else line for at, line in enumerate(lines)])

    def sign(self, position: str, key: str) -> None:
        """Sign lines with a key: `release`, `lab`, `revoked` or `attacker`."""
        only = None if position == "all" else (int(position), None)
        self._remake(self.tree.lines(self.name), getattr(self.world, key), only)

    def name_key(self, position: str, key: str) -> None:
        """Put the id of a key before the signature of a line."""
        lines = self.tree.lines(self.name)
        at = self._position(lines, position)
        lines[at]["sig"] = f"{getattr(self.world, key).public.id}:{lines[at]['sig'].partition(':')[2]}"
        self._remake(lines)

    def take_signature(self, position: str, source: str, model: str = "") -> None:
        """Give a line the signature of another one, of another model if one is named."""
        lines, others = self.tree.lines(self.name), self.tree.lines(model or self.name)
        lines[self._position(lines, position)]["sig"] = others[self._position(others, source)]["sig"]
        self._remake(lines)

    # whole files

    def index_of(self, model: str) -> None:
        self.tree.overwrite(self._index, self.tree.index(model).read_bytes())

    def swap_indexes(self, model: str) -> None:
        ours, theirs = self._index.read_bytes(), self.tree.index(model).read_bytes()
        self.tree.overwrite(self._index, theirs)
        self.tree.overwrite(self.tree.index(model), ours)

    def rename_from(self, model: str) -> None:
        """The log of another model under this name: its events say so, chain and state fit."""
        state = self.tree.state(model)
        raw = chained(
            [event(line, name=self.name) for line in self.tree.lines(model)], self.tree.id, self.name
        )
        state |= {"name": self.name, "head": digest_of(raw[-1])}
        self.tree.overwrite(self._index, b"".join(row + b"\n" for row in [canonical_json(state), *raw]))

    def serve(self, tree: str) -> None:
        """Serve the index of another copy of the registry (`old`), or of another registry (`elsewhere`)."""
        self.tree.overwrite(self._index, Tree(getattr(self.world, tree)).index(self.name).read_bytes())

    def lines_of(self, tree: str) -> None:
        """Serve the lines of another copy, or of another registry, and chain them here."""
        self._remake(Tree(getattr(self.world, tree)).lines(self.name))

    def delete_index(self) -> None:
        self._index.unlink()

    def replace_registry(self) -> None:
        shutil.rmtree(self.tree.root)
        shutil.copytree(self.world.elsewhere, self.tree.root)

    # versions and statements

    def publish(self, version: str, manifest: str = "@forged") -> None:
        digest = self.value(manifest)
        old = unsigned(self.tree.lines(self.name)[0])
        size = (
            self.value(f"@size:{digest}")
            if manifest != "@forged"
            else len(self.tree.blob(digest).read_bytes())
        )
        self._append(event(old, version=version, manifest=digest, size=size, nonce=token_hex(16)))

    def attest(self, manifest: str, statement: str) -> None:
        lines = self.tree.lines(self.name)
        old = lines[self._position(lines, "attest")]
        about = {"manifest": self.value(manifest), "statement": self.value(statement), "nonce": token_hex(16)}
        self._append(unsigned(event(old, **about)))

    def other_bytes(self, version: str) -> None:
        """Put a forged manifest in the place of a version's, in each event."""
        good, forged = self.value(f"@manifest:{version}"), self.value("@forged")
        swap = {"manifest": forged, "size": self.value(f"@size:{forged}")}
        self._remake(
            [
                event(line, **{key: swap[key] for key in swap if key in line["event"]})
                if line["event"].get("manifest") == good
                else line
                for line in self.tree.lines(self.name)
            ]
        )

    def release(self, version: str, key: str) -> None:
        """Attest that the forged manifest is a version, signed with a key."""
        forged = self.value("@forged")
        data = self.tree.blob(forged).read_bytes()
        statement = release_statement(self.name, Version.parse(version), data)
        envelope = sign_statement(statement, getattr(self.world, key))
        self.attest(forged, self.tree.put(envelope.encode()))

    def edited_release(self, version: str, manifest: str, *changes: str) -> None:
        """Attest of a manifest an envelope whose payload is edited and whose signatures stay."""

        def change(payload: Any) -> None:
            for word in changes:
                path, _, value = word.partition("=")
                made = self.value(value)
                _set(payload, path, made.removeprefix("sha256:") if path.endswith("sha256") else made)

        forged = self.tree.edit_envelope(self.value(f"@release:{version}"), change)
        self.attest(self.value(manifest), forged)

    def certified_release(self, version: str) -> None:
        """Put an envelope that claims certificates in the place of a version's."""
        good = self.value(f"@release:{version}")

        def change(payload: Any) -> None:
            for artifact in payload["predicate"]["artifacts"]:
                artifact["certification"] = {"state": "certified"}

        forged = self.tree.edit_envelope(good, change)
        lines = self.tree.lines(self.name)
        self._remake(
            [
                event(line, statement=forged) if line["event"].get("statement") == good else line
                for line in lines
            ]
        )

    # blobs

    def lose(self, digest: str) -> None:
        self.tree.blob(self.value(digest)).unlink()

    def garble(self, digest: str, old: str = "", new: str = "") -> None:
        """Write other bytes of the same length under a digest; with `old` replace only these characters."""
        path = self.tree.blob(self.value(digest))
        data = path.read_bytes()
        middle = data[:100] + b"AAAA" + data[104:] if len(data) > 104 else b"x" * len(data)
        self.tree.overwrite(path, data.replace(old.encode(), new.encode()) if old else middle)

    def shorten(self, digest: str) -> None:
        path = self.tree.blob(self.value(digest))
        self.tree.overwrite(path, path.read_bytes()[:-1])

    def swap_blobs(self, first: str, second: str) -> None:
        one, two = (self.tree.blob(self.value(digest)) for digest in (first, second))
        ours, theirs = one.read_bytes(), two.read_bytes()
        self.tree.overwrite(one, theirs)
        self.tree.overwrite(two, ours)

    def forge_bytes(self, version: str) -> None:
        """Write the forged manifest under the digest of a version's."""
        forged = self.tree.blob(self.value("@forged")).read_bytes()
        self.tree.overwrite(self.tree.blob(self.value(f"@manifest:{version}")), forged)

    # the sealed part of a log

    def segment(self, change: str, *words: str) -> None:
        """Change the first segment, and give the state its new digest."""
        rows = self.tree.blob(self.value("@state:segments/0")).read_bytes().splitlines()
        made = self.tree.put(_segment(rows, change, *map(self.value, words)))
        self.tree.edit_state(self.name, lambda state: state.update(segments=[made]))

    def checkpoint(self, change: str, path: str, value: str = "null") -> None:
        """Change the versions of the checkpoint, and give the state its new digest."""
        checkpoint = self.tree.read(self.value("@state:checkpoint"))
        versions = checkpoint["versions"]
        match change:
            case "set":
                _set(versions, path, self.value(value))
            case "delete":
                _delete(versions, path)
            case "copy":
                _set(versions, value, versions[path])
            case "swap":
                versions[path], versions[value] = versions[value], versions[path]
        self._checkpoint(canonical_json(checkpoint))

    def tables(self, path: str, value: str) -> None:
        """Set a value in the checkpoint and in the state line."""
        checkpoint, made = self.tree.read(self.value("@state:checkpoint")), self.value(value)
        _set(checkpoint, path, made)
        self._checkpoint(canonical_json(checkpoint))
        self.tree.edit_state(self.name, lambda state: _set(state, path, made))

    def checkpoint_bytes(self, text: str, times: str = "1") -> None:
        self._checkpoint(text.encode() * int(times))

    def checkpoint_zeros(self, count: str) -> None:
        self._checkpoint(b"[" + b"0," * int(count) + b"0]")

    def _checkpoint(self, data: bytes) -> None:
        made = self.tree.put(data)
        self.tree.edit_state(self.name, lambda state: state.update(checkpoint=made))

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
        self._evidence = self.tree.put(canonical_json({**value, **self._changes(changes)}))

    def evidence_bytes(self, text: str) -> None:
        self._evidence = self.tree.put(text.encode())

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
        self.move(version, f"policy={named}", "evidence=@evidence")

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

    def write_policies(self, policy: str, registry: str = "@id") -> None:
        """Write a log of one policy, whose chain fits."""
        rules = tomllib.loads(POLICIES[policy].decode())["rule"]
        line = {**self._policy_event(rules), "seq": 1, "prev": genesis_of(self.value(registry), ".policy")}
        self.tree.overwrite(self._policies, canonical_json(line) + b"\n")

    def append_policy(self, policy: str) -> None:
        """Append a policy to the log, unsigned."""
        rules = tomllib.loads(POLICIES[policy].decode())["rule"]
        data = self._policies.read_bytes()
        seq = len(data.splitlines()) + 1
        line = {**self._policy_event(rules), "seq": seq, "prev": self.value("@policy")}
        self.tree.overwrite(self._policies, data + canonical_json(line) + b"\n")

    def _policy_event(self, rules: Any) -> Line:
        made = self._event("policy", rules=rules)
        return event(made, name=".policy")

    def policy_bytes(self, cut: str) -> None:
        """Cut so many bytes off the log of policies; `all` empties it."""
        data = self._policies.read_bytes()
        self.tree.overwrite(self._policies, b"" if cut == "all" else data[: -int(cut)])

    def delete_policies(self) -> None:
        self._policies.unlink()


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


def _parent(value: Any, path: str) -> tuple[Any, Any]:
    return next(_steps(value, path))


def _set(value: Any, path: str, made: Any) -> None:
    for table, key in list(_steps(value, path)):
        table[key] = made


def _delete(value: Any, path: str) -> None:
    for table, key in list(_steps(value, path)):
        del table[key]


def _segment(rows: list[bytes], change: str, *words: Any) -> bytes:
    """The bytes of a changed segment."""

    def joined(lines: list[bytes]) -> bytes:
        return b"".join(line + b"\n" for line in lines)

    def edited(row: bytes, key: str, value: Any) -> bytes:
        line = json.loads(row)
        (line["event"] if key in ("time", "name", "kind") else line)[key] = value
        return canonical_json(line)

    match change:
        case "shorter":
            return joined(rows[:-1])
        case "longer":
            return joined([*rows, rows[-1]])
        case "swapped":
            return joined([rows[1], rows[0], *rows[2:]])
        case "repeated":
            return joined([rows[0], rows[0], *rows[2:]])
        case "no-newline":
            return b"\n".join(rows)
        case "spaces":
            return joined([json.dumps(json.loads(row)).encode() for row in rows])
        case "bytes":
            return (str(words[0]).encode("latin-1") * words[1] + b"\n") * len(rows)
        case "edit":
            number, key, value = words
            return joined([edited(row, key, value) if at == number else row for at, row in enumerate(rows)])
        case "edit-all":
            return joined([edited(row, *words) for row in rows])
        case "renumber":
            return joined([edited(row, "seq", at + 2) for at, row in enumerate(rows)])
    raise AssertionError(change)


def files_of(tree: Path) -> dict[str, bytes]:
    """The bytes of each index and the names of the blobs: what a refused change leaves alone."""
    indexes = {str(path): path.read_bytes() for path in (tree / "index").rglob("*.jsonl")}
    return indexes | {str(path): b"" for path in (tree / "blobs").rglob("*") if path.is_file()}

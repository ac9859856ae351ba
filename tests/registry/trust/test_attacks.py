"""What somebody can do who may write to the store but has none of the keys, and who notices.

Each attack edits files. Readers: `new` knows nothing; `seen` looked at the registry before and trusts no key; `strict` never saw it, and its
trust file wants lines and versions signed; `versions` wants only versions signed. The words are what the verb must say,
at exit status 4; an empty text is a verb that cannot notice, which docs/threat-model.md explains.
"""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.trust.tamper import Tree, event, kinds, unsigned
from support.trust.world import LONG, MODEL, OTHER, World

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.signing import sign_release
from onnxreg.schema.core import canonical
from onnxreg.schema.core.ref import Version

Do = Callable[[World, Tree], None]
STRICT = ("[[require]]", 'models = ["acme/*"]', "lines = true", "versions = true")
VERSIONS = ("[[require]]", 'models = ["acme/*"]', "versions = true")
NOT_NOTICED = ""


@dataclass(frozen=True)
class Attack:
    """What is done, who looks, and what each verb says of it. `ref` is what is resolved and pulled."""

    do: Do
    reader: str
    resolve: str
    pull: str
    verify: str
    ref: str = MODEL


def point_stable_back(world: World, tree: Tree) -> None:
    def change(state: dict) -> None:  # type: ignore[type-arg]
        entry = state["versions"]["1.0.0"]
        state["channels"]["stable"] |= {"version": "1.0.0", "manifest": entry["manifest"]}

    tree.edit_state(MODEL, change)


def point_version_elsewhere(world: World, tree: Tree) -> None:
    forged = tree.forge_version(MODEL, "1.1.0")

    def change(state: dict) -> None:  # type: ignore[type-arg]
        state["versions"]["1.1.0"]["manifest"] = state["summaries"]["1.1.0"]["manifest"] = forged
        state["channels"]["stable"]["manifest"] = forged
        state["versions"]["1.1.0"]["size"] = len(tree.blob(forged).read_bytes())

    tree.edit_state(MODEL, change)


def take_back_a_yank(world: World, tree: Tree) -> None:
    def change(state: dict) -> None:  # type: ignore[type-arg]
        state["versions"]["0.9.0"].pop("yanks")

    tree.edit_state(MODEL, change)


def invent_a_version(world: World, tree: Tree) -> None:
    forged = tree.forge_version(MODEL, "1.1.0")

    def change(state: dict) -> None:  # type: ignore[type-arg]
        state["versions"]["2.0.0"] = {"manifest": forged, "size": 1, "seq": state["seq"]}
        state["newest"].insert(0, "2.0.0")
        state["summaries"]["2.0.0"] = {**state["summaries"]["1.1.0"], "manifest": forged}

    tree.edit_state(MODEL, change)


def plant_files_in_the_summary(world: World, tree: Tree) -> None:
    planted = tree.put(b"weights with a back door")

    def change(state: dict) -> None:  # type: ignore[type-arg]
        for artifact in state["summaries"]["1.1.0"]["artifacts"]:
            artifact |= {"digest": planted, "size": 24}

    tree.edit_state(MODEL, change)


def claim_a_certificate_in_the_summary(world: World, tree: Tree) -> None:
    def change(state: dict) -> None:  # type: ignore[type-arg]
        for artifact in state["summaries"]["1.1.0"]["artifacts"]:
            artifact["state"] = "certified"

    tree.edit_state(MODEL, change)


def claim_another_head(world: World, tree: Tree) -> None:
    tree.edit_state(MODEL, lambda state: state.update(seq=state["seq"] + 1))


def edit_a_line(world: World, tree: Tree) -> None:
    tree.edit_line(MODEL, 3, lambda line: line["event"].update(time="2020-01-01T00:00:00Z"))


def edit_a_line_and_its_chain(world: World, tree: Tree) -> None:
    lines = tree.lines(MODEL)
    lines[2] = event(lines[2], time="2020-01-01T00:00:00Z")
    tree.remake(MODEL, lines)


def claim_another_actor(world: World, tree: Tree) -> None:
    lines = tree.lines(MODEL)
    lines[-1] = event(lines[-1], actor="the head of quality")
    tree.remake(MODEL, lines)


def drop_the_last_line(world: World, tree: Tree) -> None:
    tree.remake(MODEL, tree.lines(MODEL)[:-1])


def drop_a_line_in_the_middle(world: World, tree: Tree) -> None:
    lines = tree.lines(MODEL)
    del lines[kinds(lines, "attest")[0]]
    tree.remake(MODEL, lines)


def hide_the_yank(world: World, tree: Tree) -> None:
    """And put something harmless in its place, so that the log is no shorter."""
    lines = tree.lines(MODEL)
    lines[kinds(lines, "yank")[0]] = event(lines[1], reason="once more")
    tree.remake(MODEL, lines)


def swap_two_lines(world: World, tree: Tree) -> None:
    lines = tree.lines(MODEL)
    first, second = kinds(lines, "attest")[:2]
    lines[first], lines[second] = lines[second], lines[first]
    tree.remake(MODEL, sorted(lines, key=lambda line: line["event"]["kind"] != "publish"))


def replay_an_old_event(world: World, tree: Tree) -> None:
    """The signed move of `stable` to 1.0.0 is appended once more."""
    lines = tree.lines(MODEL)
    held = tree.state(MODEL)["channels"]["stable"]["manifest"]
    tree.remake(MODEL, [*lines, event(lines[kinds(lines, "tag")[0]], expects=held)])


def serve_last_month(world: World, tree: Tree) -> None:
    tree.overwrite(tree.index(MODEL), Tree(world.old).index(MODEL).read_bytes())


def serve_last_month_of_a_long_log(world: World, tree: Tree) -> None:
    tree.remake(LONG, tree.lines(LONG)[:20])


def rewrite_all_from_a_backup(world: World, tree: Tree) -> None:
    """Back to last month, and as many other lines as there were since."""
    lines = Tree(world.old).lines(MODEL)
    more = [event(lines[1], reason=f"again {number}") for number in range(3)]
    tree.remake(MODEL, [*lines, *more])


def strip_the_last_signature(world: World, tree: Tree) -> None:
    lines = tree.lines(MODEL)
    tree.remake(MODEL, [*lines[:-1], unsigned(lines[-1])])


def strip_all_signatures(world: World, tree: Tree) -> None:
    tree.remake(MODEL, [unsigned(line) for line in tree.lines(MODEL)])


def sign_all_with_another_key(world: World, tree: Tree) -> None:
    tree.remake(MODEL, tree.lines(MODEL), world.attacker)


def name_the_trusted_key(world: World, tree: Tree) -> None:
    """Signed by the attacker, under the id of the trusted key."""
    lines = tree.lines(MODEL)
    tree.remake(MODEL, lines, world.attacker)
    made = tree.lines(MODEL)
    name = world.release.public.id
    made[-1]["sig"] = f"{name}:{made[-1]['sig'].partition(':')[2]}"
    tree.remake(MODEL, made)


def reuse_the_signature_of_a_line(world: World, tree: Tree) -> None:
    lines = tree.lines(MODEL)
    lines[-1]["sig"] = lines[-2]["sig"]
    tree.remake(MODEL, lines)


def reuse_the_signature_of_another_model(world: World, tree: Tree) -> None:
    lines = tree.lines(MODEL)
    lines[1]["sig"] = tree.lines(OTHER)[1]["sig"]
    tree.remake(MODEL, lines)


def bring_lines_of_another_registry(world: World, tree: Tree) -> None:
    """Signed by the same key, but for another registry of the same publisher."""
    tree.remake(MODEL, Tree(world.elsewhere).lines(MODEL))


def bring_the_index_of_another_registry(world: World, tree: Tree) -> None:
    tree.overwrite(tree.index(MODEL), Tree(world.elsewhere).index(MODEL).read_bytes())


def give_a_model_the_index_of_another(world: World, tree: Tree) -> None:
    tree.overwrite(tree.index(MODEL), tree.index(OTHER).read_bytes())


def swap_two_models(world: World, tree: Tree) -> None:
    ours, theirs = tree.index(MODEL).read_bytes(), tree.index(OTHER).read_bytes()
    tree.overwrite(tree.index(MODEL), theirs)
    tree.overwrite(tree.index(OTHER), ours)


def rename_a_model(world: World, tree: Tree) -> None:
    """The log of another model under this name: its events say so, chain and state fit."""
    state = tree.state(OTHER)
    lines = tree.remade([event(line, name=MODEL) for line in tree.lines(OTHER)], MODEL)
    state |= {"name": MODEL, "head": str(lines[-1].digest)}
    rows = [canonical.encode(state), *(line.raw for line in lines)]
    tree.overwrite(tree.index(MODEL), b"".join(row + b"\n" for row in rows))


def delete_a_model(world: World, tree: Tree) -> None:
    tree.index(MODEL).unlink()


def become_another_registry(world: World, tree: Tree) -> None:
    path = tree.root / "registry.json"
    value = json.loads(path.read_bytes())
    tree.overwrite(path, json.dumps({**value, "id": "0" * 32}).encode())


def append_a_version(world: World, tree: Tree) -> None:
    tree.remake(MODEL, [*tree.lines(MODEL), _publish(tree, "2.0.0")])


def append_a_version_signed_by_a_stranger(world: World, tree: Tree) -> None:
    lines = [*tree.lines(MODEL), _publish(tree, "2.0.0")]
    tree.remake(MODEL, lines, world.attacker, (-1, None))


def append_a_version_signed_by_a_revoked_key(world: World, tree: Tree) -> None:
    lines = [*tree.lines(MODEL), _publish(tree, "2.0.0")]
    tree.remake(MODEL, lines, world.revoked, (-1, None))


def append_a_version_signed_for_other_models(world: World, tree: Tree) -> None:
    lines = [*tree.lines(MODEL), _publish(tree, "2.0.0")]
    tree.remake(MODEL, lines, world.lab, (-1, None))


def publish_other_bytes_under_a_version(world: World, tree: Tree) -> None:
    forged = tree.forge_version(MODEL, "1.1.0")
    size = len(tree.blob(forged).read_bytes())
    good = tree.state(MODEL)["versions"]["1.1.0"]["manifest"]
    swap = {"manifest": forged, "size": size}
    lines = [
        event(line, **{key: swap[key] for key in swap if key in line["event"]})
        if line["event"].get("manifest") == good
        else line
        for line in tree.lines(MODEL)
    ]
    tree.remake(MODEL, lines)


def _publish(tree: Tree, version: str) -> dict:  # type: ignore[type-arg]
    forged = tree.forge_version(MODEL, "1.1.0")
    old = tree.lines(MODEL)[0]
    size = len(tree.blob(forged).read_bytes())
    return unsigned(event(old, version=version, manifest=forged, size=size, nonce="f" * 32))


def _attest(tree: Tree, manifest: str, statement: str) -> dict:  # type: ignore[type-arg]
    lines = tree.lines(MODEL)
    old = lines[kinds(lines, "attest")[0]]
    return unsigned(event(old, manifest=manifest, statement=statement, nonce="e" * 32))


def _release(tree: Tree, version: str = "1.1.0") -> tuple[str, str]:
    """The manifest of a version, and the envelope of its signature."""
    manifest = tree.state(MODEL)["versions"][version]["manifest"]
    found = [line["event"] for line in tree.lines(MODEL) if line["event"].get("manifest") == manifest]
    return manifest, next(each["statement"] for each in found if each["kind"] == "attest")


def reuse_the_release_of_another_version(world: World, tree: Tree) -> None:
    """A forged version comes with the envelope of a good one."""
    publish = _publish(tree, "2.0.0")
    forged = publish["event"]["manifest"]
    tree.remake(MODEL, [*tree.lines(MODEL), publish, _attest(tree, forged, _release(tree)[1])])


def forge_the_payload_of_a_release(world: World, tree: Tree) -> None:
    publish = _publish(tree, "2.0.0")
    forged = publish["event"]["manifest"]
    hexed = forged.removeprefix("sha256:")

    def change(payload: dict) -> None:  # type: ignore[type-arg]
        payload["subject"][0]["digest"]["sha256"] = hexed
        payload["predicate"]["version"] = "2.0.0"

    envelope = tree.edit_envelope(_release(tree)[1], change)
    tree.remake(MODEL, [*tree.lines(MODEL), publish, _attest(tree, forged, envelope)])


def release_by_a_stranger(world: World, tree: Tree) -> None:
    publish = _publish(tree, "2.0.0")
    forged = publish["event"]["manifest"]
    data = tree.blob(forged).read_bytes()
    envelope = tree.put(sign_release(MODEL, Version.parse("2.0.0"), data, world.attacker).encode())
    tree.remake(MODEL, [*tree.lines(MODEL), publish, _attest(tree, forged, envelope)])


def release_by_a_revoked_key(world: World, tree: Tree) -> None:
    publish = _publish(tree, "2.0.0")
    forged = publish["event"]["manifest"]
    data = tree.blob(forged).read_bytes()
    envelope = tree.put(sign_release(MODEL, Version.parse("2.0.0"), data, world.revoked).encode())
    tree.remake(MODEL, [*tree.lines(MODEL), publish, _attest(tree, forged, envelope)])


def release_for_other_models(world: World, tree: Tree) -> None:
    publish = _publish(tree, "2.0.0")
    forged = publish["event"]["manifest"]
    data = tree.blob(forged).read_bytes()
    envelope = tree.put(sign_release(MODEL, Version.parse("2.0.0"), data, world.lab).encode())
    tree.remake(MODEL, [*tree.lines(MODEL), publish, _attest(tree, forged, envelope)])


def give_an_old_version_a_new_number(world: World, tree: Tree) -> None:
    """A signed manifest of an earlier version is published again, as the newest version."""
    manifest, envelope = _release(tree, "1.0.0")
    publish = _publish(tree, "2.0.0")
    publish["event"] |= {"manifest": manifest, "size": len(tree.blob(manifest).read_bytes())}
    tree.remake(MODEL, [*tree.lines(MODEL), publish, _attest(tree, manifest, envelope)])


def plant_a_certificate_in_a_release(world: World, tree: Tree) -> None:
    _, envelope = _release(tree)

    def change(payload: dict) -> None:  # type: ignore[type-arg]
        for artifact in payload["predicate"]["artifacts"]:
            artifact["certification"] = {"state": "certified"}

    forged = tree.edit_envelope(envelope, change)
    lines = [
        event(line, statement=forged) if line["event"].get("statement") == envelope else line
        for line in tree.lines(MODEL)
    ]
    tree.remake(MODEL, lines)


def strip_the_release(world: World, tree: Tree) -> None:
    manifest = _release(tree)[0]
    found = [(line["event"]["kind"], line["event"].get("manifest")) for line in tree.lines(MODEL)]
    lines = [line for line, key in zip(tree.lines(MODEL), found, strict=True) if key != ("attest", manifest)]
    tree.remake(MODEL, lines)


def strip_the_release_and_all_signatures(world: World, tree: Tree) -> None:
    strip_the_release(world, tree)
    strip_all_signatures(world, tree)


def hide_the_yank_and_strip_all_signatures(world: World, tree: Tree) -> None:
    hide_the_yank(world, tree)
    strip_all_signatures(world, tree)


def move_a_channel_and_strip_all_signatures(world: World, tree: Tree) -> None:
    replay_an_old_event(world, tree)
    strip_all_signatures(world, tree)


def hide_a_version_and_strip_all_signatures(world: World, tree: Tree) -> None:
    """All that the log says of 1.1.0 is gone."""
    hidden = tree.state(MODEL)["versions"]["1.1.0"]["manifest"]
    lines = [unsigned(line) for line in tree.lines(MODEL)]
    tree.remake(MODEL, [line for line in lines if line["event"].get("manifest") != hidden])


def garble_an_envelope(world: World, tree: Tree) -> None:
    path = tree.blob(_release(tree)[1])
    data = path.read_bytes()
    tree.overwrite(path, data[:100] + b"AAAA" + data[104:])


def lose_an_envelope(world: World, tree: Tree) -> None:
    tree.blob(_release(tree)[1]).unlink()


def _weights(tree: Tree) -> Path:
    return tree.blob(tree.read(_release(tree)[0])["artifacts"][-1]["digest"])


def replace_the_weights(world: World, tree: Tree) -> None:
    size = _weights(tree).stat().st_size
    tree.overwrite(_weights(tree), b"x" * size)


def swap_two_blobs(world: World, tree: Tree) -> None:
    first, second = (tree.blob(item["digest"]) for item in tree.read(_release(tree)[0])["artifacts"][:2])
    ours, theirs = first.read_bytes(), second.read_bytes()
    tree.overwrite(first, theirs)
    tree.overwrite(second, ours)


def cut_a_blob_short(world: World, tree: Tree) -> None:
    tree.overwrite(_weights(tree), _weights(tree).read_bytes()[:-1])


def forge_the_manifest(world: World, tree: Tree) -> None:
    forged = tree.forge_version(MODEL, "1.1.0")
    tree.overwrite(tree.blob(_release(tree)[0]), tree.blob(forged).read_bytes())


def replace_a_segment(world: World, tree: Tree) -> None:
    segment = tree.state(LONG)["segments"][0]
    rows = tree.blob(segment).read_bytes().split(b"\n")
    value = json.loads(rows[2])
    value["event"]["time"] = "2020-01-01T00:00:00Z"
    rows[2] = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    forged = tree.put(b"\n".join(rows))
    tree.edit_state(LONG, lambda state: state.update(segments=[forged]))


def replace_the_catalog(world: World, tree: Tree) -> None:
    catalog = tree.read(tree.state(LONG)["catalog"])
    catalog["1.0.0"]["manifest"] = catalog["1.1.0"]["manifest"]
    forged = tree.put(json.dumps(catalog, sort_keys=True, separators=(",", ":")).encode())
    tree.edit_state(LONG, lambda state: state.update(catalog=forged))


def forget_the_sealed_lines(world: World, tree: Tree) -> None:
    """A log that begins anew with the lines of the tail."""
    lines = tree.lines(LONG)
    tree.remake(LONG, [lines[0], *lines[64:]] if lines[64]["event"]["kind"] == "publish" else lines[:4])


STATE, LOG = "not what its log says", "not what a replay of the log gives"
MOVED, WROTE = "moved without an event", "history of acme/pii was rewritten"
WRONG, MUST = "the signature of line", "must be signed by a trusted key"
BACK, CHAIN = "went back in time", "is broken at line"
INDEX = "the index of acme/pii belongs to"

ATTACKS = {
    # the state line alone
    "a channel is pointed back, as seen": Attack(
        point_stable_back, "seen", MOVED, MOVED, LOG, f"{MODEL}:stable"
    ),
    "a channel is pointed back": Attack(point_stable_back, "strict", MOVED, MOVED, LOG, f"{MODEL}:stable"),
    "a version is pointed elsewhere, as seen": Attack(
        point_version_elsewhere,
        "seen",
        "not the version that the log published|without an event",
        "without an event",
        LOG,
    ),
    "a version is pointed elsewhere": Attack(point_version_elsewhere, "strict", MOVED, MOVED, LOG),
    "a yank is taken back, as seen": Attack(
        take_back_a_yank,
        "seen",
        "changed without an event",
        "changed without an event",
        LOG,
        f"{MODEL}:0.9.0",
    ),
    "a yank is taken back": Attack(
        take_back_a_yank, "strict", "was yanked", "was yanked", LOG, f"{MODEL}:0.9.0"
    ),
    "a version is invented, as seen": Attack(
        invent_a_version, "seen", "not the version", "not the version", LOG
    ),
    "a version is invented": Attack(invent_a_version, "strict", "not the version", "not the version", LOG),
    "files are planted in a summary, as seen": Attack(
        plant_files_in_the_summary, "seen", "says other things", "says other things", LOG
    ),
    "files are planted in a summary": Attack(plant_files_in_the_summary, "strict", STATE, STATE, LOG),
    "a certificate is claimed in a summary, as seen": Attack(
        claim_a_certificate_in_the_summary, "seen", "says other things", "says other things", LOG
    ),
    "a certificate is claimed in a summary": Attack(
        claim_a_certificate_in_the_summary, "strict", STATE, STATE, LOG
    ),
    "another head is claimed": Attack(
        claim_another_head, "seen", "does not end in the head", "does not end in the head", "does not end"
    ),
    # the lines
    "a line is edited": Attack(edit_a_line, "seen", CHAIN, CHAIN, CHAIN),
    "a line and its chain are edited, as seen": Attack(
        edit_a_line_and_its_chain, "seen", WROTE, WROTE, WROTE
    ),
    "a line and its chain are edited": Attack(edit_a_line_and_its_chain, "strict", WRONG, WRONG, WRONG),
    "another actor is claimed, as seen": Attack(claim_another_actor, "seen", WROTE, WROTE, WROTE),
    "another actor is claimed": Attack(claim_another_actor, "strict", WRONG, WRONG, WRONG),
    "the last line is dropped, as seen": Attack(drop_the_last_line, "seen", BACK, BACK, BACK),
    "the last line is dropped": Attack(drop_the_last_line, "strict", NOT_NOTICED, NOT_NOTICED, NOT_NOTICED),
    "a line is dropped, as seen": Attack(drop_a_line_in_the_middle, "seen", WROTE, WROTE, WROTE),
    "a line is dropped": Attack(drop_a_line_in_the_middle, "strict", WRONG, WRONG, WRONG),
    "a yank is hidden, as seen": Attack(hide_the_yank, "seen", WROTE, WROTE, WROTE),
    "a yank is hidden": Attack(hide_the_yank, "strict", WRONG, WRONG, WRONG),
    "lines are swapped, as seen": Attack(swap_two_lines, "seen", WROTE, WROTE, WROTE),
    "lines are swapped": Attack(swap_two_lines, "strict", WRONG, WRONG, WRONG),
    "an old event is replayed": Attack(replay_an_old_event, "strict", WRONG, WRONG, WRONG, f"{MODEL}:stable"),
    "an old event is replayed, for who trusts no key": Attack(
        replay_an_old_event, "seen", NOT_NOTICED, NOT_NOTICED, NOT_NOTICED, f"{MODEL}:stable"
    ),
    # older histories
    "last month's index, as seen": Attack(serve_last_month, "seen", BACK, BACK, BACK),
    "last month's index": Attack(serve_last_month, "strict", NOT_NOTICED, NOT_NOTICED, NOT_NOTICED),
    "last month's index of a long log, as seen": Attack(
        serve_last_month_of_a_long_log,
        "seen",
        "went back|was rewritten",
        "went back|was rewritten",
        "went back|rewritten",
        LONG,
    ),
    "a backup with other lines, as seen": Attack(rewrite_all_from_a_backup, "seen", WROTE, WROTE, WROTE),
    "a backup with other lines": Attack(rewrite_all_from_a_backup, "strict", WRONG, WRONG, WRONG),
    "a model is deleted, as seen": Attack(delete_a_model, "seen", "is gone", "is gone", NOT_NOTICED),
    # signatures of lines
    "the last signature is stripped, as seen": Attack(strip_the_last_signature, "seen", WROTE, WROTE, WROTE),
    "the last signature is stripped": Attack(strip_the_last_signature, "strict", MUST, MUST, MUST),
    "all signatures are stripped, as seen": Attack(strip_all_signatures, "seen", WROTE, WROTE, WROTE),
    "all signatures are stripped": Attack(strip_all_signatures, "strict", MUST, MUST, MUST),
    "all is signed by a stranger": Attack(sign_all_with_another_key, "strict", MUST, MUST, MUST),
    "a stranger signs under a trusted name": Attack(name_the_trusted_key, "strict", MUST, MUST, MUST),
    "the signature of another line": Attack(reuse_the_signature_of_a_line, "strict", WRONG, WRONG, WRONG),
    "the signature of another model's line": Attack(
        reuse_the_signature_of_another_model, "strict", WRONG, WRONG, WRONG
    ),
    "lines of another registry, as seen": Attack(
        bring_lines_of_another_registry, "seen", WROTE, WROTE, WROTE
    ),
    "lines of another registry": Attack(bring_lines_of_another_registry, "strict", WRONG, WRONG, WRONG),
    # whole files
    "the index of another registry": Attack(
        bring_the_index_of_another_registry, "seen", "another registry", "another registry", "belongs to"
    ),
    "the index of another model": Attack(
        give_a_model_the_index_of_another, "seen", "belongs to acme/ner", "belongs to acme/ner", INDEX
    ),
    "the indexes of two models are swapped": Attack(
        swap_two_models, "strict", "belongs to acme/ner", "belongs to acme/ner", INDEX
    ),
    "a model is renamed, as seen": Attack(rename_a_model, "seen", WROTE, WROTE, "rewritten"),
    "a model is renamed": Attack(rename_a_model, "strict", WRONG, WRONG, WRONG),
    # versions of the attacker's
    "a version is appended": Attack(append_a_version, "strict", MUST, MUST, MUST),
    "a version is appended, where only versions are signed": Attack(
        append_a_version, "versions", "nobody signed it", "nobody signed it", "2.0.0 is not signed"
    ),
    "a version is appended, for who trusts no key": Attack(
        append_a_version, "seen", NOT_NOTICED, NOT_NOTICED, NOT_NOTICED
    ),
    "a version is appended by a stranger": Attack(
        append_a_version_signed_by_a_stranger, "strict", "unknown key", "unknown key", "unknown key"
    ),
    "a version is appended with a revoked key": Attack(
        append_a_version_signed_by_a_revoked_key, "strict", "laptop stolen", "laptop stolen", "laptop stolen"
    ),
    "a version is appended with a key for other models": Attack(
        append_a_version_signed_for_other_models,
        "strict",
        "does not sign acme",
        "does not sign",
        "does not sign",
    ),
    "other bytes under a version, as seen": Attack(
        publish_other_bytes_under_a_version, "seen", WROTE, WROTE, WROTE
    ),
    "other bytes under a version": Attack(publish_other_bytes_under_a_version, "strict", WRONG, WRONG, WRONG),
    "the release of another version": Attack(
        reuse_the_release_of_another_version,
        "versions",
        "it is about manifest",
        "it is about manifest",
        "about manifest",
    ),
    "a release with another payload": Attack(
        forge_the_payload_of_a_release,
        "versions",
        "did not sign this",
        "did not sign this",
        "did not sign this",
    ),
    "a release by a stranger": Attack(
        release_by_a_stranger, "versions", "unknown key", "unknown key", "2.0.0 is not"
    ),
    "a release with a revoked key": Attack(
        release_by_a_revoked_key, "versions", "laptop stolen", "laptop stolen", "2.0.0 is not signed"
    ),
    "a release with a key for other models": Attack(
        release_for_other_models, "versions", "does not sign", "does not sign", "2.0.0 is not signed"
    ),
    "an old version under a new number": Attack(
        give_an_old_version_a_new_number,
        "versions",
        "must be signed",
        "must be signed",
        "2.0.0 is not signed",
    ),
    "a certificate is planted in a release": Attack(
        plant_a_certificate_in_a_release,
        "versions",
        "did not sign this",
        "did not sign this",
        "did not sign this",
    ),
    "a release is stripped, as seen": Attack(
        strip_the_release, "seen", WROTE + "|" + BACK, WROTE + "|" + BACK, WROTE + "|" + BACK
    ),
    "a release is stripped": Attack(strip_the_release, "versions", WRONG, WRONG, WRONG),
    "a release and all signatures of lines are stripped": Attack(
        strip_the_release_and_all_signatures,
        "versions",
        "nobody signed it",
        "nobody signed it",
        "1.1.0 is not signed",
    ),
    "a yank is taken back, where only versions are signed": Attack(
        hide_the_yank_and_strip_all_signatures, "versions", NOT_NOTICED, NOT_NOTICED, NOT_NOTICED
    ),
    "a channel is moved, where only versions are signed": Attack(
        move_a_channel_and_strip_all_signatures,
        "versions",
        NOT_NOTICED,
        NOT_NOTICED,
        NOT_NOTICED,
        f"{MODEL}:stable",
    ),
    "a version is hidden, where only versions are signed": Attack(
        hide_a_version_and_strip_all_signatures, "versions", NOT_NOTICED, NOT_NOTICED, NOT_NOTICED
    ),
    "an envelope is garbled": Attack(
        garble_an_envelope, "versions", "is damaged", "is damaged", "other bytes"
    ),
    "an envelope is lost": Attack(lose_an_envelope, "versions", "is not in", "is not in", "is not there"),
    # bytes
    "weights are replaced": Attack(
        replace_the_weights, "seen", NOT_NOTICED, "digest|garbled|bytes", "other bytes"
    ),
    "weights are swapped": Attack(swap_two_blobs, "seen", NOT_NOTICED, "digest|longer|bytes", "other bytes"),
    "weights are cut short": Attack(cut_a_blob_short, "seen", NOT_NOTICED, "digest|bytes", "of .* bytes"),
    "the manifest is forged": Attack(
        forge_the_manifest, "seen", NOT_NOTICED, "is damaged|digest", "other bytes"
    ),
    # the sealed part of a log
    "a segment is replaced, as seen": Attack(
        replace_a_segment, "seen", "the sealed part", "the sealed part", CHAIN, LONG
    ),
    "a segment is replaced": Attack(replace_a_segment, "strict", CHAIN, CHAIN, CHAIN, LONG),
    "the catalog is replaced, as seen": Attack(
        replace_the_catalog, "seen", "the sealed part", "the sealed part", LOG, LONG
    ),
    "the catalog is replaced": Attack(replace_the_catalog, "strict", STATE, STATE, LOG, LONG),
    "sealed lines are forgotten, as seen": Attack(
        forget_the_sealed_lines,
        "seen",
        "rewritten|went back",
        "rewritten|went back",
        "rewritten|went back",
        LONG,
    ),
}

NEWCOMER = {
    "a channel is pointed back": Attack(point_stable_back, "new", MOVED, MOVED, LOG, f"{MODEL}:stable"),
    "files are planted in a summary": Attack(
        plant_files_in_the_summary, "new", NOT_NOTICED, "says other things", LOG
    ),
    "a line is edited": Attack(edit_a_line, "new", CHAIN, CHAIN, CHAIN),
    "a line and its chain are edited": Attack(
        edit_a_line_and_its_chain, "new", NOT_NOTICED, NOT_NOTICED, NOT_NOTICED
    ),
    "all signatures are stripped": Attack(strip_all_signatures, "new", NOT_NOTICED, NOT_NOTICED, NOT_NOTICED),
    "last month's index": Attack(serve_last_month, "new", NOT_NOTICED, NOT_NOTICED, NOT_NOTICED),
    "the indexes of two models are swapped": Attack(
        swap_two_models, "new", "belongs to", "belongs to", INDEX
    ),
    "weights are replaced": Attack(replace_the_weights, "new", NOT_NOTICED, "digest|bytes", "other bytes"),
    "an envelope is garbled": Attack(garble_an_envelope, "new", NOT_NOTICED, "is damaged", "other bytes"),
    "a segment is replaced": Attack(replace_a_segment, "new", NOT_NOTICED, CHAIN, CHAIN, LONG),
    "the catalog is replaced": Attack(
        replace_the_catalog, "new", NOT_NOTICED, NOT_NOTICED, LOG, f"{LONG}:1.0.0"
    ),
}
ATTACKS |= {f"{name}, before a newcomer": attack for name, attack in NEWCOMER.items()}


@pytest.fixture
def reader(world: World, own_user: Path, request: pytest.FixtureRequest) -> None:
    """Somebody who looks: what they trust, and what they saw before."""
    kind = request.param
    if kind == "new":
        return
    if kind == "seen":
        Registry(world.tree.parent / "before").fetch_index([], str(world.tree))
    else:
        own_user.mkdir(parents=True)
        (own_user / "trust").write_text(world.trust(*(STRICT if kind == "strict" else VERSIONS)))


STRIDES = {"resolve": 3, "pull": 2, "verify": 1}
"""`make test` has each third attack for `resolve` and each second for `pull`. `resolve` reads the same index file as `pull`, which goes on to the manifest."""
TABLE = [
    pytest.param(
        *(attack, verb, getattr(attack, verb), attack.reader),
        id=f"{name}-{verb}",
        marks=pytest.mark.more if number % STRIDES[verb] else (),
    )
    for number, (name, attack) in enumerate(ATTACKS.items())
    for verb in ("resolve", "pull", "verify")
]


@pytest.mark.parametrize(("attack", "verb", "words", "reader"), TABLE, indirect=["reader"])
def test_an_attack_is_noticed(
    attack: Attack,
    verb: str,
    words: str,
    reader: None,
    world: World,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    attack.do(world, Tree(world.tree))
    own = ["--registry", str(tmp_path / "own")]
    commands = {
        "resolve": [*own, "resolve", attack.ref, "--remote", str(world.tree)],
        "pull": [*own, "pull", attack.ref, str(world.tree)],
        "verify": [*own, "verify", "--remote", str(world.tree)],
    }
    status = main(commands[verb])
    said = "".join(capfd.readouterr())
    assert status == (4 if words else 0), said
    assert re.search(words, said), said


@pytest.mark.parametrize("reader", ["seen", "strict", "versions"], indirect=True)
def test_an_honest_registry_is_accepted(reader: None, world: World, tmp_path: Path) -> None:
    own = ["--registry", str(tmp_path / "own")]
    for name in (MODEL, f"{MODEL}:stable", OTHER, LONG):
        assert main([*own, "resolve", name, "--remote", str(world.tree)]) == 0
        assert main([*own, "pull", name, str(world.tree)]) == 0
    assert main([*own, "verify", "--remote", str(world.tree)]) == 0
    assert main([*own, "verify", "--signatures", "--remote", str(world.tree)]) == 0


def test_another_registry_in_its_place_is_noticed(world: World, tmp_path: Path) -> None:
    own = Registry(tmp_path / "own")
    own.pull(MODEL, str(world.tree))
    shutil.rmtree(world.tree)
    shutil.copytree(world.elsewhere, world.tree)
    assert main(["--registry", str(own.store.root), "pull", MODEL, str(world.tree)]) == 4

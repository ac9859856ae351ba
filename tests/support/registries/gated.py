"""A registry with three versions and a policy; and the hands of an attacker, who edits its files and has no key."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnxreg.registry import Registry
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.support.actor import stamp
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.log.events import Event, Tag
from onnxreg.schema.log.logline import LogLine, genesis
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict

NAME = "acme/pii"
POLICY = b"""
[[rule]]
channel = "stable"
certified = ["onnx-int8"]
max_recall_loss = 0.005
licenses = ["Apache-2.0"]
breaking = false
"""
LAX = b'[[rule]]\nchannel = "stable"\nlicenses = ["Apache-2.0"]\n'
CHECK = {"name": "quant_recall_delta", "metric": "recall", "value": 0.002, "verdict": "pass", "limit": 0.005}


def draft(root: Path, seed: str, state: str = "certified", **fields: Any) -> Draft:
    """A version with one float32 and one int8 artifact."""
    root.mkdir(parents=True)
    (root / "model.onnx").write_bytes(b"fp32" + seed.encode() * 50)
    (root / "model_int8.onnx").write_bytes(b"int8" + seed.encode() * 10)
    (root / "config.json").write_bytes(b"{}")
    verdict = Verdict(state, "G4/point", (), Digest.of(b"suite"), synthetic=False)
    artifacts = (
        DraftArtifact("onnx", "float32", "model.onnx"),
        DraftArtifact("onnx-int8", "int8", "model_int8.onnx", verdict=verdict, fields={"checks": [CHECK]}),
    )
    source = {"id": "acme/base", "digest": str(Digest.of(b"checkpoint"))}
    about = {"license": "Apache-2.0", "source": source, "labels": ["NAME"], **fields}
    return Draft(NAME, root, artifacts, (DraftFile("config", "config.json"),), about)


def filled(root: Path) -> Registry:
    """1.0.0 and 1.1.0 meet the policy; 1.2.0 is refused; 1.3.0 breaks apps of 1.1.0, 1.4.0 those of all but 1.3.0."""
    registry = Registry(root / "home")
    registry.add(draft(root / "a", "a"), "1.0.0")
    registry.add(draft(root / "b", "b"), "1.1.0")
    registry.add(draft(root / "c", "c", "refused"), "1.2.0")
    registry.add(draft(root / "d", "d", labels=["DATE"]), "1.3.0")
    registry.add(draft(root / "e", "e", labels=["DATE"]), "1.4.0")
    registry.set_policy(read_policy(POLICY, "policy"))
    return registry


def refusal(registry: Registry, version: str) -> bytes:
    """A report that refuses the int8 artifact of a version."""
    return refusal_of(str(registry.get(f"{NAME}:{version}").manifest.artifacts[1].digest))


def refusal_of(artifact: str) -> bytes:
    """A report that refuses an artifact."""
    suite = str(Digest.of(b"field"))
    value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": artifact}
    return json.dumps({**value, "suite": suite, "state": "refused"}).encode()


class Attacker:
    """Writes to the files of a registry, as well as anybody can who has no key: chains and states fit."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.root = registry.store.root
        self.index = self.root / "index" / f"{NAME}.jsonl"
        self.policies = self.root / "policy.jsonl"

    def lines(self) -> list[LogLine]:
        return [LogLine.decode(raw) for raw in self.index.read_bytes().splitlines()[1:]]

    def write(self, events: list[Event]) -> None:
        """A whole log of these events, and the state that follows from it."""
        prev = genesis(self.registry.id, NAME)
        lines = []
        for seq, event in enumerate(events, 1):
            lines.append(LogLine.make(seq, prev, event))
            prev = lines[-1].digest
        self._write(lines)

    def append(self, *events: Event) -> None:
        lines = self.lines()
        for event in events:
            lines.append(LogLine.make(len(lines) + 1, lines[-1].digest, event))
        self._write(lines)

    def _write(self, lines: list[LogLine]) -> None:
        store = self.registry.store

        def fetch(digest: Digest) -> bytes:
            with store.open_blob(digest) as stream:
                return stream.read()

        self.index.write_bytes(Log.replay(lines, self.registry.id, NAME, fetch).encode())

    def blob(self, data: bytes) -> Digest:
        digest = Digest.of(data)
        path = self.root / blob_path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return digest

    def move(self, version: str, policy: Digest | None = None, evidence: Digest | None = None) -> Tag:
        """The event that moves stable to a version."""
        held = self.registry.state(NAME).channels.get("stable")
        return Tag(
            **stamp(NAME),
            tag="stable",
            version=Version.parse(version),
            manifest=self.registry.get(f"{NAME}:{version}").digest,
            expects=held.manifest if held else None,
            policy=policy,
            evidence=evidence,
        )

    def evidence(self, version: str, policy: Digest, **changes: Any) -> Digest:
        """Evidence that anybody can write, in which everything was found to hold."""
        value = {
            "format": "onnxreg-evidence",
            "format_version": 1,
            "name": NAME,
            "channel": "stable",
            "version": version,
            "manifest": str(self.registry.get(f"{NAME}:{version}").digest),
            "policy": str(policy),
            "findings": [{"requirement": "certified", "verdict": "pass", "detail": "it is"}],
            "statements": [],
        }
        return self.blob(canonical.encode({**value, **changes}))

    def forge(self, version: str, policy: Digest | None = None) -> None:
        """Move stable with an event and evidence as a promotion would write them."""
        named = policy or self.registry.policies().head
        self.append(self.move(version, named, self.evidence(version, named)))

    def edit_state(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the state line, and nothing else."""
        first, rest = self.index.read_bytes().split(b"\n", 1)
        value = json.loads(first)
        change(value)
        self.index.write_bytes(canonical.encode(value) + b"\n" + rest)

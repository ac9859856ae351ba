"""What an attacker does to the files of a tree. Nothing here goes through the registry's verbs.

The attacker knows the format: `remake` computes the chain and the state line anew, as any program could.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from onnxreg.registry.log.log import Log, fetcher
from onnxreg.registry.signing import PrivateKey
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.log.events import LogLine

Line = dict[str, Any]


def canonical_json(value: Any) -> bytes:
    """RFC 8785 for what tests write: ASCII keys, no floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def genesis_of(registry: str, name: str) -> str:
    """The `prev` of the first line of a log."""
    return digest_of(canonical_json({"name": name, "registry": registry}))


def chained(
    lines: Sequence[Line],
    registry: str,
    name: str,
    key: PrivateKey | None = None,
    only: Sequence[int | None] | None = None,
) -> list[bytes]:
    """The lines, numbered and chained anew; with a key all are signed anew, or only those at these positions."""
    prev, made = genesis_of(registry, name), []
    for number, line in enumerate(lines):
        value = {**line, "seq": number + 1, "prev": prev}
        if key is not None and (only is None or number in range(len(lines))[slice(*only)]):
            value.pop("sig", None)
            value["sig"] = signed(value, registry, name, key)
        made.append(canonical_json(value))
        prev = digest_of(made[-1])
    return made


def signed(line: Line, registry: str, name: str, key: PrivateKey) -> str:
    """The `sig` of a line: docs/format.md, "Signatures"."""
    payload = canonical_json({**line, "registry": registry, "name": name})
    kind = b"application/vnd.onnxreg.line.v1+json"
    signature = key.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
    return f"{signature.keyid}:{b64encode(signature.sig).decode()}"


def written_index(raw: Sequence[bytes], registry: str, name: str, root: Path) -> tuple[bytes, list[bytes]]:
    """The index file that follows from lines, and the blobs of its sealed part. The only use of the program's own log."""
    ledger = Log.replay(map(LogLine.decode, raw), registry, name, fetcher(DirectoryRegistry(root)))
    data = ledger.encode()
    return data, list(ledger.blobs)


class Tree:
    """The files of a registry, written at will."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def id(self) -> str:
        found: str = json.loads((self.root / "registry.json").read_bytes())["id"]
        return found

    def index(self, name: str) -> Path:
        return self.root / "index" / f"{name}.jsonl"

    def blob(self, digest: str) -> Path:
        hexed = digest.removeprefix("sha256:")
        return self.root / "blobs" / "sha256" / hexed[:2] / hexed

    def read(self, digest: str) -> Any:
        return json.loads(self.blob(digest).read_bytes())

    def put(self, data: bytes) -> str:
        """A blob that the attacker made."""
        digest = digest_of(data)
        self.blob(digest).parent.mkdir(parents=True, exist_ok=True)
        self.overwrite(self.blob(digest), data)
        return digest

    def overwrite(self, path: Path, data: bytes) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def state(self, name: str) -> Any:
        return json.loads(self.index(name).read_bytes().split(b"\n")[0])

    def edit_state(self, name: str, change: Callable[[Any], None]) -> None:
        """Change the state line alone."""
        first, rest = self.index(name).read_bytes().split(b"\n", 1)
        value = json.loads(first)
        change(value)
        self.overwrite(self.index(name), canonical_json(value) + b"\n" + rest)

    def lines(self, name: str) -> list[Line]:
        """The whole log, sealed lines first."""
        sealed = [self.blob(segment).read_bytes() for segment in self.state(name)["segments"]]
        tail = self.index(name).read_bytes().split(b"\n", 1)[1]
        return [json.loads(line) for line in b"".join([*sealed, tail]).splitlines()]

    def edit_line(self, name: str, number: int, change: Callable[[Line], None]) -> None:
        """Change one line of the tail, and nothing else."""
        rows = self.index(name).read_bytes().split(b"\n")
        value = json.loads(rows[number])
        change(value)
        rows[number] = canonical_json(value)
        self.overwrite(self.index(name), b"\n".join(rows))

    def remake(
        self,
        name: str,
        lines: Sequence[Line],
        key: PrivateKey | None = None,
        only: Sequence[int | None] | None = None,
    ) -> None:
        """Write an index whose chain and state are those of these lines; what was signed keeps its old signature.

        With a key it signs all lines anew (or only those at these positions).
        """
        raw = chained(lines, self.id, name, key, only)
        data, blobs = written_index(raw, self.id, name, self.root)
        for blob in blobs:
            self.put(blob)
        self.overwrite(self.index(name), data)

    def forge_version(self, name: str, version: str) -> str:
        """A manifest like that of a version, with other weights that claim to be certified. Its blobs are planted."""
        value = self.read(self.state(name)["versions"][version]["manifest"])
        weights = self.put(b"weights with a back door")
        artifact = value["artifacts"][-1]
        artifact |= {"digest": weights, "size": len(b"weights with a back door")}
        evidence = dict.fromkeys(("artifact", "parent", "suite"), weights)
        artifact["certification"] = {"state": "certified", "evidence": evidence}
        artifact.pop("parent", None)
        return self.put(canonical_json(value))

    def plant_manifest(self, name: str, change: Callable[[Any], None]) -> None:
        """Change the manifest of a model of one line, and the digests that lead to it: the index fits, the manifest need not."""
        state = self.state(name)
        (entry,) = state["versions"].values()
        manifest = self.read(entry["manifest"])
        change(manifest)
        planted = self.put(canonical_json(manifest))
        replaced = self.index(name).read_bytes().replace(entry["manifest"].encode(), planted.encode())
        self.overwrite(self.index(name), replaced)
        (line,) = replaced.splitlines()[1:]
        self.edit_state(name, lambda value: value.update(head=digest_of(line)))

    def edit_envelope(self, digest: str, change: Callable[[Any], None]) -> str:
        """An envelope whose payload is changed and whose signatures stay; returns the digest of the new blob."""
        envelope = self.read(digest)
        payload = json.loads(b64decode(envelope["payload"]))
        change(payload)
        envelope["payload"] = b64encode(canonical_json(payload)).decode()
        return self.put(canonical_json(envelope))


def event(line: Line, **more: Any) -> Line:
    """A line with another event in it: its signature, if any, stays as it was."""
    return {**line, "event": {**line["event"], **more}}


def unsigned(line: Line) -> Line:
    return {key: value for key, value in line.items() if key != "sig"}


def kinds(lines: Sequence[Line], kind: str) -> list[int]:
    """The positions of the events of a kind."""
    return [number for number, line in enumerate(lines) if line["event"]["kind"] == kind]

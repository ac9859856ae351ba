"""The files of a registry, which are the same in every store.

registry.json               the registry's id, and the versions of the layout that a reader and a writer must support
blobs/sha256/ab/<64 hex>    every blob by digest; `<64 hex>.<generation>` if a collector had condemned the plain key
index/<name>.jsonl          the one mutable file of a model
policy.jsonl                the registry's own log of policies
search/catalog.jsonl.gz     the published catalog, which answers searches (docs/query.md)
gc/intents/<note>           a push in progress
gc/condemned/<note>         keys that a collector is about to delete
"""

import json
import os
import re
from collections.abc import Collection
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from onnxreg.schema.core.canonical import Record, decode_json
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError, LostRaceError, about
from onnxreg.schema.core.ref import POLICY_LOG, REGISTRY_ID, is_name

LAYOUT_VERSION = 1
UPGRADE = "upgrade onnxreg, from where you installed it"
GENERATIONS = 8
"""The number of keys that a blob may have. If the blob is not under the plain key, readers try the other keys."""
Kind = Literal["intents", "condemned"]
"""The kinds of notes that pushers and collectors leave for each other."""
NOTE = re.compile(r"[0-9a-f]{16}(-[0-9a-f]{16})?")
"""The name of a note: the id of the push that wrote it; in an intent's name the id of the attempt follows."""
PROBE = "gc/probe-"
"""The prefix of scratch objects, which the trial of a store before the first write creates and deletes."""


class BlobKey(NamedTuple):
    """One key of a blob in the tree. The plain key has generation 0."""

    digest: Digest
    generation: int = 0

    @property
    def path(self) -> str:
        return f"{blob_path(self.digest)}{f'.{self.generation}' if self.generation else ''}"

    @classmethod
    def of_path(cls, path: str) -> "BlobKey | None":
        """Return the key with this path; None if the path is not the path of a blob."""
        digest, _, generation = path.rpartition("/")[2].partition(".")
        is_generation = generation in ("", *map(str, range(1, GENERATIONS)))
        if not is_generation or not re.fullmatch(r"[0-9a-f]{64}", digest):
            return None
        key = cls(Digest(digest), int(generation or 0))
        return key if key.path == path else None


def blob_path(digest: Digest) -> str:
    """The path of a blob's plain key."""
    return f"blobs/sha256/{digest.hex[:2]}/{digest.hex}"


def keys_of(digest: Digest) -> list[BlobKey]:
    """Every key that a blob may have, the plain one first."""
    return [BlobKey(digest, generation) for generation in range(GENERATIONS)]


def usable_key(digest: Digest, condemned: Collection[BlobKey]) -> BlobKey:
    """Return a blob's first key that is not condemned. LostRaceError if collectors have condemned all keys."""
    for key in keys_of(digest):
        if key not in condemned:
            return key
    hint = "`reg doctor` names the collectors that never ended"
    raise LostRaceError(f"every key of blob {digest.short}... is condemned by some collector", hint)


def note_path(kind: Kind, note: str) -> str:
    return f"gc/{kind}/{note}"


def index_path(name: str) -> str:
    """The path of a model's index file, or of the registry's log of policies if `name` is `POLICY_LOG`."""
    return "policy.jsonl" if name == POLICY_LOG else f"index/{name}.jsonl"


def model_of(path: str) -> str | None:
    """Return the model whose index file has this path; None if the path is not the path of an index file."""
    name = path[len("index/") : -len(".jsonl")]
    return name if path.startswith("index/") and path.endswith(".jsonl") and is_name(name) else None


_SYSTEM_NAME = re.compile(
    r"\.DS_Store|\._.*|\.AppleDouble|\.Spotlight-V100|\.Trashes|\.fseventsd|Thumbs\.db|desktop\.ini"
    r"|System Volume Information|\$RECYCLE\.BIN|@eaDir|#recycle|[.#]snapshot|\.nfs[0-9a-f]+|\.fuse_hidden.*"
    r"|lost\+found|\.Trash-\d+|\.git.*|\.st(folder|ignore|versions)|\.dropbox.*",
    re.IGNORECASE,
)


def is_system_path(path: str) -> bool:
    """True for files that systems and tools (Finder, Explorer, a NAS, NFS, FUSE, git) leave in any folder."""
    return any(_SYSTEM_NAME.fullmatch(part) for part in path.split("/"))


CATALOG = "search/catalog.jsonl.gz"
"""The path of the published catalog."""


class Identity(Record, frozen=True):
    """The content of `registry.json`: the registry's id, and the least layout versions for a reader and for a writer."""

    id: Annotated[str, Meta(pattern=rf"\A{REGISTRY_ID.pattern}\Z")]
    layout: Literal["onnxreg"]
    min_reader: int
    min_writer: int = LAYOUT_VERSION
    mirror: bool = False


def new_identity(registry_id: str | None = None, mirror: bool = False) -> bytes:
    """Return the bytes of a new `registry.json`. Without a `registry_id` the id is random."""
    value = {
        "id": registry_id or os.urandom(16).hex(),
        "layout": "onnxreg",
        **dict.fromkeys(("layout_version", "min_reader", "min_writer"), LAYOUT_VERSION),
        **({"mirror": True} if mirror else {}),
    }
    return json.dumps(value, indent=2).encode() + b"\n"


def other_registry(url: str, actual_id: str, known_id: str) -> IntegrityError:
    """Return the error for a URL where another registry has replaced the known one."""
    problem = f"{url} holds another registry than before: id {actual_id[:12]}..., was {known_id[:12]}..."
    return IntegrityError(problem, f"find out who changed it; if that is meant: reg trust reset {known_id}")


def read_identity(data: bytes, url: str) -> Identity:
    """Decode `registry.json`. HostError if this build is too old for the layout, IntegrityError if the file is damaged."""
    hint = "restore it from a backup, or copy a mirror's and write false for its `mirror`"
    with about(f"registry.json of {url} is damaged", IntegrityError, hint):
        identity = decode_json(data, Identity, "it")
    if identity.min_reader > LAYOUT_VERSION:
        message = f"{url} has layout {identity.min_reader}, this onnxreg reads up to {LAYOUT_VERSION}"
        raise HostError(message, UPGRADE)
    return identity


def check_writer(identity: Identity, url: str) -> None:
    """Raise HostError if only newer builds may write to the registry."""
    if identity.min_writer > LAYOUT_VERSION:
        raise HostError(f"{url} is written by a newer onnxreg only", UPGRADE)

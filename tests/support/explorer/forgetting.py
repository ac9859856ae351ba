"""Where a push and a collection need no longer know how they came to where they are, so that fewer states are enough.

`Replay.forget` is a promise about the code. It is checked in part wherever it is used (two ways to know the same ask for
the same step), and as a whole by a test: with it and without it the same contents of the store are reached.
"""

from collections.abc import Hashable, Iterable
from typing import Any
from unittest.mock import patch

from onnxreg.registry.log import commit as committing
from onnxreg.registry.log.commit import MAX_COMMIT_TRIES, collect, commit
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.protocol import Kind, Push, RegistryStore, StoredObject
from onnxreg.registry.transfer import exchange
from support.explorer.explorer import Run
from support.explorer.scenarios import pusher


def forgetful_pusher(name: str, tries: int = MAX_COMMIT_TRIES) -> Run:
    """As `pusher`, but each attempt of its commit begins anew: it reads the head, and nothing read before matters."""

    def run(store: Any) -> Hashable:
        attempt = 0

        def again(seconds: float) -> None:
            nonlocal attempt
            attempt += 1
            store.forget("attempt", attempt)

        def first(*args: Any, **kwargs: Any) -> Log:
            again(0)
            return commit(*args, **kwargs)

        with patch.object(exchange, "commit", first), patch("time.sleep", again):
            return pusher(name, tries)(store)

    return run


class ForgetfulRemote(RegistryStore):
    """For a collection: what it condemned, which pushes it has to settle, and what it will delete are all it knows.

    Which logs it read before it condemned decides only which manifests it reads again afterwards; `heads` are the
    tokens of these logs, where that is a step. Without `clearing` it finds no dead collector at its end.
    """

    def __init__(self, store: Any, heads: bool, clearing: bool) -> None:
        super().__init__(store)
        self._forget, self._clearing, self._cleared = store.forget, clearing, False
        self._heads: dict[str, str] | None = {} if heads else None
        self._condemned: bytes | None = None
        self._intents: dict[str, bytes] = {}
        self._settling = False

    def mark(self, where: str, *more: Any) -> None:
        """All that is known now, as far as it matters."""
        heads = sorted((self._heads or {}).items())
        self._forget(where, self._condemned, *heads, *self._intents, *more)

    def read_index(self, name: str, known: StoredObject | None = None) -> StoredObject | None:
        found = super().read_index(name, known)
        if self._condemned is None and self._heads is not None and found is not None:
            self._heads[name] = found.token
        return found

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        super().add_note(kind, note, data)
        if kind == "condemned":
            self._condemned = data
            self.mark("condemned")

    def notes(self, kind: Kind) -> dict[str, bytes]:
        found = super().notes(kind) if self._clearing or not self._cleared else {}
        if kind == "intents" and self._settling:
            self.mark("asked again", next(iter(self._intents)) in found)
        elif kind == "intents":
            self._settling, self._intents = True, dict(found)
            self.mark("announced")
        return found

    def remove_note(self, kind: Kind, note: str) -> None:
        super().remove_note(kind, note)
        if kind == "condemned":
            self._cleared = True
            self._forget("cleared")
        elif note in self._intents:
            del self._intents[note]
            self.mark("settled one")

    def delete(self, paths: Iterable[str]) -> None:
        doomed = list(paths)
        self._forget("delete", *doomed)
        super().delete(doomed)


def forgetful_collector(heads: bool = False, clearing: bool = False) -> Run:
    """As `collector`, but once the pushes are settled, nothing of them matters.

    Without `clearing` it does not look for dead collectors at its end: where nobody is known to be dead, it only reads.
    """

    def settle(remote: ForgetfulRemote, push: Push, patience: float) -> int:
        fenced = real(remote, push, patience)
        remote.mark("settled")
        return fenced

    def run(store: Any) -> Hashable:
        with patch.object(committing, "settle", settle):
            collect(ForgetfulRemote(store, heads, clearing), patience=0)
        return ("collected",)

    real = committing.settle
    return run

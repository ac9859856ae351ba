"""The protocol with one rule taken out at a time: a piece of the real source text is replaced, and compiled again."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType

from onnxreg.registry.log import commit
from onnxreg.registry.store import protocol

_INDENT = " " * 24
ANNOUNCE = f"{_INDENT}intents.enter_context(announced(remote, push, name))\n"
AVOID = f"{_INDENT}push.avoid(read_condemned(remote))\n"
SECURE = f"{_INDENT}_secure(push, log, digests, bring)\n"
LOAD = """\
            log = first or load_own(remote, name, *more)
            first = None
            try:
                digests = change(log)
            except MissingBlobError as error:
                if remote.read_index(name) == log.index:
                    raise
                lost = LostRaceError(error.message)  # a newer log needs the blob no more
                continue
            if digests is None:
                remote.confirm(name)
                return log
"""
NEEDED = """\
            try:
                if digests or log.blobs:
                    with intents.pop_all():  # an earlier intent ends after the blobs are secured
"""
DELETE = """\
        remote.delete([key.path for key in doomed])
        remote.remove_note("condemned", push.id)
"""
SETTLE = """\
            fenced = settle(remote, push, patience)
"""
CONDEMN = """\
            condemn(remote, push, candidates)
"""
READ = """\
            live = referred(remote, earlier)
"""


@dataclass(frozen=True)
class Mutant:
    """Text of a module that stands there exactly once, and what stands there without the rule."""

    module: ModuleType
    text: str
    instead: str


SINGLE = {
    "a push leaves no intent": Mutant(commit, ANNOUNCE, ""),
    "a push leaves its intent after it read the condemned": Mutant(
        commit, ANNOUNCE + AVOID, AVOID + ANNOUNCE
    ),
    "a push does not read the condemned": Mutant(commit, AVOID, ""),
    "a condemned key is as good as any": Mutant(protocol, "if key not in condemned:", "if True:"),
    "presence is not checked again": Mutant(commit, "set(digests) - push.has(digests)", "()"),
    "a push checks presence, then reads the condemned": Mutant(commit, AVOID + SECURE, SECURE + AVOID),
    "a push reads the head again before it swaps": Mutant(
        commit, SECURE, SECURE + LOAD.replace(" " * 12, _INDENT)
    ),
    "a collector condemns after it settled the pushes": Mutant(commit, CONDEMN + SETTLE, SETTLE + CONDEMN),
    "a collector reads the logs before it settles the pushes": Mutant(commit, SETTLE + READ, READ + SETTLE),
    "a collector does not read the logs again": Mutant(commit, SETTLE + READ, SETTLE),
    "a stale intent is removed without a fence": Mutant(
        commit, "            _fence(remote, push, intent, data)\n", ""
    ),
    "a push is neither waited for nor fenced": Mutant(
        commit, "while remote.is_alive(intent) is not False and", "while False and"
    ),
    "a collector clears its entry before it deletes": Mutant(
        commit, DELETE, "".join(reversed(DELETE.splitlines(keepends=True)))
    ),
    "a collector deletes what it did not condemn": Mutant(
        commit, "doomed = _without(candidates, live)", "doomed = _without(blob_keys(remote), live)"
    ),
}

DOUBLE = {
    "a push leaves its intent before it reads the head": Mutant(
        commit,
        LOAD + NEEDED + ANNOUNCE,
        "            older = intents.pop_all()\n            intents.push(older)\n"
        + ANNOUNCE.replace(_INDENT, " " * 12)
        + LOAD.replace("first or ", "")
        + NEEDED.replace("intents.pop_all()", "older"),
    ),
    "an intent keeps its name in the next attempt": Mutant(
        commit,
        ANNOUNCE,
        """\
                        note = f"{push.id}-{'0' * 16}"
                        remote.add_note("intents", note, canonical.encode({"name": name}))
                        intents.callback(remote.remove_note, "intents", note)
""",
    ),
    "a collector clears the entries of others": Mutant(
        commit, "if remote.is_alive(note) is False:", "if True:"
    ),
}
"""Rules that only a second collector makes necessary."""


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The module's functions run the changed text, whoever imported them."""
    source = inspect.getsource(mutant.module)
    assert source.count(mutant.text) == 1, f"{mutant.text!r} stands {source.count(mutant.text)} times"
    changed: dict[str, object] = {"__name__": mutant.module.__name__}
    code = compile(source.replace(mutant.text, mutant.instead), str(mutant.module.__file__), "exec")
    exec(code, changed)  # noqa: S102 - our own source
    kept: list[tuple[FunctionType, CodeType]] = []
    for name, other in changed.items():
        function = vars(mutant.module).get(name)
        own = getattr(function, "__module__", None) == mutant.module.__name__
        if own and isinstance(function, FunctionType) and isinstance(other, FunctionType):
            kept.append((function, function.__code__))
            function.__code__ = other.__code__
    try:
        yield
    finally:
        for function, code in kept:
            function.__code__ = code

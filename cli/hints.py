"""The commands to type after an error: the text of each `Advice` of the library.

The library states a code and facts; this table is the only place that names verbs and options for them.
`{fact}` is the fact, `{fact!q}` quotes it for a shell, `{facts:--option}` repeats an option for each item
of a list. A fact that the error does not have reads as its name in capitals, as in a usage line.
"""

from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from string import Formatter
from typing import Any

from onnxreg.schema.core.errors import Advice


def text(advice: str | Advice) -> str:
    """The advice as a user of the command line reads it."""
    if isinstance(advice, str):
        return advice
    template = TEMPLATES[advice.code]
    return template(**advice.facts) if callable(template) else _FORMATTER.vformat(template, (), advice.facts)


class _Missing(str):
    """The name of a fact that the error does not have."""


class _Formatter(Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key), _Missing(str(key).upper()))

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion != "q":
            return super().convert_field(value, conversion)
        return value if isinstance(value, _Missing) else quote(str(value))

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("--"):
            return " ".join(f"{format_spec} {quote(str(item))}" for item in value)
        return str(super().format_field(value, format_spec))


_FORMATTER = _Formatter()


def _pull_part(ref: str, members: Sequence[str] = (), format: str = "", precision: str = "") -> str:
    options = [f"--member {member}" for member in members]
    options += [f"--format {format} --precision {precision}"] if format else []
    return f"reg pull {ref} there fetches the rest; or take what it has: reg pull {ref} {' '.join(options)}"


def _finish_mirroring(mirror: str, first: str | Advice) -> str:
    again = f"{mirror} has only what arrived: run `reg mirror` again, it goes on there"
    return "; ".join(filter(None, (text(first), again)))


TEMPLATES: Mapping[str, str | Callable[..., str]] = {
    # Damage and its repair
    "verify-both": "the state line of one of them is wrong: run `reg verify` in both",
    "verify-source": "run `reg verify` in the registry that it comes from",
    "verify-index": "the index file was tampered with or damaged: run `reg verify` on it",
    "restore-index": "restore it from a mirror (reg verify shows more)",
    # Trust, keys and history
    "reset-trust": "ask its owner; after a backup was restored: reg trust reset {registry} {name}",
    "reset-known-head": "reg trust reset {registry} {name}",
    "mount-or-reset": "mount its disk; or, if it was removed for good: reg trust reset {registry}",
    # Policies and channels
    "promote": "promote instead: reg promote {name}:VERSION {channel}",
    "promote-there": "promote instead: reg promote {name}:VERSION {channel} --remote {remote!q}",
    "tag-first": "they have no channels yet: `reg tag` makes one",
    "end-rollout": "`reg rollout finish {name} --channel {channel}` moves the channel, `halt` stops the rollout",
    "start-rollout": "`reg rollout start {name}:VERSION --channel CHANNEL --percent 5` begins one",
    "untag-first": "move the channel or `reg untag` it first",
    "unpin": "take the pin back: reg pin --undo",
    "decide-again": "look at `reg log` and decide again",
    # Versions and their files
    "write-lock": "`reg lock REF` writes one",
    "rewrite-lock": "the lock was changed by hand or damaged: `reg lock` writes it anew",
    "log-there": "`reg log {name}` there says why",
    "log-of-other": "`reg log` there says why",
    "log-of-other-or-restore": "`reg log` there says why; --restore brings it back",
    "log-reason": "`reg log {name}` says why",
    "yank": "`reg yank` takes it out of use, with its number",
    "omit-restore": "leave --restore out",
    "version-gone": "publish under another version; a copy elsewhere brings an expired one back: reg pull --restore",
    "restore-expired": "`reg log {name}` there says why; what expired can be brought back from a copy: --restore",
    "keep-days": "write --keep-days 90",
    "name-member": "{nearest}; name one, such as --member {member}",
    "list-members": "`reg show {ref} --json` lists them under model_family",
    "omit-member": "leave --member out",
    "omit-this-member": "leave --member {member} out",
    "omit-selection": "leave --format and --precision away, or pull into a registry of its own",
    "pull-rest": "reg pull {ref} fetches the rest",
    "pull-part": _pull_part,
    "pull-artifact": "`reg pull` fetches the rest",
    "pull-elsewhere": "name another place; to write files: reg --registry OTHER pull REF PLACE --output DIRECTORY",
    # Registries, remotes, mirrors and archives
    "fill-registry": "it holds no models yet: reg export, reg add, reg pull, or a reg push to it, bring some",
    "give-url": "reg remote add {name} PATH|URL",
    "add-remote": "name a path or URL, or give one a name: reg remote add origin PATH|URL",
    "remove-remote": "`reg remote remove {name}` first",
    "list-remotes": "see `reg remote list`",
    "list-remotes-or-path": "see `reg remote list`; a directory is written ./{name}",
    "fetch-index": "`reg fetch-index` fetches it",
    "fetch-index-of": "fetch what is needed offline: reg fetch-index --remote {remote!q}",
    "finish-mirror": "`reg mirror` into it goes on where it was cut off; used offline, `reg fetch-index` brings more",
    "finish-mirroring": _finish_mirroring,
    "mirror-lacks-models": "{mirror} does not have all models of {source} yet: `reg mirror {source!q} {mirror!q}` goes on",
    "mirror-again-later": "run it again when that one has ended; `reg doctor` names what a dead one left",
    "mirror-with-new-id": "change the original, or make a registry of its own from it: reg mirror MIRROR NEW --new-id",
    "omit-new-id": "leave --new-id away, or name another place",
}
"""Code to text."""

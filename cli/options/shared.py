"""The arguments and options that several verbs share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.options.completion import complete_channel, complete_name, complete_ref, complete_remote
from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import is_name
from onnxreg.schema.manifest.vocabulary import check_description, check_license

if TYPE_CHECKING:
    from onnxreg.registry.registry import Registry

RefArgument = Annotated[
    str,
    typer.Argument(
        help="NAME[:TAG][@sha256:...]; without a tag the newest version.",
        metavar="REF",
        autocompletion=complete_ref,
    ),
]
ExactRefArgument = Annotated[
    str,
    typer.Argument(
        help="NAME:TAG or NAME@sha256:...; a name alone is refused.",
        metavar="REF",
        autocompletion=complete_ref,
    ),
]
NameArgument = Annotated[str, typer.Argument(help="The model.", metavar="NAME", autocompletion=complete_name)]
RemoteArgument = Annotated[
    str | None,
    typer.Argument(
        help="A remote's name, a path or a URL; default: the only remote, or the one named origin.",
        metavar="[REMOTE]",
        autocompletion=complete_remote,
    ),
]
SameRemote = Annotated[
    str | None,
    typer.Option("--remote", help="The same as REMOTE, by an option.", autocompletion=complete_remote),
]
RemoteOption = Annotated[
    str | None, typer.Option(help="Read this remote (a name, path or URL).", autocompletion=complete_remote)
]
TargetRemote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        help="Work on this remote (a name, path or URL), not on the registry here.",
        autocompletion=complete_remote,
    ),
]
FormatsOnly = Annotated[
    list[str] | None, typer.Option("--format", help="Only artifacts of this format; may be repeated.")
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline", help="Answer with what was last seen of the remote, without a request; prints its age."
    ),
]
MaxAge = Annotated[
    str | None,
    typer.Option(
        help="The greatest age of an answer: 12h, 7d; an older copy is exit status 8, an older catalog is not used; default: REG_MAX_AGE.",
        metavar="DURATION",
    ),
]
NewName = Annotated[str, typer.Option(help="The model's name: NAME or ORG/NAME.")]
License = Annotated[
    str | None,
    typer.Option(
        parser=check_license,
        help="The licence: an SPDX expression such as Apache-2.0, or a name of the Hub.",
        metavar="LICENCE",
    ),
]
DescriptionOption = Annotated[
    str | None,
    typer.Option(
        "--description",
        parser=check_description,
        help="What the model does, in one line of at most 500 characters.",
        metavar="TEXT",
    ),
]
NewVersion = Annotated[str | None, typer.Option(help="A SemVer version; default: the next patch, or 0.1.0.")]
Output = Annotated[
    Path | None, typer.Option(help="Also write the files here: a new directory, or an earlier export.")
]
ChannelArgument = Annotated[
    str,
    typer.Argument(
        help="The channel, such as stable; a version never moves.",
        metavar="CHANNEL",
        autocompletion=complete_channel,
    ),
]
AllowCode = Annotated[
    list[str] | None,
    typer.Option(
        help="Run this code, which a recipe names: an installed module:function, file.py:function, or file.py for everything that it defines. Not remembered.",
        metavar="NAME",
        show_default=False,
    ),
]
Precision = Annotated[str | None, typer.Option(help="Only artifacts of this precision.")]


def _not_empty(reason: str | None) -> str | None:
    if reason is not None and not reason.strip():
        raise InputError("the reason is empty", "write why, or leave --reason out")
    return reason


Reason = Annotated[str | None, typer.Option(help="The reason, for the log.", callback=_not_empty)]


def one_remote(remote: str | None, option: str | None) -> str | None:
    """The remote that is named by the argument or by the option; InputError if both name one."""
    if None not in (remote, option):
        raise InputError(f"two remotes are named: {remote} and {option}", "leave --remote away")
    return remote or option


REF_MARKS = frozenset("/:@")
"""The characters that a REF may have, and a channel may not."""


def check_channel_last(verb: str, ref: str, channel: str) -> None:
    """Raise InputError if the first word may be a channel, and the second cannot be one."""
    if REF_MARKS & set(channel) and not REF_MARKS & set(ref):
        raise InputError(
            f"{channel} is not a channel", f"the version comes first: reg {verb} {channel} {ref}"
        )


def check_model_first(verb: str, ref: str, remote: str | None, registry: "Registry") -> None:
    """Raise InputError if the first word is a path, a URL or a remote, and the second may be a REF."""
    if remote is None or not is_name(remote.partition(":")[0]) or Path(remote).exists():
        return
    remotes = registry.remotes.urls
    if remote not in remotes and (ref.startswith((".", "/")) or "://" in ref or ref in remotes):
        raise InputError(f"{ref} is not a model", f"the model comes first: reg {verb} {remote} {ref}")


Deltas = Annotated[
    bool,
    typer.Option(
        "--deltas", help="After the push, make deltas there from older versions; default: REG_DELTAS."
    ),
]


def wants_deltas(option: bool = False) -> bool:
    """True if `--deltas`, or else `REG_DELTAS=1`, asks to make deltas of what is published."""
    text = environment.read("REG_DELTAS") or "0"
    if text not in ("0", "1"):
        raise InputError(f"REG_DELTAS is 1 or 0, not {text[:20]}", "1: make deltas of what is published")
    return option or text == "1"

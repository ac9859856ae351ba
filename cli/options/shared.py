"""The arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

from onnxreg.cli.options.completion import complete_channel, complete_name, complete_ref, complete_remote
from onnxreg.schema.manifest.description import check_description
from onnxreg.schema.manifest.license import check_license

Json = Annotated[bool, typer.Option("--json", help="Print JSON; a failure is JSON on stderr.")]
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
RemoteOption = Annotated[
    str | None,
    typer.Option(help="Read this remote (a name, path or URL).", autocompletion=complete_remote),
]
TargetRemote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        help="Write to the log of this remote (a name, path or URL), not of the registry here.",
        autocompletion=complete_remote,
    ),
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
        help="The greatest age of an answer: 12h, 7d; older is exit status 8; default: REG_MAX_AGE.",
        metavar="DURATION",
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Read every index file of the remote, not its snapshot.")
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
Reason = Annotated[str | None, typer.Option(help="The reason, for the log.")]

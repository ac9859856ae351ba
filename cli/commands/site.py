"""`reg site`: write the registry's pages as files for any host."""

from pathlib import Path

from onnxreg.cli.commands.serve import public_url, trial_folder
from onnxreg.cli.options import Session, argument, option
from onnxreg.cli.output import counted, needs

EXAMPLES = ("reg site ./public", "reg site ./public --url https://models.example/tree --try ./try")


def command(
    session: Session,
    directory: Path = argument("A new directory, or the directory of an earlier site.", "DIR"),
    url: str | None = option(
        "The URL of the registry's tree, absolute or relative to the pages; default: the tree is copied into DIR."
    ),
    trial: Path | None = option("Let pages try a model: the folder of the script (docs/serve.md).", "--try"),
) -> None:
    """Write the pages of `reg serve` as files that any static host can serve.

    If the command fails, DIR stays as it was.

    With --json: {output, models, pages}.
    """
    with needs("serve", "reg site"):
        from onnxreg.registry.server.pages.site import write_site
        from onnxreg.registry.server.served_registry import ServedRegistry
    session.reader(checked=False)
    url = public_url(url) if url and (":" in url or url.startswith("//")) else url
    counts = write_site(ServedRegistry.open(session.root), directory, url, trial_folder(trial))
    session.show(
        {"output": str(directory), **counts},
        f"written to {directory}: {counted(counts['pages'], 'page')} of {counted(counts['models'], 'model')}",
    )

"""`reg serve`: serve the registry over HTTP, read-only."""

import re
import sys
from pathlib import Path

from onnxreg.cli.options import Session, flag, option
from onnxreg.cli.output import needs
from onnxreg.registry import system
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.files import read_given

EXAMPLES = (
    "reg serve",
    "reg --registry /srv/models serve --port 8080 --cors https://app.example",
    "reg serve --workers 4",
    "reg serve --host 0.0.0.0 --behind-proxy --token-file /run/secrets/reg-token --url https://models.example",
)
VARIABLE = "REG_SERVE_TOKEN"


def command(
    session: Session,
    host: str = option("The address to listen on.", default="127.0.0.1"),
    port: int = option("The port to listen on; 0 takes a free one.", default=8080, min=0, max=65535),
    url: str | None = option("The server's URL for clients, if their Host header differs."),
    token_file: Path | None = option(
        f"Only clients with this token may read; default: {VARIABLE}, otherwise everyone may."
    ),
    cors: list[str] | None = option("A web site whose scripts may read, or *; may be repeated."),
    drain: int = option("The number of seconds that downloads get to end after SIGTERM.", default=30, min=0),
    behind_proxy: bool = flag("A proxy in front limits slow clients and large heads: allow any --host."),
    workers: int = option(
        "The number of processes that answer, for example one for each core.", default=1, min=1, max=64
    ),
    trial: Path | None = option("Let pages try a model: the folder of the script (docs/serve.md).", "--try"),
    no_access_log: bool = flag("Do not print a line of JSON on stderr for each request."),
) -> None:
    """Serve the registry over HTTP, read-only: apps send queries, and `reg` uses the URL as a remote.

    GET /v1/models, GET /v1/models/NAME and POST /v1/resolve answer like reg ls --json and reg resolve --json;
    /openapi.json describes the whole API, /metrics and /healthz are for operators. SIGTERM or Ctrl-C ends the server.
    """
    root = session.root
    with needs("serve", "reg serve"):
        from onnxreg.registry.server import server
        from onnxreg.registry.server.settings import Settings
    origins = tuple(map(_origin, cors or ()))
    settings = Settings(
        _token(token_file), origins, public_url(url), drain, behind_proxy, trial_folder(trial)
    )
    session.reader(checked=False)
    listener = server.listen(host, port, behind_proxy)
    if settings.token is None and behind_proxy:
        print("warning: everybody who reaches this address may read: no token is set", file=sys.stderr)
    session.say(f"serving {root} at {server.url_of(listener)}")
    sys.stdout.flush()
    server.serve(root, listener, settings, not no_access_log, workers)


def _token(file: Path | None) -> str | None:
    token = read_given(file).decode("utf-8", "replace").strip() if file else system.variable(VARIABLE)
    if token is not None and (not token or not token.isascii() or not token.isprintable() or " " in token):
        raise InputError(f"{file or VARIABLE} holds no token", "a token is printable ASCII without spaces")
    return token


def _origin(site: str) -> str:
    """Return the origin of a web site as browsers send it. Raise InputError if it has no scheme or has a path."""
    origin = site.rstrip("/").lower()
    if not re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#@]+", origin):
        raise InputError(f"--cors {site[:80]}: not the origin of a web site", "write https://host, or *")
    return origin


def trial_folder(folder: Path | None) -> Path | None:
    """Check that the folder, if given, has the script try.js, and return it. Raise NotFoundError without the script."""
    if folder is not None and not (folder / "try.js").is_file():
        hint = "in examples/web-client: npm install --no-package-lock && node build.mjs try; then --try build/try"
        raise NotFoundError(f"{folder} has no try.js", hint)
    return folder


def public_url(url: str | None) -> str | None:
    """Return the URL without a slash at its end. Raise InputError if it is not http(s) or has credentials."""
    if url is not None and "@" in url.partition("//")[2].partition("/")[0]:
        raise InputError("the URL holds credentials, which every answer would show", "leave them out")
    if url is not None and not url.startswith(("http://", "https://")):
        raise InputError(f"not a URL: {url[:80]!r}", "write https://host, or https://host/path")
    return None if url is None else url.rstrip("/")

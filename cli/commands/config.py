"""`reg config`: the places and the variables that are in force, and where each comes from."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.cli.services.export_lookup import cache_at
from onnxreg.registry.support import environment

EXAMPLES = ("reg config", "reg --registry ./home config --json")
DEFAULT = "default"
SECRETS = ("REG_SERVE_TOKEN", "REG_KEY_PASSPHRASE")


@dataclass(frozen=True)
class Place:
    """A file or directory that `reg` uses; `source` is the option, the variable or the place that decides it."""

    name: str
    path: Path
    source: str

    def to_json(self) -> dict[str, Any]:
        path = self.path.absolute()
        return {"name": self.name, "path": str(path), "source": self.source, "exists": path.exists()}


def command(context: typer.Context, as_json: Json = False) -> None:
    """Show where everything is: the registry, your keys, the trust file, the known heads, the cache.

    SET BY is the option or the variable that decides it, or default. Then come the environment variables
    that are set; secrets are not shown. docs/cli.md explains each variable.

    With --json: {places: [{name, path, source, exists}], variables: [{name, value, source}]}; name is
    registry, cache, keys, trust or state; value is null for a secret; a variable's source is the name under
    which it is set.
    """
    session: Session = context.obj
    places, variables = [location.to_json() for location in _places(session)], list(_variables())
    if as_json:
        output.write_json({"places": places, "variables": variables})
        return
    session.table(
        ("PLACE", "PATH", "SET BY", "EXISTS"),
        [(item["name"], item["path"], item["source"], "yes" if item["exists"] else "no") for item in places],
    )
    if variables:
        session.say("")
    session.table(
        ("VARIABLE", "VALUE", "SET BY"),
        [
            (item["name"], "(secret)" if item["value"] is None else item["value"], item["source"])
            for item in variables
        ],
    )


def _places(session: Session) -> Iterator[Place]:
    root = session.registry or environment.default_root()
    yield Place("registry", root, "--registry" if session.registry else _source("REG_HOME"))
    yield Place("cache", cache_at(root).root, "registry")
    yield Place("keys", environment.key_directory(), _source("REG_KEYS"))
    yield Place("trust", environment.trust_file(), _source("REG_TRUST"))
    yield Place("state", environment.state_directory(), _source("REG_STATE"))


def _source(variable: str) -> str:
    return environment.source(variable) or DEFAULT


def _variables() -> Iterator[dict[str, str | None]]:
    """The variables that are set, by their present names."""
    for name in environment.names():
        if source := environment.source(name):
            yield {
                "name": name,
                "value": None if _is_secret(name) else environment.read(name),
                "source": source,
            }


def _is_secret(name: str) -> bool:
    """Return True for a token, a passphrase, and a signing key that is not the name of one of the user's keys."""
    if name == "REG_SIGNING_KEY":
        from onnxreg.registry.signing.keystore import Keystore

        return not Keystore().has(environment.read(name) or "")
    return name in SECRETS or name.startswith(environment.TOKEN_PREFIX)

"""`reg config`: the places, settings and variables that are in force, and where each comes from."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.registry.support import actor, environment
from onnxreg.schema.core.errors import InputError, suggest

EXAMPLES = (
    "reg config",
    "reg --registry ./home config --json",
    "reg config actor 'Ada Lovelace'",
    "reg config actor ''",
    "reg config actor --unset",
)
SETTINGS = ("actor",)
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


def command(
    session: Session,
    setting: Annotated[
        str | None, typer.Argument(help="The setting to change: actor.", metavar="[SETTING]")
    ] = None,
    value: Annotated[str | None, typer.Argument(help="Its new value.", metavar="[VALUE]")] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Go back to the setting's default.")] = False,
    as_json: Json = False,
) -> None:
    """Show where everything is: the registry, your keys, the trust file, the known heads, the cache.

    SET BY is the option or the variable that decides it, or default. Then come the settings and the
    environment variables that are set; secrets are not shown. docs/cli.md explains each variable.

    `reg config actor NAME` stores the claimed author of your events, who is otherwise user@host of this
    machine; an empty NAME records nobody. REG_ACTOR takes precedence.

    With --json: {places: [{name, path, source, exists}], settings: [{name, value, source}], variables:
    [{name, value, source}]}; a place is registry, cache, keys, trust, state or settings; the value of a
    setting is null for nobody, its source REG_ACTOR, settings or default; the value of a variable is null
    for a secret, its source the name under which it is set.
    """
    if unset and (setting is None or value is not None):
        raise InputError("--unset takes a setting and no value", "reg config actor --unset")
    if setting is None:
        _show(session)
    else:
        _change(session, setting, value, unset)
        if as_json:
            _show(session)


def _change(session: Session, setting: str, value: str | None, unset: bool) -> None:
    """Store a setting, or remove it; then say what is in force."""
    if setting not in SETTINGS:
        raise InputError(f"unknown setting: {setting}", suggest(setting, SETTINGS))
    if unset or value is not None:
        actor.write_setting(value)
    if not session.as_json:
        claimed = actor.claimed_actor()
        session.say(f"events name {output.printable(claimed.name or 'nobody')} ({_decider(claimed)})")


def _decider(claimed: actor.ClaimedActor) -> str:
    """The file, variable or default that decides the author."""
    return str(environment.settings_file()) if claimed.source == "settings" else claimed.source


def _show(session: Session) -> None:
    places, variables = [location.to_json() for location in _places(session)], list(_variables())
    claimed = actor.claimed_actor()
    if session.as_json:
        settings = [{"name": "actor", "value": claimed.name, "source": claimed.source}]
        output.write_json({"places": places, "settings": settings, "variables": variables})
        return
    session.table(
        ("PLACE", "PATH", "SET BY", "EXISTS"),
        [(item["name"], item["path"], item["source"], "yes" if item["exists"] else "no") for item in places],
    )
    session.say("")
    session.table(("SETTING", "VALUE", "SET BY"), [("actor", claimed.name or "(nobody)", claimed.source)])
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
    yield Place("cache", environment.cache_directory(), _source("REG_STATE"))
    yield Place("keys", environment.key_directory(), _source("REG_KEYS"))
    yield Place("trust", environment.trust_file(), _source("REG_TRUST"))
    yield Place("state", environment.state_directory(), _source("REG_STATE"))
    yield Place("settings", environment.settings_file(), DEFAULT)


def _source(variable: str) -> str:
    return variable if environment.read(variable) else DEFAULT


def _variables() -> Iterator[dict[str, str | None]]:
    """The variables that are set."""
    for name in environment.names():
        if value := environment.read(name):
            yield {"name": name, "value": None if _is_secret(name) else value, "source": name}


def _is_secret(name: str) -> bool:
    """Return True for a token, a passphrase, and a signing key that is not the name of one of the user's keys."""
    if name == "REG_SIGNING_KEY":
        from onnxreg.registry.signing import Keystore

        return not Keystore().has(environment.read(name) or "")
    return name in SECRETS or name.startswith(environment.TOKEN_PREFIX)

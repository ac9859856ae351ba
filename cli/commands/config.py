"""`reg config`: the places, settings and variables that are in force, and where each comes from."""

from collections.abc import Iterator
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
SECRETS = ("REG_SERVE_TOKEN", "REG_KEY_PASSPHRASE")


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
    if setting is not None:
        if setting not in SETTINGS:
            raise InputError(f"unknown setting: {setting}", suggest(setting, SETTINGS))
        if unset or value is not None:
            actor.write_setting(value)
    claimed, places, variables = actor.claimed_actor(), list(_places(session)), list(_variables())
    if setting is not None and not as_json:
        decider = str(environment.settings_file()) if claimed.source == "settings" else claimed.source
        session.say(f"events name {output.printable(claimed.name or 'nobody')} ({decider})")
        return
    settings = [{"name": "actor", "value": claimed.name, "source": claimed.source}]
    place_rows = [(*list(item.values())[:3], "yes" if item["exists"] else "no") for item in places]
    variable_rows = [
        (item["name"], "(secret)" if item["value"] is None else item["value"], item["source"])
        for item in variables
    ]
    session.show(
        {"places": places, "settings": settings, "variables": variables},
        output.table(("PLACE", "PATH", "SET BY", "EXISTS"), place_rows),
        "",
        output.table(("SETTING", "VALUE", "SET BY"), [("actor", claimed.name or "(nobody)", claimed.source)]),
        [""] if variables else [],
        output.table(("VARIABLE", "VALUE", "SET BY"), variable_rows),
    )


def _places(session: Session) -> Iterator[dict[str, Any]]:
    """The files and directories that `reg` uses, each with the option, variable or default that decides it."""
    for name, path, variable in (
        ("registry", session.registry or environment.default_root(), "REG_HOME"),
        ("cache", environment.cache_directory(), "REG_STATE"),
        ("keys", environment.key_directory(), "REG_KEYS"),
        ("trust", environment.trust_file(), "REG_TRUST"),
        ("state", environment.state_directory(), "REG_STATE"),
        ("settings", environment.settings_file(), None),
    ):
        source = variable if variable and environment.read(variable) else "default"
        if name == "registry" and session.registry:
            source = "--registry"
        path = path.absolute()
        yield {"name": name, "path": str(path), "source": source, "exists": path.exists()}


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

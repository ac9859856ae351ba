"""`reg config`: show the directories, author and variables of `reg`."""

from onnxreg.cli.options import Session
from onnxreg.cli.output import table
from onnxreg.registry import system
from onnxreg.registry.system import actor_of_event

EXAMPLES = ("reg config", "reg --registry ./home config --json")
SECRETS = ("REG_SERVE_TOKEN", "REG_KEY_PASSPHRASE")


def command(session: Session) -> None:
    """Show where everything is: the registry, your keys, the trust file, the known heads, the cache.

    Also show the claimed author of your events and the variables that are set. Secrets are not shown.

    With --json: {places: [{name, path, source, exists}], settings: [{name, value, source}], variables: [{name, value,
    source}]}; source is the option or the variable that decides, or the word default; the value of a secret is null.
    """
    variables = [
        {"name": name, "value": None if _is_secret(name) else value, "source": name}
        for name in system.variable_names()
        if (value := system.variable(name))
    ]
    places = []
    for name, path, variable in (
        ("registry", session.root, "REG_HOME"),
        ("cache", system.cache_directory(), "REG_STATE"),
        ("keys", system.key_directory(), "REG_KEYS"),
        ("trust", system.trust_file(), "REG_TRUST"),
        ("state", system.state_directory(), "REG_STATE"),
    ):
        source = variable if system.variable(variable) else "default"
        if name == "registry" and session.registry:
            source = "--registry"
        path = path.absolute()
        places.append({"name": name, "path": str(path), "source": source, "exists": path.exists()})
    author = actor_of_event(None)
    source = "default" if system.variable("REG_ACTOR") is None else "REG_ACTOR"
    session.show(
        {"places": places, "settings": [{"name": "actor", "value": author, "source": source}]}
        | {"variables": variables},
        table(
            ("PLACE", "PATH", "SET BY", "EXISTS"),
            [(*list(item.values())[:3], "yes" if item["exists"] else "no") for item in places],
        ),
        "",
        table(("SETTING", "VALUE", "SET BY"), [("actor", author or "(nobody)", source)]),
        "" if variables else None,
        table(
            ("VARIABLE", "VALUE", "SET BY"),
            [(item["name"], item["value"] or "(secret)", item["source"]) for item in variables],
        ),
    )


def _is_secret(name: str) -> bool:
    # The name of a key is not secret.
    if name == "REG_SIGNING_KEY":
        from onnxreg.registry.signing import Keystore

        return not Keystore().has(system.variable(name) or "")
    return name in SECRETS or name.startswith(system.TOKEN_PREFIX)

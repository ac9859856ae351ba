"""What a list of models says of each of them."""

from typing import Any, NamedTuple

from onnxreg.registry import lookup
from onnxreg.registry.storage import Source
from onnxreg.schema.state import State


class Model(NamedTuple):
    """One model: its newest release, if any, how many versions it has, and which version each channel holds."""

    name: str
    newest: str | None
    versions: int
    channels: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "versions": self.versions,
            "newest": self.newest,
            "channels": self.channels,
        }


def read_model(remote: Source, name: str) -> Model:
    """One model, from its index file. IntegrityError, NotFoundError and HostError where that cannot be read."""
    state, versions = lookup.read_versions(remote, name)
    return Model(name, newest(state), len(versions), channels(state))


def newest(state: State) -> str | None:
    """The newest version that is neither yanked nor a pre-release."""
    version = state.newest_release()
    return None if version is None else str(version)


def channels(state: State) -> dict[str, str]:
    return {tag: str(channel.version) for tag, channel in sorted(state.channels.items())}

"""`reg push --layout hub[:CHANNEL]`: the usual files of a model beside the registry in a repository on the Hub."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxreg.registry.store.protocol import RegistryStore, innermost
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import check_tag

if TYPE_CHECKING:
    from onnxreg.registry.store.hub.hub import HubRegistry

HUB = "hub"


@dataclass(frozen=True)
class LayoutChoice:
    """Whose files are shown: those of a channel, or (None) of the newest release."""

    channel: str | None = None

    @classmethod
    def parse(cls, text: str) -> "LayoutChoice":
        """`hub` or `hub:CHANNEL`; InputError for anything else."""
        layout, _, channel = text.partition(":")
        if layout != HUB or (":" in text and not channel):
            raise InputError(f"not a layout: {text[:40]!r}", "write --layout hub, or --layout hub:CHANNEL")
        return cls(check_tag(channel) if channel else None)

    def begin(self, remote: RegistryStore, name: str) -> None:
        """Prepare the remote before a push. InputError if it is not on the Hub, or has another model's layout."""
        _hub(remote).choose_layout(name, self.channel)

    def end(self, remote: RegistryStore, name: str) -> None:
        """Write the layout if the push had nothing to publish."""
        _hub(remote).refresh_layout(name)


def _hub(remote: RegistryStore) -> "HubRegistry":
    from onnxreg.registry.store.hub.hub import HubRegistry

    store = innermost(remote)
    if not isinstance(store, HubRegistry):
        raise InputError(f"{remote.url} is not a repository on the Hub", "leave --layout out")
    return store

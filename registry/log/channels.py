"""Channels that travel: moved in another registry's log, by events of its own, to what they hold in ours."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.stamp import stamp
from onnxreg.schema.log.events import Tag, check_channel
from onnxreg.schema.log.state import Channel, State
from onnxreg.schema.log.tags import no_channel


@dataclass(frozen=True)
class Channels:
    """Some channels of a model, and who moves them, as claimed."""

    tags: Collection[str] = ()
    actor: str | None = None

    def moves(self, source: Ledger, destination: Ledger, before: Mapping[str, Channel]) -> list[Tag]:
        """The events that are left to do.

        Each expects what the channel held `before`, when it was looked at first.
        """
        events = []
        for tag in self.tags:
            channel, current = channel_of(source, tag), destination.channels.get(tag)
            if current is None or (current.version, current.manifest) != (channel.version, channel.manifest):
                expects = before[tag].manifest if tag in before else None
                about = stamp(source.name, self.actor, None)
                events.append(
                    Tag(**about, tag=tag, version=channel.version, manifest=channel.manifest, expects=expects)
                )
        return events


def channel_of(model: Ledger | State, tag: str) -> Channel:
    """Return a channel. Raise NotFoundError if it does not exist, InputError if the tag is a version."""
    if check_channel(tag) not in model.channels:
        raise no_channel(model.name, tag, model.channels)
    return model.channels[tag]

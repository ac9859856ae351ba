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
        """The events that are left to do. Each expects what the channel held `before`, when it was looked at first."""
        found = []
        for tag in self.tags:
            wanted, held = held_by(source, tag), destination.channels.get(tag)
            if held is None or (held.version, held.manifest) != (wanted.version, wanted.manifest):
                expects = before[tag].manifest if tag in before else None
                about = stamp(source.name, self.actor, None)
                found.append(
                    Tag(**about, tag=tag, version=wanted.version, manifest=wanted.manifest, expects=expects)
                )
        return found


def held_by(model: Ledger | State, tag: str) -> Channel:
    """What a channel holds. Raise NotFoundError if there is none, InputError if the tag is a version."""
    if check_channel(tag) not in model.channels:
        raise no_channel(model.name, tag, model.channels)
    return model.channels[tag]

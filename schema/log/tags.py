"""What a tag means; and what is said where a model has no such version or channel: what it has instead."""

from collections.abc import Collection, Mapping

from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.suggest import suggest
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.state import State, VersionEntry

MAX_LISTED_TAGS = 5
"""How many versions are named."""


def version_of(state: State, tag: str) -> Version:
    """The version that a tag means, known or not. Raise NotFoundError if it is no version and no channel."""
    if Version.is_version(tag):
        return Version.parse(tag)
    if tag not in state.channels:
        raise no_channel(state.name, tag, state.channels)
    return state.channels[tag].version


def no_version(name: str, what: str, entries: Mapping[Version, VersionEntry]) -> NotFoundError:
    """The error for a model that has no `what`, such as `version 9.0.0`.

    Of its entries the newest are named.
    """
    newest = sorted((version for version, entry in entries.items() if not entry.dropped), reverse=True)[
        :MAX_LISTED_TAGS
    ]
    told = [f"{version} (yanked)" if entries[version].yanked else str(version) for version in newest]
    return NotFoundError(f"{name} has no {what}", f"its newest are {', '.join(told)}" if told else "")


def no_channel(name: str, tag: str, channels: Collection[str]) -> NotFoundError:
    """The error for a model that has no such channel."""
    listed = f"its channels: {', '.join(channels)}" if channels else "it has no channels yet"
    return NotFoundError(f"{name} has no channel {tag}", suggest(tag, channels, listed))

"""The meaning of a tag, and the errors for a version or channel that a model does not have."""

from collections.abc import Collection, Mapping

from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.suggest import suggest
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.state import State, VersionEntry

MAX_LISTED_VERSIONS = 5
"""The most versions that an error names."""


def version_of(state: State, tag: str) -> Version:
    """The version that a tag means, known or not. Raise NotFoundError if it is neither a version nor a channel."""
    if Version.is_version(tag):
        return Version.parse(tag)
    if tag not in state.channels:
        raise no_channel(state.name, tag, state.channels)
    return state.channels[tag].version


def no_version(name: str, subject: str, entries: Mapping[Version, VersionEntry]) -> NotFoundError:
    """The error for a model that has no `subject`, such as `version 9.0.0`.

    Of its entries the newest are named.
    """
    newest = sorted((version for version, entry in entries.items() if not entry.dropped), reverse=True)[
        :MAX_LISTED_VERSIONS
    ]
    names = [f"{version} (yanked)" if entries[version].yanked else str(version) for version in newest]
    return NotFoundError(f"{name} has no {subject}", f"its newest are {', '.join(names)}" if names else "")


def no_channel(name: str, tag: str, channels: Collection[str]) -> NotFoundError:
    """The error for a model that has no such channel."""
    listed = f"its channels: {', '.join(channels)}" if channels else "it has no channels yet"
    return NotFoundError(f"{name} has no channel {tag}", suggest(tag, channels, listed))

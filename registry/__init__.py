"""The store, the logs, and transfers between registries. `Registry` is the documented Python API.

Packages and modules, lowest first: `system.py` (operating system), `store` (places that hold a registry), `signing.py`
(this user's keys), `log` (one model's history), `trust` (what a reader accepts), `archive.py` (a registry in one file),
`remotes.py` (named registries), `gates.py` (rules of channels), `resolution.py` (answers for an app),
`transfer` (push, pull, mirror), `oci.py` (OCI registries), `publish.py`, `search`, `dossier`, `maintain.py` (verify,
repair), `registry.py`, `lockfile.py`, `server`.

Start with `registry.py`, then `store/protocol.py` and `log/log.py`. The file format: docs/format.md.
Must not import: `onnxreg.converters`, `onnxreg.cli`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxreg.registry.registry import Registry

__all__ = ["Registry"]


def __getattr__(name: str) -> Any:
    if name == "Registry":
        from onnxreg.registry.registry import Registry

        return Registry
    raise AttributeError(name)

"""`reg site`: the pages of a registry as files, for any host: one folder with relative links, and the tree in it or elsewhere."""

import json
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from starlette.requests import Request

from onnxreg.registry.server.pages.pages import STATIC, Pages
from onnxreg.registry.server.pages.rendering import StaticLinks
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.registry.store.layout import index_path
from onnxreg.registry.transfer.export_files import check_target, replacing
from onnxreg.schema.core.ref import POLICY_LOG

LIST = "site.json"
"""The file that lists all files of a site."""
TREE = "tree"
"""The folder of the registry's tree, unless the tree is elsewhere."""


@dataclass(frozen=True)
class Site:
    """A site of a registry: `url` is the tree's, absolute or relative to the pages; None copies the tree into the site."""

    registry: ServedRegistry
    url: str | None
    trial: Path | None

    def write(self, target: Path) -> dict[str, int]:
        """Write the site into a directory that replaces an earlier site; return the number of models, and of pages."""
        check_target(target, self.registry.root, files_of, "site")
        with replacing(target) as fresh:
            if self.url is None:
                self._copy_tree(fresh / TREE)
            shutil.copytree(STATIC, fresh / "static")
            if self.trial is not None:
                shutil.copytree(self.trial, fresh / "try")
            counts = anyio.run(partial(self._write_pages, fresh))
            files = [path.relative_to(fresh).as_posix() for path in fresh.rglob("*") if path.is_file()]
            (fresh / LIST).write_text(json.dumps(sorted([*files, LIST]), indent=1) + "\n", "utf-8")
        return counts

    async def _write_pages(self, fresh: Path) -> dict[str, int]:
        tree = (self.url or TREE).rstrip("/")
        base, links = tree if urlsplit(tree).scheme else None, StaticLinks(f"{tree}/")
        settings = Settings(url=base, trial=self.trial)
        pages = Pages(self.registry, settings, Limits(), links)
        names = sorted(self.registry.names())
        versions = {
            name: self.registry.log_of(name, self.registry.read_index(name)).versions for name in names
        }

        (fresh / "index.html").write_bytes(await pages.models(_request("/")))
        for name in names:
            page = await pages.model(_request(f"/models/{name}"))
            (fresh / links.file_of("model", name)).write_bytes(page)
            if len(versions[name]) > 1:
                page = await pages.history(_request("/history", f"model={name}"))
                (fresh / links.file_of("history", name)).write_bytes(page)
            for version in versions[name]:
                page = await pages.version(_request(f"/models/{name}:{version}"))
                (fresh / links.file_of("model", name, version)).write_bytes(page)
        return {"models": len(names), "pages": sum(1 for _ in fresh.glob("*.html"))}

    def _copy_tree(self, target: Path) -> None:
        """Copy the files that `reg serve` serves as the tree: index files first, so that their blobs are there."""
        root = self.registry.root
        paths = [Path("registry.json"), *map(Path, map(index_path, (POLICY_LOG, *self.registry.names())))]
        paths += [path.relative_to(root) for path in sorted((root / "blobs").rglob("*")) if path.is_file()]
        for path in paths:
            if (root / path).is_file() and not (root / path).is_symlink():
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / path, target / path)


def files_of(directory: Path) -> set[str]:
    """Return the paths of the files of the site in a directory; {} if there is none."""
    path = directory / LIST
    try:
        return set(json.loads(path.read_bytes())) if path.is_file() else set()
    except (ValueError, TypeError):
        return set()


def _request(path: str, query: str = "") -> Request:
    return Request(
        {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    )

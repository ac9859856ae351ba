"""`reg site`: write a registry's pages into a folder for any web host, with or without the registry's files."""

import json
import shutil
from contextlib import suppress
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio
from starlette.requests import Request

from onnxreg.registry.server.pages.pages import STATIC, Pages
from onnxreg.registry.server.pages.rendering import StaticLinks
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.protocol import CATALOG, index_path
from onnxreg.registry.transfer.export_files import check_target, replacing
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.ref import POLICY_LOG

LIST = "site.json"  # the file that lists all files of a site


def write_site(registry: ServedRegistry, target: Path, url: str | None, trial: Path | None) -> dict[str, int]:
    """Write a site into a directory, in place of an earlier site. Return the number of models and of pages.

    `url` is the URL of the registry's tree, absolute or relative to the pages. If it is None, the tree is copied.
    `trial` is the folder with the script that tries models.
    """
    check_target(target, registry.root, _files_of, "site")
    if trial is not None and target.resolve().is_relative_to(trial.resolve()):
        raise InputError(f"{target} is inside {trial}, which is copied", "name a directory outside of it")
    with replacing(target) as fresh:
        for folder, source in {"static": STATIC, "try": trial}.items():
            if source is not None:
                shutil.copytree(source, fresh / folder)
        models = anyio.run(_write_pages, registry, fresh, (url or "tree").rstrip("/"), trial)
        if url is None:  # pages, then index files, then blobs: all that a page or index file names is copied
            root, names = registry.root, map(index_path, (POLICY_LOG, *registry.names()))
            blobs = (path.relative_to(root) for path in (root / "blobs").rglob("*"))
            for path in chain(map(Path, ("registry.json", CATALOG, *names)), blobs):
                if (root / path).is_file() and not (root / path).is_symlink():
                    (fresh / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(root / path, fresh / "tree" / path)
        files = [path.relative_to(fresh).as_posix() for path in fresh.rglob("*") if path.is_file()]
        (fresh / LIST).write_text(json.dumps(sorted([*files, LIST]), indent=1) + "\n", "utf-8")
        return {"models": models, "pages": len([*fresh.glob("*.html")])}


async def _write_pages(registry: ServedRegistry, fresh: Path, tree: str, trial: Path | None) -> int:
    links, base = StaticLinks(f"{tree}/"), tree if urlsplit(tree).scheme else None
    pages, names = Pages(registry, Settings(url=base, trial=trial), links), sorted(registry.names())
    makers = {links.url(""): (pages.models, "/", "")}
    for name in names:
        versions = registry.log_of(name, registry.read_index(name)).versions
        makers[links.model_url(name)] = pages.model, f"/models/{name}", ""
        makers[links.url("history", model=name)] = pages.history, "/history", f"model={name}"
        for version in versions:
            makers[links.model_url(name, version)] = pages.version, f"/models/{name}:{version}", ""
    for link, (make, path, query) in makers.items():
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
        (fresh / unquote(link)).write_bytes(await make(Request(scope)))
    absent = NotFoundError("there is no such page")  # without this page, some hosts send the first one
    (fresh / "404.html").write_bytes(bytes(pages.of_error(absent).body))
    return len(names)


def _files_of(directory: Path) -> set[str]:
    with suppress(OSError, ValueError, TypeError):
        return set(json.loads((directory / LIST).read_bytes()))
    return set()

"""A real nginx (`apt-get install nginx-light`) with a block of configuration, such as those of docs/serve.md."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from onnxreg.registry.server import server
from support.servers.regserve import Site, wait

REPOSITORY = Path(__file__).parents[3]

MAIN = """
daemon off; user root; worker_processes 1; pid {0}/pid; error_log {0}/errors;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {0}; proxy_temp_path {0}; fastcgi_temp_path {0}; uwsgi_temp_path {0}; scgi_temp_path {0};
    {1}
}}
"""


def documented(containing: str) -> str:
    """The block of the page that contains a line."""
    blocks = re.findall(
        r"^```nginx\n(.*?)^```", (REPOSITORY / "docs" / "serve.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (found,) = (block for block in blocks if containing in block)
    return str(found)


@contextmanager
def nginx(directory: Path, root: Path, block: str) -> Iterator[Site]:
    """nginx with a block of its configuration, in which `/srv/models` is the registry, without TLS."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    with closing(server.listen("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    here = block.replace("/srv/models", str(root)).replace(
        "listen 443 ssl http2;", f"listen 127.0.0.1:{port};"
    )
    directory.mkdir()
    (directory / "nginx.conf").write_text(MAIN.format(directory, here))
    process = subprocess.Popen([program, "-c", directory / "nginx.conf"], stderr=subprocess.DEVNULL)
    site = Site(port, root)
    try:
        wait(lambda: process.poll() is not None or _listens(site))
        assert process.poll() is None, (directory / "errors").read_text()
        yield site
    finally:
        process.terminate()
        process.wait(60)


def _listens(site: Site) -> bool:
    try:
        site.connect().close()
    except OSError:
        return False
    return True

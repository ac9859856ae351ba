"""A real nginx (`apt-get install nginx-light`) with a block of configuration, such as those of docs/serve.md."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.servers.regserve import Site, listens, wait
from support.servers.s3servers import free_port

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
    page = (REPOSITORY / "docs" / "serve.md").read_text()
    blocks = re.findall(r"^```nginx\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (found,) = (block for block in blocks if containing in block)
    return str(found)


@contextmanager
def nginx(directory: Path, root: Path, block: str) -> Iterator[Site]:
    """nginx with a block of its configuration, in which `/srv/models` is the registry, without TLS."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    port = free_port()
    here = block.replace("/srv/models", str(root))
    here = here.replace("listen 443 ssl http2;", f"listen 127.0.0.1:{port};")
    directory.mkdir()
    (directory / "nginx.conf").write_text(MAIN.format(directory, here))
    process = subprocess.Popen([program, "-c", directory / "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        wait(lambda: process.poll() is not None or listens(port))
        assert process.poll() is None, (directory / "errors").read_text()
        yield Site(port, root)
    finally:
        process.terminate()
        process.wait(60)

"""The lines that a version's page offers to copy."""

import re
from html import unescape

from support.servers.regserve import Site

_SNIPPET = re.compile(
    r'<summary>([^<]+)</summary>\s*<div[^>]*><pre><code class="language-\w+">(.*?)</code></pre>', re.DOTALL
)


def snippets_of(site: Site, ref: str, **headers: str) -> dict[str, str]:
    """The code for each client on the page of a version."""
    html = site.get(f"/models/{ref}", **headers).body.decode()
    return {unescape(client): unescape(code) for client, code in _SNIPPET.findall(html)}

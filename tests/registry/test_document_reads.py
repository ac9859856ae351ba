"""A command reads each document of a remote once: index files, policies, manifests and other blobs."""

from collections import Counter

import pytest
from support.servers.faults import Proxy

READING = (
    "resolve acme/pii --remote",
    "pull acme/pii:0.1.0",
    "show acme/pii --full --remote",
    "diff acme/pii:0.1.0 acme/pii:0.1.1 --remote",
    "log acme/pii --remote",
    "history acme/pii --remote",
    "ls acme/pii --remote",
    "lock acme/pii --remote",
    "sbom acme/pii --remote",
    "dossier acme/pii --output dossier --remote",
)
WRITING = (
    "push acme/pii",
    "tag acme/pii:0.1.0 stable --remote",
    "yank acme/pii:0.1.1 --remote",
    "pin acme/pii:0.1.0 --remote",
    "untag acme/pii:stable --remote",
    "yank --undo acme/pii:0.1.1 --remote",
)


def read_twice(site: Proxy) -> dict[str, int]:
    """The requests that asked for a document, or whether it exists, more than once."""
    counts = Counter(seen for seen in site.seen if seen[0] in ("GET", "HEAD") and "list-type" not in seen[1])
    return {" ".join(seen): count for seen, count in counts.items() if count > 1}


@pytest.mark.parametrize("words", READING)
def test_a_reader_asks_for_each_document_once(words, registry, other, site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in "ab":
        registry.make(seed=seed)
    for _ in range(2):
        site.seen.clear()
        assert other.reg("--quiet", *words.split(), site.url) == 0
        assert site.seen and not read_twice(site)


def test_a_writer_asks_for_each_document_once(registry, s3_proxy, bucket_url):
    for seed in "ab":
        registry.make(seed=seed)
    registry.push(
        "acme/pii:0.1.0", bucket_url
    )  # makes the registry, and proves its promises by reading again and again
    for words in WRITING:
        s3_proxy.seen.clear()
        assert registry.reg("--quiet", *words.split(), bucket_url) == 0
        assert s3_proxy.seen and not read_twice(s3_proxy), words

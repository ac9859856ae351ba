"""A difference as one self-contained page: nothing is loaded from elsewhere, it may be mailed, printed and kept."""

from collections.abc import Sequence

from markupsafe import Markup

from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.server.pages.rendering import HERE, environment
from onnxreg.registry.server.pages.views import artifact_pairs
from onnxreg.schema.compare.graphs import DeepDiff, TensorChange, TensorForm
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.core.numbers import measure


def report(
    old: PublishedVersion,
    new: PublishedVersion,
    found: ManifestDiff,
    deep: Sequence[DeepDiff] | None = None,
    later: Sequence[str] = (),
) -> bytes:
    """The page, UTF-8. `deep`: what was found inside the files, where somebody looked; `later`: what later evaluations say."""
    page = environment()
    page.globals |= {"figure": measure, "tensor_form": tensor_form}
    style = Markup((HERE / "static" / "style.css").read_text(encoding="utf-8"))
    sides = [
        {"ref": side.ref, "tag": side.ref.tag, "digest": side.digest, "manifest": side.manifest}
        for side in (old, new)
    ]
    pairs = artifact_pairs(old.manifest, new.manifest)
    values = {"old": sides[0], "new": sides[1], "pairs": pairs, "diff": found, "deep": deep, "style": style}
    values |= {"later": later}
    return page.get_template("report.html").render(values).encode()


def tensor_form(change: TensorChange) -> str:
    """`float32[384, 17]`, and both sides' where they differ in more than values."""
    sides = [_form(form, change.change == "renamed") for form in (change.old, change.new) if form]
    shown = " → ".join(dict.fromkeys(sides))
    return f"{shown}, dequantized" if change.dequantized else shown


def _form(form: TensorForm, named: bool) -> str:
    shown = f"{form.dtype}[{', '.join(map(str, form.dims))}]"
    return f"{form.name} {shown}" if named else shown

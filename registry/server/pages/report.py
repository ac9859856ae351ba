"""Render a difference as one self-contained page, without external files, to mail, print and keep."""

from collections.abc import Sequence

from markupsafe import Markup

from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.server.pages.rendering import HERE, environment
from onnxreg.schema.compare.graphs import DeepDiff, TensorChange, TensorForm
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import DiffOverview
from onnxreg.schema.core.units import measure


def report(
    old: PublishedVersion,
    new: PublishedVersion,
    manifest_diff: ManifestDiff,
    screen: DiffOverview,
    deep: Sequence[DeepDiff] | None = None,
    later: Sequence[str] = (),
) -> bytes:
    """The page, UTF-8. `screen` comes first. `deep`: differences inside the files, if compared; `later`: verdicts of later
    evaluations.
    """
    page = environment()
    page.globals |= {"figure": measure, "tensor_form": tensor_form}
    style = Markup((HERE / "static" / "style.css").read_text(encoding="utf-8"))
    sides = [
        {"ref": side.ref, "tag": side.ref.tag, "digest": side.digest, "manifest": side.manifest}
        for side in (old, new)
    ]
    values = {
        "old": sides[0],
        "new": sides[1],
        "diff": manifest_diff,
        "screen": screen,
        "deep": deep,
        "style": style,
    }
    values |= {"later": later}
    return page.get_template("report.html").render(values).encode()


def tensor_form(change: TensorChange) -> str:
    """`float32[384, 17]`, and both sides' if they differ in more than values."""
    sides = [_form(form, change.change == "renamed") for form in (change.old, change.new) if form]
    text = " → ".join(dict.fromkeys(sides))
    return f"{text}, dequantized" if change.dequantized else text


def _form(form: TensorForm, with_name: bool) -> str:
    text = f"{form.dtype}[{', '.join(map(str, form.dims))}]"
    return f"{form.name} {text}" if with_name else text

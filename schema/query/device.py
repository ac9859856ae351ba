"""A device: what an app says about the ONNX Runtime it ships with and the phone it runs on.

    {"name"?, "ort", "build"?, "operators"?, "providers"?, "domains"?, "platform"?, "abi"?, "ram"?, "free_space"?, "locale"?,
     "app_version"?}

`requirements` turns it into tests of artifacts. What an artifact needs and nobody recorded counts as not proven, and
is refused. `docs/resolve.md` is the specification; JSON vectors under `tests/vectors/resolve` go with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.schema.core.canonical import items, mapping, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, suggest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.summary import ArtifactSummary
from onnxreg.schema.query.requirements import Requirement
from onnxreg.schema.query.runtimes import OLDEST_FORMAT, RELEASES, Runtime, runtime

if TYPE_CHECKING:
    from onnxreg.schema.manifest.operators import Build, Need

OperatorSets = Callable[[Digest], "tuple[Need, ...]"]
"""Reads the operator set of a digest; called only for artifacts that meet all other requirements of a reduced build."""

BUILDS = ("full", "minimal")
CONTRIB = "com.microsoft"
"""The domain of the operators that ONNX Runtime adds to ONNX's."""

BUILT_IN = frozenset({"ai.onnx", "ai.onnx.ml", CONTRIB})
"""The operator domains that every full build has."""

FOREIGN = frozenset({"openvino-ir"})
"""Formats that are not for ONNX Runtime."""

ORT_FORMATS = frozenset({"ort", "ort-android"})
KEYS = (
    *("name", "ort", "build", "operators", "providers", "domains"),
    *("platform", "abi", "ram", "free_space", "locale", "app_version"),
)


@dataclass(frozen=True)
class Device:
    """A device document, read. Sizes are bytes; None is unlimited or not said.

    `operators` is the text of the operator config that a minimal build was made from; `domains` are those of operator
    libraries that the app registers. `platform`, `abi`, `locale` and `app_version` are for rollouts and for those who read the document:
    nothing in an artifact depends on them.
    """

    ort: str
    name: str = ""
    build: str = "full"
    operators: str | None = None
    providers: tuple[str, ...] = ("CPU",)
    domains: tuple[str, ...] = ()
    platform: str | None = None
    abi: str | None = None
    ram: int | None = None
    free_space: int | None = None
    locale: str | None = None
    app_version: str | None = None

    @classmethod
    def read(cls, value: Any) -> "Device":
        """Read a device document. InputError, naming the key, if it is malformed."""
        from onnxreg.schema.core.units import size

        fields = mapping(value)
        for key in fields:
            if key not in KEYS:
                raise InputError(
                    f"a device has no {key[:40]!r}", suggest(key, KEYS, f"its keys are {', '.join(KEYS)}")
                )
        required(fields, "ort")
        device = cls(
            ort=_keyed(fields, "ort", text, ""),
            name=_keyed(fields, "name", text, ""),
            build=_keyed(fields, "build", text, "full"),
            operators=_keyed(fields, "operators", text, None),
            providers=_keyed(fields, "providers", _texts, ("CPU",)),
            domains=_keyed(fields, "domains", _texts, ()),
            platform=_keyed(fields, "platform", text, None),
            abi=_keyed(fields, "abi", text, None),
            ram=_keyed(fields, "ram", size, None),
            free_space=_keyed(fields, "free_space", size, None),
            locale=_keyed(fields, "locale", text, None),
            app_version=_keyed(fields, "app_version", _version, None),
        )
        device.check()
        return device

    def check(self) -> None:
        """InputError if the parts do not fit each other, or the release or operator config cannot be read."""
        if self.build not in BUILDS:
            raise InputError(f"build is {self.build[:40]!r}", f"write {' or '.join(BUILDS)}")
        if self.build == "minimal" and self.operators is None:
            raise InputError(
                "a minimal build has only some operators", "give its operator config as operators"
            )
        if self.build == "full" and self.operators is not None:
            raise InputError("operators belongs to a minimal build", 'write "build": "minimal"')
        _ = self.runtime, self.built

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {key: getattr(self, key) for key in KEYS}
        value |= {key: list(value[key]) for key in ("providers", "domains")}
        return {key: item for key, item in value.items() if item not in (None, "", [])}

    @cached_property
    def runtime(self) -> Runtime:
        return runtime(self.ort)

    @cached_property
    def built(self) -> "Build | None":
        """The operators of a minimal build; None for a full one."""
        if self.operators is None:
            return None
        from onnxreg.schema.manifest.operators import read_build

        return read_build(self.operators)

    def requirements(self, operator_sets: OperatorSets, context: int | None = None) -> list[Requirement]:
        """The requirements on an artifact to load and fit on the device, in the order in which they are tested.

        Contrib and other operators come last: only then is an operator set read. `context` is that of the query.
        """
        requirements = [
            Requirement("runtime", _runtime_problem),
            Requirement("ort-format", self._format_problem),
            Requirement("opset", self._opset_problem),
            Requirement("ir-version", self._ir_problem),
            Requirement("domain", self._domain_problem),
            Requirement("provider", self._provider_problem),
        ]
        if self.ram is not None:
            requirements.append(_in_memory(self.ram, context))
        if self.free_space is not None:
            requirements.append(_on_disk(self.free_space))
        requirements.append(self._contrib(operator_sets))
        return requirements if self.built is None else requirements + _containment(self.built, operator_sets)

    def _format_problem(self, artifact: ArtifactSummary, _: int) -> str:
        number, newest = artifact.ort_format, self.runtime.ort_format
        if not is_ort_format(artifact):
            return "" if self.build == "full" else "is ONNX, a minimal build loads only ORT format"
        if number is None:
            return "is of an ORT format whose number is not recorded"
        if OLDEST_FORMAT <= number <= newest:
            return ""
        return f"is of ORT format {number}, ONNX Runtime {self.ort} loads {OLDEST_FORMAT} to {newest}"

    def _opset_problem(self, artifact: ArtifactSummary, _: int) -> str:
        if artifact.opset is None:
            return "has an opset that is not recorded"
        if artifact.opset <= self.runtime.opset:
            return ""
        return f"has opset {artifact.opset}, ONNX Runtime {self.ort} loads up to {self.runtime.opset}"

    def _ir_problem(self, artifact: ArtifactSummary, _: int) -> str:
        """The IR version belongs to the ONNX file: it is not looked at in ORT format."""
        number = artifact.ir_version
        if number is None or number <= self.runtime.ir or is_ort_format(artifact):
            return ""
        return f"has ONNX IR version {number}, ONNX Runtime {self.ort} loads up to {self.runtime.ir}"

    def _domain_problem(self, artifact: ArtifactSummary, _: int) -> str:
        """A minimal build is judged by its operators, whatever their domain."""
        if self.built is not None:
            return ""
        missing = [domain for domain in artifact.domains if domain not in BUILT_IN | {*self.domains}]
        return f"needs operators of {' and '.join(missing)}" if missing else ""

    def _contrib(self, operator_sets: OperatorSets) -> Requirement:
        """The table is of the CPU: formats for another provider are not looked at."""

        def problem(artifact: ArtifactSummary, _: int) -> str:
            has_contrib = artifact.contrib or (CONTRIB in artifact.domains and artifact.operators)
            if not has_contrib or artifact.format == "webgpu":
                return ""
            from onnxreg.schema.query import runtimes

            needs = artifact.contrib
            if not needs and artifact.operators:
                operators = operator_sets(artifact.operators)
                needs = runtimes.needs_of_set(operators, artifact.precision, is_ort_format(artifact))
            return runtimes.problem(needs, self.ort)

        return Requirement("contrib", problem)

    def _provider_problem(self, artifact: ArtifactSummary, _: int) -> str:
        """Whatever else an artifact was made for, it runs on the CPU too; only `webgpu` ones do not."""
        webgpu = artifact.format == "webgpu"
        usable = (artifact.providers or ("WebGPU",)) if webgpu else ("CPU", *artifact.providers)
        if not self._providers.isdisjoint(map(provider, usable)):
            return ""
        return f"runs on {' and '.join(usable)}, this build on {' and '.join(self.providers) or 'nothing'}"

    @cached_property
    def _providers(self) -> frozenset[str]:
        return frozenset(map(provider, self.providers))


def is_ort_format(artifact: ArtifactSummary) -> bool:
    """True if the main file is in ORT format (`.ort`), not in ONNX's."""
    return artifact.ort_format is not None or artifact.format in ORT_FORMATS


def provider(name: str) -> str:
    """Normalize an execution provider's name: `NnapiExecutionProvider` and `NNAPI` are one, WASM is the CPU."""
    short = name.lower().removesuffix("executionprovider")
    return "cpu" if short == "wasm" else short


def _runtime_problem(artifact: ArtifactSummary, _: int) -> str:
    return f"is {artifact.format}, which is not for ONNX Runtime" if artifact.format in FOREIGN else ""


def _in_memory(ram: int, context: int | None) -> Requirement:
    """Weights must fit at least, and the keys and values of a decoder for `context`, or its longest context."""

    def problem(artifact: ArtifactSummary, _: int) -> str:
        weights, cache = artifact.weight_size, artifact.kv_cache
        size = weights + (0 if cache is None else cache.size(context))
        if size <= ram:
            return ""
        detail = f"has {size} bytes to hold in {ram} bytes of memory"
        if cache is None:
            return detail
        tokens = cache.max_tokens if context is None else context
        return f"{detail}: {weights} of weights, and {cache.bytes_per_token} for each of {tokens} tokens"

    return Requirement("ram", problem)


def _on_disk(space: int) -> Requirement:
    def problem(_: ArtifactSummary, download: int) -> str:
        return "" if download <= space else f"needs {download} bytes of {space} that are free"

    return Requirement("space", problem)


def _containment(built: "Build", operator_sets: OperatorSets) -> list[Requirement]:
    """The tests of a reduced build. Artifacts of one operator set are judged once."""
    from onnxreg.schema.manifest.operators import Shortfall

    shortfalls: dict[Digest | None, Shortfall | None] = {
        None: Shortfall("operators", "has operators that are not recorded")
    }

    def requirement(code: str) -> Requirement:
        def problem(artifact: ArtifactSummary, _: int) -> str:
            digest = artifact.operators
            if digest not in shortfalls:
                shortfalls[digest] = built.shortfall(operator_sets(digest)) if digest else None
            shortfall = shortfalls[digest]
            return shortfall.detail if shortfall is not None and shortfall.code == code else ""

        return Requirement(code, problem)

    return [requirement("operators"), requirement("types")]


def _keyed(fields: Mapping[str, Any], key: str, read: Callable[[Any], Any], default: Any) -> Any:
    try:
        return default if fields.get(key) is None else read(fields[key])
    except InputError as error:
        raise InputError(f"{key}: {error.message}", error.advice) from error


def _texts(value: Any) -> tuple[str, ...]:
    return items(value, text)


OLDEST = (1, 16)
"""The oldest release: older packages for phones were minimal builds, and load no ORT format that is made today."""


class RuntimePackage(NamedTuple):
    """A published package of ONNX Runtime for one platform; `absent` are minor numbers that were never published."""

    name: str
    platform: str
    providers: tuple[str, ...]
    source: str
    absent: tuple[int, ...] = ()


PACKAGES = (
    RuntimePackage(
        "ort-android",
        "android",
        ("CPU", "NNAPI", "XNNPACK"),
        "Maven com.microsoft.onnxruntime:onnxruntime-android; "
        "https://onnxruntime.ai/docs/execution-providers/NNAPI-ExecutionProvider.html, Xnnpack-ExecutionProvider.html",
    ),
    RuntimePackage(
        "ort-ios",
        "ios",
        ("CPU", "CoreML", "XNNPACK"),
        "CocoaPods onnxruntime-c and onnxruntime-objc; "
        "https://onnxruntime.ai/docs/execution-providers/CoreML-ExecutionProvider.html, Xnnpack-ExecutionProvider.html",
        absent=(31,),
    ),
    RuntimePackage(
        "ort-web",
        "web",
        ("CPU",),
        "npm onnxruntime-web; https://onnxruntime.ai/docs/get-started/with-javascript/web.html",
        absent=(28, 31),
    ),
    RuntimePackage(
        "ort-webgpu",
        "web",
        ("CPU", "WebGPU"),
        "npm onnxruntime-web, imported as onnxruntime-web/webgpu; "
        "https://onnxruntime.ai/docs/get-started/with-javascript/web.html",
        absent=(28, 31),
    ),
    RuntimePackage(
        "ort-desktop", "desktop", ("CPU",), "PyPI onnxruntime: asked with get_available_providers"
    ),
)


class Preset(NamedTuple):
    device: Device
    source: str


def presets() -> dict[str, Preset]:
    """Every preset by its name, oldest release first within a package."""
    presets_by_name = {}
    for package in PACKAGES:
        for major, minor in sorted(RELEASES):
            if (major, minor) >= OLDEST and minor not in package.absent:
                release = f"{major}.{minor}"
                name = f"{package.name}-{release}"
                device = Device(release, name, providers=package.providers, platform=package.platform)
                presets_by_name[name] = Preset(device, package.source)
    return presets_by_name


def preset(name: str) -> Device:
    """The device of this name. InputError, with the nearest names, if there is none."""
    presets_by_name = presets()
    if name in presets_by_name:
        return presets_by_name[name].device
    hint = suggest(name, presets_by_name, Advice("list-devices"))
    raise InputError(f"there is no device preset {name[:80]!r}", hint)


def _version(value: Any) -> str:
    """A SemVer version."""
    return str(Version.parse(text(value)))

"""A device: the ONNX Runtime that an app ships with, and the phone that it runs on.

    {"name"?, "ort", "build"?, "operators"?, "providers"?, "domains"?, "platform"?, "abi"?, "ram"?, "free_space"?, "locale"?,
     "app_version"?}

`requirements` turns it into tests of artifacts. A need of an artifact that nobody recorded counts as not proven, and
the artifact is refused. `docs/resolve.md` is the specification, `tests/vectors/resolve` has its vectors.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.summary import ArtifactSummary
from onnxreg.schema.query.question_document import read_document
from onnxreg.schema.query.requirements import Requirement
from onnxreg.schema.query.runtimes import OLDEST_FORMAT, RELEASES, Runtime, needs_of_set, problem, runtime

if TYPE_CHECKING:
    from onnxreg.schema.manifest.operators import Build, Need, Shortfall

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


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A device document. Sizes are bytes; None is unlimited or unknown.

    `operators` is the text of the operator config that a minimal build was made from; `domains` are those of operator
    libraries that the app registers. `platform`, `abi`, `locale` and `app_version` serve rollouts and people: nothing in an
    artifact depends on them.
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
        """Read a device document. InputError, naming the key, if it is malformed, or its parts do not fit each other."""
        device = read_document(value, cls, "a device")
        if device.app_version is not None:
            Version.parse(device.app_version)
        if device.build not in BUILDS:
            raise InputError(f"build is {device.build[:40]!r}", f"write {' or '.join(BUILDS)}")
        if device.build == "minimal" and device.operators is None:
            raise InputError(
                "a minimal build has only some operators", "give its operator config as operators"
            )
        if device.build == "full" and device.operators is not None:
            raise InputError("operators belongs to a minimal build", 'write "build": "minimal"')
        _ = device.runtime, device.built
        return device

    def to_json(self) -> dict[str, Any]:
        fields = msgspec.structs.asdict(self) | {"providers": [*self.providers], "domains": [*self.domains]}
        return {key: item for key, item in fields.items() if item not in (None, "", [])}

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
        shortfalls: dict[Digest, Shortfall | None] = {}

        def in_memory(artifact: ArtifactSummary, _: int) -> str:
            return self._memory_problem(artifact, context)

        def contrib(artifact: ArtifactSummary, _: int) -> str:
            return self._contrib_problem(artifact, operator_sets)

        def contained(code: str, artifact: ArtifactSummary) -> str:
            """Containment in a reduced build; artifacts of one operator set are judged once."""
            digest = artifact.operators
            if self.built is None or digest is None:
                return "has operators that are not recorded" if self.built and code == "operators" else ""
            if digest not in shortfalls:
                shortfalls[digest] = self.built.shortfall(operator_sets(digest))
            shortfall = shortfalls[digest]
            return shortfall.detail if shortfall is not None and shortfall.code == code else ""

        return [
            Requirement("runtime", _runtime_problem),
            Requirement("ort-format", self._format_problem),
            Requirement("opset", self._opset_problem),
            Requirement("ir-version", self._ir_problem),
            Requirement("domain", self._domain_problem),
            Requirement("provider", self._provider_problem),
            Requirement("ram", in_memory),
            Requirement("space", self._space_problem),
            Requirement("contrib", contrib),
            Requirement("operators", lambda artifact, _: contained("operators", artifact)),
            Requirement("types", lambda artifact, _: contained("types", artifact)),
        ]

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

    def _memory_problem(self, artifact: ArtifactSummary, context: int | None) -> str:
        """Weights must fit at least, and the keys and values of a decoder for `context`, or its longest context."""
        weights, cache = artifact.weight_size, artifact.kv_cache
        size = weights + (0 if cache is None else cache.size(context))
        if self.ram is None or size <= self.ram:
            return ""
        detail = f"has {size} bytes to hold in {self.ram} bytes of memory"
        if cache is None:
            return detail
        tokens = cache.max_tokens if context is None else context
        return f"{detail}: {weights} of weights, and {cache.bytes_per_token} for each of {tokens} tokens"

    def _space_problem(self, _: ArtifactSummary, download: int) -> str:
        if self.free_space is None or download <= self.free_space:
            return ""
        return f"needs {download} bytes of {self.free_space} that are free"

    def _contrib_problem(self, artifact: ArtifactSummary, operator_sets: OperatorSets) -> str:
        """The table is of the CPU: formats for another provider are not looked at."""
        needs, digest = artifact.contrib, artifact.operators
        if artifact.format == "webgpu":
            return ""
        if not needs and digest is not None and CONTRIB in artifact.domains:
            needs = needs_of_set(operator_sets(digest), artifact.precision, is_ort_format(artifact))
        return problem(needs, self.ort)


def is_ort_format(artifact: ArtifactSummary) -> bool:
    """True if the main file is in ORT format (`.ort`), not in ONNX's."""
    return artifact.ort_format is not None or artifact.format in ORT_FORMATS


def provider(name: str) -> str:
    """Normalize an execution provider's name: `NnapiExecutionProvider` and `NNAPI` are one, WASM is the CPU."""
    short = name.lower().removesuffix("executionprovider")
    return "cpu" if short == "wasm" else short


def _runtime_problem(artifact: ArtifactSummary, _: int) -> str:
    return f"is {artifact.format}, which is not for ONNX Runtime" if artifact.format in FOREIGN else ""


OLDEST = (1, 16)
"""The oldest release: older packages for phones were minimal builds, and load no ORT format that is made today."""


class RuntimePackage(msgspec.Struct, frozen=True):
    """A published package of ONNX Runtime for one platform; `absent` are minor numbers that were never published."""

    name: str
    platform: str
    providers: tuple[str, ...]
    source: str
    absent: tuple[int, ...] = ()


PACKAGES = msgspec.json.decode(
    Path(__file__).with_name("packages.json").read_bytes(), type=tuple[RuntimePackage, ...]
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
    hint = suggest(name, presets_by_name, "`reg devices` lists them; or name a JSON file of one device")
    raise InputError(f"there is no device preset {name[:80]!r}", hint)

"""What several directories of tests share: tiny checkpoints, S3 servers started once, and the wheel as users get it.

The checkpoints are real architectures with random weights that were saved, so that nothing is missing in them.
"""

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from _pytest.unraisableexception import gc_collect_iterations_key
from hypothesis import is_hypothesis_test, settings
from hypothesis.internal.conjecture import engine
from jinja2 import Environment, FileSystemBytecodeCache
from support.registries import gated as gated_registry
from support.registries.home import Home
from support.servers import ceph as ceph_server
from support.servers import s3servers

from onnxreg.registry import system
from onnxreg.registry.server.pages import rendering
from onnxreg.registry.store import requests

for profile, examples in {"ci": 10, "more": 40, "full": 200}.items():
    settings.register_profile(profile, deadline=None, max_examples=examples, stateful_step_count=20)
settings.load_profile("ci")
engine.MAX_SHRINKING_SECONDS = 30
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # makes a grammar for a second, at each import of jsonschema

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parent
MEMORY = Path("/dev/shm")

WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "patient", "was", "seen", "by", "Dr", "on", ".", ",",
]  # fmt: skip
LABELS = ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE"]

Make = Callable[..., Path]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: a tenth of the suite is waiting for servers that stall, and for time limits."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (cores or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """Temporary files lie in memory if there is room: the suite makes a million small ones. Large sizes stay on disk.

    Garbage is collected less often, and at the end once instead of five times. Ctrl-C means what it means to a user,
    also if a script started this process in the background.
    """
    gc.set_threshold(50_000, 20, 20)
    config.stash[gc_collect_iterations_key] = 1
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "TMPDIR" not in os.environ and "not large" in config.option.markexpr and _is_roomy(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    if config.args == ["tests"] and (worker := getattr(config, "workerinput", None)):
        # in a fresh checkout each worker compiles other tests first, and reads what the others have compiled
        places = sorted({f"tests/{path.relative_to(TESTS).parts[0]}" for path in TESTS.rglob("test_*.py")})
        first = len(places) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args[:] = places[first:] + places[:first]


def _is_roomy(directory: Path) -> bool:
    """True if 4 GiB are free, and programs may be run there."""
    if not directory.is_dir():
        return False
    return shutil.disk_usage(directory).free > 4 * 2**30 and not os.statvfs(directory).f_flag & os.ST_NOEXEC


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[object]:
    """PyTorch and the tests are a large heap that stays: no collection of garbage looks at it before the process ends."""
    gc.disable()
    try:
        return (yield)  # type: ignore[misc]
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With another profile than that of `make test` the random searches are among the tests of `make test-more`."""
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0])
    if settings.get_current_profile_name() != "ci":
        for item in items:
            if is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker("more")


@pytest.fixture(scope="session", autouse=True)
def isolated_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test knows the keys, the trust, the known heads, the name and the machine of whoever runs it."""
    own = tmp_path_factory.getbasetemp() / "own"
    with pytest.MonkeyPatch.context() as patch:
        for what in ("STATE", "KEYS", "TRUST"):
            patch.setenv(f"REG_{what}", str(own / what.lower()))
        own.mkdir()
        (own / "trust").touch()
        for what in ("SIGNING_KEY", "KEY_PASSPHRASE"):
            patch.delenv(f"REG_{what}", raising=False)
        patch.setenv("REG_ACTOR", "")
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """This process does not wait for the disk: tests/crash proves what is synced, on a file system that records it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(system, "_sync_file_system", lambda path: True)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_retries() -> Iterator[None]:
    """This process tries a failed request again at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "FIRST_WAIT_SECONDS", 0.001)
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_templates(pytestconfig: pytest.Config) -> Iterator[None]:
    """Servers compile the templates of their pages once for all workers and runs: a sixth of a second less for each."""
    cache = FileSystemBytecodeCache(str(pytestconfig.cache.mkdir("templates")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "Environment", partial(Environment, bytecode_cache=cache))
        yield


@pytest.fixture(autouse=True)
def own_user(
    isolated_user: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Each test is a user of its own, who knows nothing yet, and trusts nobody."""
    own = tmp_path_factory.getbasetemp() / "own" / token_hex(8)
    own.mkdir()
    (own / "trust").touch()
    for what in ("STATE", "KEYS", "TRUST"):
        monkeypatch.setenv(f"REG_{what}", str(own / what.lower()))
    return own


@pytest.fixture(scope="session")
def gated_template(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gated_registry.filled(tmp_path_factory.mktemp("gated")).store.root


@pytest.fixture
def gated(gated_template: Path, tmp_path: Path) -> Home:
    """The registry of `support/registries/gated`, with a policy; made once, and copied for each test."""
    return Home(shutil.copytree(gated_template, tmp_path / "home"))


@pytest.fixture
def reader_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`reg add` and `reg import` start no process to read the files: a third of a second less for each."""
    from support import in_process

    monkeypatch.setattr("onnxreg.converters.importers.confine.Child", in_process.Reader)


def tiny_config(family: str) -> Any:
    from transformers import AutoConfig

    size: dict[str, Any] = {"vocab_size": 64, "num_labels": len(LABELS), "pad_token_id": 0}
    size |= {"id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}
    if family == "distilbert":
        shape = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    else:
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if "roberta" in family:
        size |= {"pad_token_id": 1, "type_vocab_size": 1}
    return AutoConfig.for_model(family, max_position_embeddings=40, **shape, **size)


def tiny_tokenizer(family: str) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*WORDS, *(f"w{index}" for index in range(64 - len(WORDS)))]
    if "roberta" in family:
        words[0], words[1] = words[1], words[0]
    vocabulary = {word: index for index, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.enable_truncation(16)
    backend.enable_padding(length=16)
    inputs = ["input_ids", "attention_mask"] + (["token_type_ids"] if family in ("bert", "electra") else [])
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **special)


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Write a tiny checkpoint and return its directory; `task` is the class that is saved."""

    def make(family: str = "bert", task: str = "TokenClassification", seed: int = 0) -> Path:
        import torch
        import transformers

        torch.manual_seed(seed)
        directory = tmp_path_factory.mktemp(family)
        config = tiny_config(family)
        if task == "QuestionAnswering":
            config.num_labels = 2
        model = getattr(transformers, f"AutoModelFor{task}" if task else "AutoModel").from_config(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(directory)
        tiny_tokenizer(family).save_pretrained(directory)
        return directory

    return make


@pytest.fixture(scope="session")
def bert(make_checkpoint: Make) -> Path:
    """A tiny BERT token classifier, shared by tests that only read it."""
    return make_checkpoint("bert")


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source distribution, as `make dist` builds them."""
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, REPOSITORY / ".ci" / "dist.py", directory], check=True)
    return directory


@pytest.fixture(scope="session")
def wheel(distributions: Path) -> Path:
    """The wheel."""
    (built,) = distributions.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def ministack_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    """MiniStack with its root key."""
    with s3servers.ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server


@pytest.fixture(scope="session")
def ministack(ministack_root: s3servers.Server) -> s3servers.Server:
    """MiniStack with the key of an IAM user, whose signature it checks (it does not check the root key's)."""
    return s3servers.Server(ministack_root.endpoint, *s3servers.user(ministack_root, "tester", ["s3:*"]))


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    with s3servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def juicefs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    with s3servers.juicefs(tmp_path_factory.mktemp("juicefs")) as server:
        yield server


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    with ceph_server.ceph(tmp_path_factory.mktemp("ceph")) as server:
        yield server

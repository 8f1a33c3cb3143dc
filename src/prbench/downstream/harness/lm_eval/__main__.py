"""Print the folder of the tasks: `lm_eval run --include_path "$(python -m prbench.downstream.harness.lm_eval)"`."""

import sys
from pathlib import Path

sys.stdout.write(f"{Path(__file__).parent}\n")

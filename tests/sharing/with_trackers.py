"""Run the command line with the trackers of an environment of their own behind this one's packages: ENV ARGS."""

import sys
from pathlib import Path

(packages,) = Path(sys.argv[1]).glob("lib/python3*/site-packages")
sys.path.append(str(packages))
sys.argv[:2] = ["prbench"]
from prbench.cli import main  # noqa: E402

main()

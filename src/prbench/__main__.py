"""`python -m prbench`."""

from prbench.cli import main

main()

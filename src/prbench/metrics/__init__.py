"""Pure functions from rows to numbers: no I/O, no state; each states its policy for ties and unreadable verdicts."""

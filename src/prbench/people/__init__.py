"""People: they check and write pairs, agree or not, and may have themselves forgotten."""

"""What results say: does a benchmark predict, where do models fail, how good are plans."""

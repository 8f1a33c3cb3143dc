"""What runs models of others: chat models, encoders, transformers, GGUF files, sampling and shared prefixes."""

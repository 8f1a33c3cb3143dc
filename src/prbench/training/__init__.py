"""Reward models and policies that are trained here: one module per method, and what methods share.

A method's module has its settings, its loss and its training, to be read from top to bottom. Shared are `data` (rows
to learn from, rows to be measured on), `folder` (checkpoints, what a training leaves behind, its cards), `methods`
(training by name), `loop` (small modules on embeddings), and `backbones` with `lm_trainer` and `trainers` (pretrained
models, and the trainers of transformers and TRL).
"""

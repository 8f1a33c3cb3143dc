"""Reward models and policies that are trained here: one module per method, and what methods share.

A method's module has its settings, its loss and its training, to be read from top to bottom. Shared are `data` (rows
to learn from, rows to be measured on), `folder` (checkpoints, what a training leaves behind, its cards), `methods`
(training by name), `loop` with `calibrate` (small modules on embeddings), and `backbones` with
`lm_trainer`, `pair_trainer` and `reply_trainer` (pretrained models, and transformers' trainer).
"""

"""Reward models that are trained here."""

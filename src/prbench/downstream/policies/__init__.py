"""Policies: what writes the answers whose worth reward models are to tell."""

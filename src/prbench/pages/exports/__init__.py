"""Finished runs in the form that others read (one module a form, by name in the registry), and uploads to a hub."""

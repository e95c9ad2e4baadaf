"""Plug-in packages as other authors would write them, and their installation for one test."""

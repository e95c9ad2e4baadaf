"""Checks that emitter, device and sanitizer share."""

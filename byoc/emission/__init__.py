"""Placed steps become command words: registers, constants, tokens, addresses."""

"""Emission: steps become command words with registers, constants, tokens and addresses."""

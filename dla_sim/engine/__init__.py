"""Command processor, units, tokens, bus, accounts."""

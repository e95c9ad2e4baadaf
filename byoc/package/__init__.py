"""The portable ``.dla`` file."""

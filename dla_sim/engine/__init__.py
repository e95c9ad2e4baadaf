"""The timing of the machine (docs/machine.md): costs of commands, the event engine, causes, accounts, hazards."""

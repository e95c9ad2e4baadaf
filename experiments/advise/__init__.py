"""``dla advise``: what limits a network on a machine, and which changes of the machine help, each of them measured."""

"""Run the guides as tests: the shown commands must print the shown output.

Fenced blocks of README.md and docs/*.md run in order, one empty folder a file:

- ``console``: lines that start with ``$`` are commands (a line that ends with a backslash goes on
  in the next one), what follows is their output, standard error included. Spaces count as one,
  empty lines not at all; ``...`` stands for any text, on a line of its own for any lines. A command
  without output under it may print what it likes. Commands must exit with status 0 unless
  ``$ echo $?`` comes next.
- ``python``: statements, executed in one namespace a file; or, where they start with ``>>>``,
  examples with their output, by the same rules.
- ``file=NAME`` behind any language writes the block to NAME. A ``pyproject.toml`` makes its folder
  an installed package, as ``pip install -e`` would; so does the command
  ``python3 -m pip install -e FOLDER``.
- ``varies`` behind ``console``: the runtime's version, a report's digest and floating-point
  differences may be others.
- ``no-test`` behind any language leaves the block out: for what needs a network, changes the
  machine, or takes long.
"""

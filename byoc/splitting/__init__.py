"""Split one network over several accelerators: a region becomes steps of concurrent programs.

See section 9 of docs/systems.md. The programs of a step read the results of earlier steps in shared
memory, and a step starts when all programs of the previous step have ended. A step whose nodes
cannot be divided runs as one program, and records the reason.

A node is sliced so that it computes some channels or rows of its output from the parts of its
operands that these need. The slices compute the same elements from the same numbers as the whole
node, so results are bit-exact.
"""

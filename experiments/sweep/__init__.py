"""Design-space sweeps: a specification becomes points, points become rows of one results file."""

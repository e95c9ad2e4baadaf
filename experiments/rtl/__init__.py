"""Tools for hardware: builds, comparison with the simulator, waves, gates and test benches."""

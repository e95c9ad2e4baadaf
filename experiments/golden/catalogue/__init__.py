"""The cases that ``dla golden record`` makes, level by level."""

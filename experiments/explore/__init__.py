"""Search instead of grids: the best compromises of two objectives, found by looking at a part of the grid."""

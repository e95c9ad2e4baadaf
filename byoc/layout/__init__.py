"""Memory layouts of tensors, and the copies between layouts."""

"""Values become buffers, fused operations the steps of a schedule that splits them."""

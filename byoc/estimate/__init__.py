"""What something costs in cycles before it is measured."""

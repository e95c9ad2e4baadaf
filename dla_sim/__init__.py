"""The device - executes a Program on data, counts cycles, explains every one of them."""

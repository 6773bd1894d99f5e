"""Make a known bug happen, to see what it looks like."""

"""Traces from elsewhere: recorded log-probabilities of serving engines."""

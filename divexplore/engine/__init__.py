"""Run one configuration and record what came out of the model."""

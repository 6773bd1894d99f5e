"""The model in the wheel: weights, tokenizer, card (README.md) and the recipe that made it."""

"""Which prompts suit the bundled model? Beginnings of fairy tales, a few words each."""

from __future__ import annotations

__all__ = ["PROMPTS"]

PROMPTS = (
    "The giant",
    "Once upon a time there was a king who",
    "There was once a poor woodcutter",
    "The old witch looked at the children and",
    "The princess wept because",
    "A fox met a wolf in the forest and said,",
    "The youngest brother took his sword",
    "In the middle of the night the door opened",
    "The queen had a mirror",
    "The fisherman drew in his net and",
    "Far away beyond the mountains",
    "The little bird sat on a branch and sang",
    "A soldier came marching along the road",
    "The dragon lived in a cave",
    "When the prince awoke,",
    "The miller had three sons",
    "The stepmother gave her",
    "At midnight the clock struck and",
    "The golden apple fell",
    "Then said the dwarf to the girl,",
    "The horse could speak and",
    "Deep in the well",
    "Three days later the merchant",
    "The wedding was held",
)

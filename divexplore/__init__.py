"""See where, why and how far two runs of the same language model part ways."""

__version__ = "0.1.0"

"""What a person sees: the view of a comparison, and the explorer around it."""

"""Two traces of one prompt: where they part, by how much, and what that means."""

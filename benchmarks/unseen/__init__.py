"""Programs in the forms people write, kept out of everything that the model was fitted to."""

"""Programs in the forms people write. The model's error is measured on them and the examples."""

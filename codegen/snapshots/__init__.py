"""What a kernel looked like on its way, as texts for people: made only where they are dumped."""

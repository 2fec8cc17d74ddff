"""The run-time scheduler beside serial, hand-written and graph versions of the same programs."""

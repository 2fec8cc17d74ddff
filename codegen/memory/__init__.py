"""Where values lie, and the barriers between those who write and read them."""

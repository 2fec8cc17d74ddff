"""Which schedule a kernel gets: the neighbours of one, and the way from it to a faster one."""

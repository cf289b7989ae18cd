"""Kill commands at every change of the file system, and test what is left and that a rerun succeeds."""

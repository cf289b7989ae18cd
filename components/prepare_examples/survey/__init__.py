"""Facts about the rows and columns of a table, mergeable in any order."""

"""Files and folders: remote addresses, unfinished and temporary files, publication, locks."""

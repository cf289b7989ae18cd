"""Push a blessed model to the folder that a server loads versions from."""

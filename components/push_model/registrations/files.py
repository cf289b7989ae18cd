"""Write a file of a registration, whole or not at all."""

from pathlib import Path

from tfopt.storage import remote_files, staging


def write_file(address: str, content: bytes) -> str:
    """Write a file at a path or an address, replacing an earlier one, and return where it is."""
    if remote_files.is_remote(address):
        remote_files.write_file(address, content)
        return address
    file = Path(address).expanduser().absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = staging.new_path(file.parent)
    partial.write_bytes(content)
    staging.sync(partial)
    partial.replace(file)
    return str(file)

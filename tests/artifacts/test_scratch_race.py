"""Test that two commands that start in the same moment do not lose their temporary folders to each other."""

import os
from pathlib import Path

from tfopt.storage import scratch


def test_a_folder_that_another_process_removes_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    removed: list[Path] = []
    open_file = os.open

    def open_after_removal(path, *arguments, **options):
        if Path(path).parent == tmp_path and not removed:
            removed.append(Path(path))
            Path(path).rmdir()  # as `_remove_abandoned` of the other process
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(scratch.os, "open", open_after_removal)
    folder = scratch._new_folder(tmp_path)
    assert folder.is_dir() and [folder] != removed and len(removed) == 1

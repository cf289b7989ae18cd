"""Test that only results of a run's own workers are read."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tfopt.data.beam_runner import ResultFile
from tfopt.errors import ComponentError


class Hostile:
    """An object whose unpickling creates a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


@pytest.fixture
def file(tmp_path) -> ResultFile:
    return ResultFile(str(tmp_path / "a folder" / ".result"))


def test_the_result_of_a_worker_is_returned_and_the_file_removed(file, bucket):
    for result in (file, replace(file, uri=f"{bucket}/a folder/.result")):
        pickle.loads(pickle.dumps(result)).write({"rows": [1, 2]})  # as Beam sends it to a worker
        assert result.take() == {"rows": [1, 2]}
        with pytest.raises(ComponentError, match="ended without a result"):
            result.take()


@pytest.mark.parametrize("forgery", ["another key", "plain pickle", "changed byte", "cut", "empty"])
def test_a_file_of_another_writer_is_refused_unread(forgery, file, tmp_path):
    ran = tmp_path / "ran"
    replace(file, key=b"other").write(Hostile(ran)) if forgery == "another key" else file.write([1, 2, 3])
    path = Path(file.uri)
    content = path.read_bytes()
    changed = {
        "another key": content,
        "plain pickle": pickle.dumps(Hostile(ran)),
        "changed byte": content[:-2] + bytes([content[-2] ^ 1]) + content[-1:],
        "cut": content[:-3],
        "empty": b"",
    }
    path.write_bytes(changed[forgery])
    with pytest.raises(ComponentError, match="not written by the workers of this run"):
        file.take()
    assert not ran.exists()


def test_the_key_is_in_no_message(file):
    assert str(file.key) not in repr(file)

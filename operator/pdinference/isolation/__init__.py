"""Runs functions on hostile input in a process that the kernel ends when they take too much time or memory.

One child process imports the functions once and forks a worker for each lane (`worker.py`). A lane is a socket to the
operator (`process.py`). Its calls are made one at a time, in turns between namespaces (`turns.py`). A kernel timer
limits the time and RLIMIT_AS the memory, both in the worker itself. The child replaces a worker that ended.
"""
